"""Graphs are verified against their kinds' specifications: a pass's omissions and typos are found at once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mtool.compiler.ir import Attributes, DType, Graph, Node, TensorType
from mtool.compiler.ir.expr import Expr, acc, axis, load
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.matmul import Matmul
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.operators.verification import verify

F32, I8, I32 = DType.FLOAT32, DType.INT8, DType.INT32


def graph() -> Graph:
    """Return a convolution of two channels to three, whose epilogue reads a fourth input."""
    filters, bias, scale = np.ones((3, 1, 1, 2), np.int8), np.zeros(3, np.int32), np.ones(3, np.float32)
    constants = {"w": filters, "b": bias, "s": scale}
    types = {name: TensorType(DType.of(data.dtype), data.shape) for name, data in constants.items()}
    types |= {"x": TensorType(DType.INT8, (1, 4, 5, 2)), "y": TensorType(DType.FLOAT32, (1, 4, 5, 3))}
    attrs = Conv2d(kernel=(1, 1), expr=load(3, DType.FLOAT32, (axis(3),)))
    node = Node("conv2d", "conv", ("x", "w", "b", "s"), ("y",), attrs)
    return Graph("test", ("x",), ("y",), (node,), types, constants)


def changed(**fields: object) -> Graph:
    whole = graph()
    return replace(whole, nodes=(replace(whole.nodes[0], **fields),))  # type: ignore[arg-type]


def typed(name: str, shape: tuple[int, ...]) -> Graph:
    whole = graph()
    return replace(whole, types={**whole.types, name: TensorType(whole.types[name].dtype, shape)})


def variable(name: str) -> Graph:
    whole = graph()
    kept = {other: data for other, data in whole.constants.items() if other != name}
    return replace(whole, inputs=("x", name), constants=kept)


def test_a_sound_graph_passes() -> None:
    verify(graph())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: changed(op="conv3d"), "unknown kind"),
        (lambda: changed(attrs=Attributes()), "expected Conv2d"),
        (lambda: changed(attrs=Dense(expr=acc(DType.INT32))), "expected Conv2d"),
        (lambda: changed(attrs=Conv2d(kernel=(1, 1), expr=load(4, DType.FLOAT32, (axis(3),)))), "loads input 4"),
        (lambda: changed(inputs=("x", "w")), "has 2 inputs; expected 3"),
        (lambda: variable("w"), "weights of conv2d conv is not a constant"),
        (lambda: typed("x", (1, 4, 5)), "expected NHWC"),
        (lambda: typed("y", (1, 4, 5, 4)), "O = 4; expected 3"),
        (lambda: typed("y", (2, 4, 5, 3)), "N = 2; expected 1"),
    ],
)
def test_what_a_kind_does_not_allow_is_named(broken: Callable[[], Graph], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        verify(broken())


def test_a_kind_without_an_expression_has_its_own_operands_only() -> None:
    types = {"x": TensorType(DType.INT8, (2, 3)), "y": TensorType(DType.INT8, (3, 2))}
    node = Node("transpose", "turn", ("x", "x"), ("y",), Transpose(perm=(1, 0)))
    with pytest.raises(AssertionError, match="has 2 inputs; expected 1"):
        verify(Graph("test", ("x",), ("y",), (node,), types, {}))


def test_attributes_are_read_as_their_own_class_only() -> None:
    (node,) = graph().nodes
    assert Conv2d.of(node).kernel == (1, 1)
    with pytest.raises(AssertionError, match="conv has Conv2d; expected Dense"):
        Dense.of(node)


def convolution(**fields: object) -> Graph:
    """Return the sound graph with other attributes of its convolution."""
    whole = graph()
    return changed(attrs=replace(whole.nodes[0].attrs, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: typed("x", (1, 4, 5, 3)), "1 groups"),
        (lambda: convolution(group=2), "2 groups"),
        (lambda: convolution(kernel=(3, 3)), "kernel .3, 3. and weights"),
        (lambda: convolution(strides=(0, 1)), "strides .0, 1."),
        (lambda: convolution(pads=(1, 0, 1, 0)), "6 windows fit"),
        (lambda: typed("y", (1, 4, 9, 3)), "5 windows fit"),
        (lambda: convolution(expr=load(3, I32, (axis(3),))), "computes int32; its output is float32"),
        (lambda: convolution(expr=load(3, F32, (axis(2), axis(3)))), "by 2 indices from input 3"),
        (lambda: convolution(expr=load(3, F32, (axis(7),))), "no axis 7"),
        (lambda: convolution(expr=acc(F32)), "has sums of int32"),
        (lambda: changed(outputs=("y", "z")), "has 2 outputs"),
    ],
)
def test_a_convolution_whose_parts_do_not_fit_is_named(broken: Callable[[], Graph], message: str) -> None:
    whole = broken()
    with pytest.raises(AssertionError, match=message):
        verify(replace(whole, types={**whole.types, "z": whole.types["y"]}))


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("x", F32, "mixes floats and integers"),
        ("w", DType.BOOL, "weights of conv2d conv is bool"),
        ("b", I8, "bias of"),
    ],
)
def test_operands_of_types_that_are_not_multiplied_are_named(name: str, dtype: DType, message: str) -> None:
    whole = graph()
    kind = TensorType(dtype, whole.types[name].shape)
    constants = {n: data.astype(dtype.numpy) if n == name else data for n, data in whole.constants.items()}
    with pytest.raises(AssertionError, match=message):
        verify(replace(whole, types={**whole.types, name: kind}, constants=constants))


def one(op: str, attrs: Attributes, inputs: dict[str, TensorType], output: TensorType) -> Graph:
    node = Node(op, "it", tuple(inputs), ("y",), attrs)
    return Graph("test", tuple(inputs), ("y",), (node,), {**inputs, "y": output}, {})


def read(dtype: DType, *axes: int) -> Expr:
    return load(0, dtype, tuple(map(axis, axes)))


X, TURNED = TensorType(F32, (2, 3)), TensorType(F32, (3, 2))
IMAGE, BYTES = TensorType(F32, (1, 4, 4, 2)), TensorType(I8, (2, 3))
POOL = Pool2d(
    kind="max", kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1), count_pads=False, limits=(4, 4),
    expr=acc(F32),
)  # fmt: skip
PRODUCT = Matmul(depth=3, a=(3, 1), b=(2, 1), points=(0, 0), expr=acc(I32))


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        (one("loop", Loop(expr=read(F32, 0)), {"x": X}, X), "by 1 indices"),
        (one("loop", Loop(expr=read(I8, 0, 1)), {"x": X}, BYTES), "loads int8 by 2 indices"),
        (one("loop", Loop(expr=read(F32, 0, 2)), {"x": X}, X), "no axis 2"),
        (one("loop", Loop(expr=acc(F32)), {"x": X}, X), "is not a kernel"),
        (one("transpose", Transpose(perm=(0, 0)), {"x": X}, X), r"by \(0, 0\)"),
        (one("transpose", Transpose(perm=(1, 0)), {"x": X}, X), r"by \(1, 0\)"),
        (one("transpose", Transpose(perm=(1, 0)), {"x": BYTES}, TURNED), r"by \(1, 0\)"),
        (one("view", View(), {"x": X}, TensorType(F32, (7,))), "from 0 on"),
        (one("view", View(first=5), {"x": X}, TensorType(F32, (2,))), "from 5 on"),
        (one("view", View(), {"x": X}, BYTES), "from 0 on"),
        (one("concat", Concat(axis=2), {"x": X, "z": X}, TensorType(F32, (2, 6))), "along 2"),
        (one("concat", Concat(axis=1), {"x": X, "z": X}, TensorType(F32, (2, 7))), "along 1"),
        (one("concat", Concat(axis=1), {"x": X, "z": BYTES}, TensorType(F32, (2, 6))), "along 1"),
        (one("pool2d", POOL, {"x": IMAGE}, TensorType(F32, (1, 3, 2, 2))), "fewer windows"),
        (one("pool2d", replace(POOL, strides=(2, 0)), {"x": IMAGE}, TensorType(F32, (1, 2, 4, 2))), "strides"),
        (one("matmul", PRODUCT, {"a": TURNED, "b": BYTES}, TensorType(I32, (2, 2))), "a of matmul it is float32"),
        (
            one("matmul", replace(PRODUCT, depth=4), {"a": BYTES, "b": BYTES}, TensorType(I32, (2, 2))),
            "reads element 6",
        ),
        (one("softmax", SoftmaxOfRows(expr=acc(I8)), {"x": X}, X), "computes int8"),
    ],
)
def test_a_node_of_each_kind_whose_parts_do_not_fit_is_named(whole: Graph, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        verify(whole)


@pytest.mark.parametrize(
    ("dtype", "table", "fixed"), [(F32, F32, False), (I8, I32, False), (I8, F32, True), (DType.INT16, F32, False)]
)
def test_a_table_of_exponentials_is_of_8_bit_integers(dtype: DType, table: DType, fixed: bool) -> None:
    attrs = SoftmaxOfRows(has_table=True, fixed=fixed, expr=acc(F32))
    whole = one("softmax", attrs, {"x": TensorType(dtype, (2, 3)), "t": TensorType(table, (256,))}, X)
    constants = {"t": np.ones(256, table.numpy)}
    with pytest.raises(AssertionError, match="has a table"):
        verify(replace(whole, inputs=("x",), constants=constants))
