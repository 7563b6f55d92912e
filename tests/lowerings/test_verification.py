"""Graphs against the specifications of their kinds: what a pass has left undone or misspelt is found at once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mtool.ir import Attributes, DType, Graph, Node, TensorType
from mtool.ir.expr import acc, axis, load
from mtool.ir.node import Transpose
from mtool.lowerings.verification import verify
from mtool.ops.conv2d.node import Conv2d
from mtool.ops.dense.node import Dense


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
        (lambda: variable("w"), "weights of conv2d conv is no constant"),
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
    with pytest.raises(AssertionError, match="conv is conv2d of Conv2d; expected Dense"):
        Dense.of(node)
