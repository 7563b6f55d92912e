"""Malformed nodes: the error names the node and the problem, and the process continues."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

from mtool.base.errors import ModelError
from mtool.compiler.frontend import from_proto
from mtool.compiler.frontend.dispatch import import_node
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.operators import operators
from mtool.compiler.operators.budget import Budget

F = np.float32
X = (2, 3, 4, 4)


def graph_of(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], constants: Mapping[str, Any] | None = None, opset: int = 21
) -> onnx.ModelProto:
    """Return a model of one input, x; what its outputs are, it does not say."""
    tensors = [numpy_helper.from_array(np.asarray(data), name) for name, data in (constants or {}).items()]
    outputs = [onnx.ValueInfoProto(name=nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, shape)], outputs, tensors)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("f", 1)], ir_version=10
    )


def refusal(proto: onnx.ModelProto) -> str:
    """Return why the last node is refused; the checker, which looks at some of it before, is left out."""
    with pytest.raises(ModelError) as refused:
        import_graph(proto, "m")
    last = proto.graph.node[-1]
    lines = [line for line in refused.value.details if line.startswith(last.op_type)]
    assert lines and last.name in lines[0], refused.value
    with pytest.raises(ModelError):
        from_proto(proto, "m")
    return lines[0]


def size(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


FAR = [7, -7, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
AXES = [
    "ArgMax", "ArgMin", "Concat", "Flatten", "Gather", "GatherElements", "Hardmax", "LayerNormalization", "LogSoftmax",
    "LpNormalization", "OneHot", "ScatterElements", "Softmax", "Split", "SplitToSequence", "TopK", "Compress", "Unique",
]  # fmt: skip
MORE: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Concat": (["x"], {}),
    "Gather": (["i"], {"i": size(0)}),
    "GatherElements": (["i"], {"i": np.zeros(X, np.int64)}),
    "LayerNormalization": (["s"], {"s": np.ones(4, F)}),
    "OneHot": (["d", "v"], {"d": np.array(3), "v": np.array([0, 1], F)}),
    "ScatterElements": (["i", "x"], {"i": np.zeros(X, np.int64)}),
    "TopK": (["k"], {"k": size(1)}),
    "Compress": (["c"], {"c": np.array([True])}),
}


@pytest.mark.parametrize("axis", FAR)
@pytest.mark.parametrize("op", AXES)
def test_an_axis_that_is_not_there(op: str, axis: int) -> None:
    inputs, constants = MORE.get(op, ([], {}))
    outputs = ["y", "z"] if op in ("TopK", "Split") else ["y"]
    first = "i" if op == "OneHot" else "x"
    made = [node("Cast", ["x"], ["i"], to=TensorProto.INT64)] if op == "OneHot" else []
    attrs = {"num_outputs": 2} if op == "Split" else {}
    proto = graph_of([*made, node(op, [first, *inputs], outputs, "it", axis=axis, **attrs)], X, constants)
    assert "axis" in refusal(proto)


@pytest.mark.parametrize("axes", [[4], [-5], [0, 2**62], [-(2**63)]])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "Squeeze", "Unsqueeze", "Slice"])
def test_axes_that_are_not_there(op: str, axes: list[int]) -> None:
    numbers = {
        "a": size(*[9 * axis if op == "Unsqueeze" and abs(axis) < 9 else axis for axis in axes]),
        "n": size(*[0] * len(axes)),
    }
    inputs = ["x", "n", "n", "a"] if op == "Slice" else ["x", "a"]
    refusal(graph_of([node(op, inputs, ["y"], "it")], X, numbers))


EQUATIONS = [
    "", "->", "ij", "ijkl->ijj", "ijkl->ijm", "ijkl,ij->ij", "..ijkl->i", "....ijkl->i", "ij....->i", "...ijklm->i",
    "iikl->i", "ij kl->1", "ijkl->i->j", "..i..,j", "ijkl=>i", "a...b...c->a", "ijk\xe9->i",
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    assert "equation" in refusal(graph_of([node("Einsum", ["x"], ["y"], "it", equation=equation)], X))


@pytest.mark.parametrize(("equation", "shape"), [("ii->i", (3, 4)), ("ij,jk->ik", (3, 4)), ("...i,i...->i", (3, 4))])
def test_einsum_of_sizes_that_differ(equation: str, shape: Sequence[int]) -> None:
    inputs = ["x"] * (equation.count(",") + 1)
    assert "equation" in refusal(graph_of([node("Einsum", inputs, ["y"], "it", equation=equation)], shape))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 2)]),
        ("...ij, ...jk", [(2, 3, 4), (2, 4, 5)]),
        ("b...i->b...", [(2, 3, 4)]),
        ("ii", [(3, 3)]),
    ],
)
def test_einsum_as_it_should_be(equation: str, shapes: list[tuple[int, ...]]) -> None:
    constants = {f"w{n}": np.ones(shape, F) for n, shape in enumerate(shapes[1:])}
    proto = graph_of([node("Einsum", ["x", *constants], ["y"], equation=equation)], shapes[0], constants)
    wanted = np.einsum(equation.replace(" ", ""), *(np.ones(shape) for shape in shapes)).shape
    assert import_graph(proto, "m").types["y"].shape == wanted


MALFORMED: dict[str, tuple[onnx.NodeProto, dict[str, Any]]] = {
    "too few inputs": (node("Conv", ["x"], ["y"], "it"), {}),
    "too many inputs": (node("Relu", ["x", "x"], ["y"], "it"), {}),
    "too many outputs": (node("Relu", ["x"], ["y", "z"], "it"), {}),
    "an input that is empty": (node("Conv", ["x", ""], ["y"], "it"), {}),
    "an input among many that is empty": (node("Concat", ["x", ""], ["y"], "it", axis=0), {}),
    "an attribute of another type": (node("Softmax", ["x"], ["y"], "it", axis="last"), {}),
    "an attribute that is missing": (node("Concat", ["x"], ["y"], "it"), {}),
    "an input that nothing makes": (node("Relu", ["nowhere"], ["y"], "it"), {}),
    "num_outputs of a Split": (node("Split", ["x"], ["y", "z"], "it", num_outputs=1), {}),
    "batch_dims below 0": (node("GatherND", ["x", "i"], ["y"], "it", batch_dims=-(2**31)), {"i": size(0, 0)}),
    "batch_dims above the rank": (node("GatherND", ["x", "i"], ["y"], "it", batch_dims=9), {"i": size(0, 0)}),
    "a shape of a million sizes": (node("Expand", ["x", "s"], ["y"], "it"), {"s": np.ones(1_000_000, np.int64)}),
    "a permutation that is none": (node("Transpose", ["x"], ["y"], "it", perm=[0, 0, 1, 2]), {}),
    "a reshape to another size": (node("Reshape", ["x", "s"], ["y"], "it"), {"s": size(5, 5)}),
    "a reshape to a negative size": (node("Reshape", ["x", "s"], ["y"], "it"), {"s": size(-2, 96)}),
    "filters of another rank": (node("Conv", ["x", "w"], ["y"], "it"), {"w": np.ones((2, 3, 3), F)}),
    "strides of 0": (node("Conv", ["x", "w"], ["y"], "it", strides=[0, 0]), {"w": np.ones((2, 3, 3, 3), F)}),
    "a kernel of another rank": (node("MaxPool", ["x"], ["y"], "it", kernel_shape=[2]), {}),
    "scales of another rank": (node("Resize", ["x", "", "s"], ["y"], "it"), {"s": np.ones(3, F)}),
    "scales below 0": (node("Resize", ["x", "", "s"], ["y"], "it"), {"s": np.array([1, 1, -2, -2], F)}),
    "a slice by 0": (
        node("Slice", ["x", "a", "b", "c", "d"], ["y"], "it"), {"a": size(0), "b": size(2), "c": size(1), "d": size(0)},
    ),
    "more starts than ends": (node("Slice", ["x", "a", "b"], ["y"], "it"), {"a": size(0, 1), "b": size(2)}),
    "pads of another rank": (node("Pad", ["x", "p"], ["y"], "it"), {"p": size(1, 1, 1)}),
    "updates of another shape": (
        node("ScatterND", ["x", "i", "u"], ["y"], "it"), {"i": size(0).reshape(1, 1), "u": np.ones((9, 9), F)},
    ),
}  # fmt: skip


OPERANDS: dict[str, tuple[onnx.NodeProto, dict[str, Any]]] = {
    "a bias of another length": (
        node("Conv", ["x", "w", "b"], ["y"], "it"), {"w": np.ones((2, 3, 1, 1), F), "b": np.ones(5, F)},
    ),
    "filters of other channels": (node("ConvTranspose", ["x", "w"], ["y"], "it"), {"w": np.ones((2, 3, 1, 1), F)}),
    "a matrix that does not spread": (
        node("Gemm", ["m", "m", "c"], ["y"], "it"), {"m": np.ones((4, 4), F), "c": np.ones((3, 4), F)},
    ),
    "a permutation of fewer axes": (node("Transpose", ["x"], ["y"], "it", perm=[0, 2, 1]), {}),
    "a bias that is one number": (
        node("DeformConv", ["x", "w", "o", "b"], ["y"], "it"),
        {"w": np.ones((2, 3, 1, 1), F), "o": np.zeros((2, 2, 4, 4), F), "b": np.array(1, F)},
    ),
    "a slope for each of more": (node("PRelu", ["x", "s"], ["y"], "it"), {"s": np.ones(7, F)}),
    "a scale for each of more": (node("LayerNormalization", ["x", "s"], ["y"], "it"), {"s": np.ones(7, F)}),
    "statistics of other channels": (
        node("InstanceNormalization", ["x", "s", "s"], ["y"], "it"), {"s": np.ones(7, F)},
    ),
    "weights of another size": (
        node("LSTM", ["q", "w", "w"], ["y"], "it", hidden_size=2),
        {"q": np.ones((3, 1, 5), F), "w": np.ones((1, 8, 5), F)},
    ),
    "lengths of other sequences": (
        node("ReverseSequence", ["x", "l"], ["y"], "it", batch_axis=0, time_axis=1), {"l": size(1, 1, 1)},
    ),
    "indices of another rank": (node("GatherElements", ["x", "i"], ["y"], "it"), {"i": size(0, 1)}),
    "indices beyond another axis": (
        node("GatherElements", ["x", "i"], ["y"], "it"), {"i": np.zeros((2, 9, 4, 4), np.int64)},
    ),
    "fewer updates than indices": (
        node("ScatterElements", ["x", "i", "u"], ["y"], "it"),
        {"i": np.zeros((2, 3, 4, 4), np.int64), "u": np.ones((1, 1, 1, 1), F)},
    ),
    "a bound for each element": (node("Clip", ["x", "l"], ["y"], "it"), {"l": np.ones(4, F)}),
    "boxes of three numbers": (
        node("RoiAlign", ["x", "b", "i"], ["y"], "it", sampling_ratio=1), {"b": np.ones((1, 3), F), "i": size(0)},
    ),
    "a grid of other places": (node("GridSample", ["x", "g"], ["y"], "it"), {"g": np.ones((2, 2, 2, 5), F)}),
}  # fmt: skip


@pytest.mark.parametrize("what", OPERANDS)
def test_operands_that_do_not_go_together(what: str) -> None:
    one, constants = OPERANDS[what]
    made = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Add", [one.input[0], "sum"], ["first"])]
    changed = onnx.NodeProto()
    changed.CopyFrom(one)
    changed.input[0] = "first"  # which is not a constant
    refusal(graph_of([*made, changed], X, constants))


@pytest.mark.parametrize(
    "ends", [(0, 4, 0), (0, np.nan, 1), (np.nan, 4, 1), (0, np.inf, 1), (0, 4, np.nan), (0, 4, np.inf)]
)
def test_a_range_that_ends_nowhere(ends: Sequence[float]) -> None:
    constants = dict(zip("abd", map(F, ends), strict=True))
    assert "make an infinite range" in refusal(graph_of([node("Range", [*"abd"], ["y"], name="r")], X, constants))


def test_a_range_of_integers_by_nothing() -> None:
    constants = dict(zip("abd", np.int16([0, 9, 0]), strict=True))
    assert "make an infinite range" in refusal(graph_of([node("Range", [*"abd"], ["y"], name="r")], X, constants))


@pytest.mark.parametrize("what", MALFORMED)
def test_a_node(what: str) -> None:
    one, constants = MALFORMED[what]
    refusal(graph_of([one], X, constants))


@pytest.mark.parametrize(("op", "shapes"), [
    ("Tile", [(4, 6, 8, 9)]), ("TopK", [(2, 3, 4, 5), (2, 3, 4, 5)]), ("TopK", [(2, 3, 4, 2), (2, 3, 4, 3)]),
    ("TopK", [(9, 3, 4, 2), (9, 3, 4, 2)]),
])  # fmt: skip
def test_a_declared_shape_that_can_not_be(op: str, shapes: list[Sequence[int]]) -> None:
    """What says the shape of the output is known only when it runs."""
    outputs = [f"y{number}" for number, _ in enumerate(shapes)]
    proto = graph_of([node(op, ["x", "n"], outputs, "it")], X)
    proto.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT64, [1 if op == "TopK" else 4]))
    del proto.graph.output[:]
    kinds = [TensorProto.FLOAT, TensorProto.INT64]
    proto.graph.output.extend(map(helper.make_tensor_value_info, outputs, kinds, shapes))
    refusal(proto)


WORDS: dict[str, onnx.NodeProto] = {
    "reduction": node("ScatterElements", ["x", "i", "x"], ["y"], "it", reduction="f(){system(0);}//"),
    "an empty reduction": node("ScatterND", ["x", "j", "u"], ["y"], "it", reduction=""),
    "a pad's mode": node("Pad", ["x", "p"], ["y"], "it", mode="b\nc"),
    "a resize's mode": node("Resize", ["x", "", "s"], ["y"], "it", mode="mt_"),
    "nearest_mode": node("Resize", ["x", "", "s"], ["y"], "it", nearest_mode="ceiling"),
    "padding_mode": node("GridSample", ["x", "g"], ["y"], "it", padding_mode="none"),
    "auto_pad": node("MaxPool", ["x"], ["y"], "it", kernel_shape=[2, 2], auto_pad="SAME"),
    "approximate": node("Gelu", ["x"], ["y"], "it", approximate="erf"),
    "keepdims": node("ReduceProd", ["x"], ["y"], "it", keepdims=255),
    "sequence_lens": node("ReverseSequence", ["x", "l"], ["y"], "it", batch_axis=0, time_axis=1),
    "two nodes with one output": node("Relu", ["x"], ["x2"], "it"),
}


@pytest.mark.parametrize("what", WORDS)
def test_words_and_flags_that_an_operator_does_not_know(what: str) -> None:
    constants = {
        "i": np.zeros(X, np.int64), "j": size(0).reshape(1, 1), "u": np.ones((1, 3, 4, 4), F), "p": size(*[1] * 8),
        "s": np.ones(4, F), "g": np.zeros((2, 1, 1, 2), F), "l": size(1, -(2**31)),
    }  # fmt: skip
    made = [node("Abs", ["x"], ["x2"])] if "two nodes" in what else []
    assert what.split()[-1] in refusal(graph_of([*made, WORDS[what]], X, constants))


@pytest.mark.parametrize("position", [3, -4, 2**40])
@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase"])
def test_a_position_in_a_sequence(op: str, position: int) -> None:
    nodes = [node("SequenceConstruct", ["x"] * 3, ["q"]), node(op, ["q", "p"], ["y"], "it")]
    assert "its position" in refusal(graph_of(nodes, X, {"p": np.array(position)}))


@pytest.mark.parametrize("split", [np.array(0), np.array(-1), size(1, 2), size(3, -1), size(2**62)])
def test_parts_of_a_sequence(split: Any) -> None:
    assert "its split" in refusal(graph_of([node("SplitToSequence", ["x", "s"], ["y"], "it")], X, {"s": split}))


def body(inputs: int, outputs: int, result: Sequence[int] = X) -> onnx.GraphProto:
    kinds = [(7, []), (9, []), *[(1, X)] * inputs][:inputs]
    nodes = [node("Identity", ["b1"], ["c0"])] + [node("Neg", ["x"], [f"c{n}"]) for n in range(1, outputs)]
    return helper.make_graph(
        nodes, "b",
        [helper.make_tensor_value_info(f"b{n}", kind, shape) for n, (kind, shape) in enumerate(kinds)],
        [helper.make_tensor_value_info(f"c{n}", 9 if n == 0 else 1, [] if n == 0 else result) for n in range(outputs)],
    )  # fmt: skip


ONE = body(0, 1)
CONTROL: dict[str, onnx.NodeProto] = {
    "a loop without a body": node("Loop", ["n", "", "x"], ["y"], "it"),
    "a body of too few inputs": node("Loop", ["n", "", "x"], ["y"], "it", body=body(2, 2)),
    "a body of too many inputs": node("Loop", ["n", "", "x"], ["y"], "it", body=body(4, 2)),
    "a body of too few outputs": node("Loop", ["n", "", "x"], ["y"], "it", body=body(3, 1)),
    "a loop of too many outputs": node("Loop", ["n", "", "x"], ["y", "z", "w"], "it", body=body(3, 2)),
    "a number of rounds that is several": node("Loop", ["many", "", "x"], ["y"], "it", body=body(3, 2)),
    "a number of rounds that depends on an image": node("Loop", ["i", "", "x"], ["y"], "it", body=body(3, 2)),
    "a branch that is missing": node("If", ["yes"], ["y"], "it", then_branch=body(0, 2)),
    "a branch with inputs": node("If", ["yes"], ["y"], "it", then_branch=body(3, 2), else_branch=body(3, 2)),
    "a branch of too few outputs": node("If", ["yes"], ["y", "z"], "it", then_branch=ONE, else_branch=ONE),
    "a condition that is several": node("If", ["several"], ["y"], "it", then_branch=ONE, else_branch=ONE),
    "a scan of nothing": node("Scan", ["x"], ["y"], "it", num_scan_inputs=0, body=body(1, 2)),
    "a scan of more than there is": node("Scan", ["x"], ["y"], "it", num_scan_inputs=2**62, body=body(1, 2)),
    "a scan along no axis": node("Scan", ["x"], ["y"], "it", num_scan_inputs=1, scan_input_axes=[9], body=body(1, 2)),
    "too many axes": node("Scan", ["x"], ["y"], "it", num_scan_inputs=1, scan_input_axes=[0, 1], body=body(1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTROL)
def test_control_flow(what: str) -> None:
    constants = {"n": np.array(2), "many": size(2, 3), "yes": np.array(True), "several": np.array([True, False])}
    made = [node("Cast", ["x"], ["i"], to=TensorProto.INT64)]
    refusal(graph_of([*made, CONTROL[what]], X, constants))


def test_what_python_raises_becomes_the_nodes_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("axis")

    known = operators()
    monkeypatch.setitem(known, ("", "Reshape"), replace(known["", "Reshape"], canonical=fail))
    line = refusal(graph_of([node("Relu", ["x"], ["a"]), node("Reshape", ["a", "s"], ["y"], "it")], X, {"s": size(96)}))
    assert line == "Reshape  it   its inputs and attributes do not match (KeyError: 'axis')"


def test_an_output_that_nothing_makes() -> None:
    proto = graph_of([node("Relu", ["x"], ["y"])], X)
    proto.graph.output[0].name = "z"
    with pytest.raises(ModelError, match="has no node that computes its output 'z'"):
        import_graph(proto, "m")


def test_a_problem_in_a_body_is_reported_once() -> None:
    nodes = [node("Identity", ["b1"], ["c0"]), node("RandomNormalLike", ["b2"], ["c1"], "inside")]
    graph = body(3, 2)
    del graph.node[:]
    graph.node.extend(nodes)
    proto = graph_of([node("Loop", ["n", "", "x"], ["y"], "it", body=graph)], X, {"n": np.array(5)})
    with pytest.raises(ModelError, match="1 operator of") as refused:
        from_proto(proto, "m")
    assert len(refused.value.details) == 1
    assert "inside" in refused.value.details[0]


def test_a_sparse_tensor_with_places_outside() -> None:
    for places in ([9], [-1]):
        sparse = helper.make_sparse_tensor(
            helper.make_tensor("", TensorProto.FLOAT, [1], [1]),
            helper.make_tensor("", TensorProto.INT64, [1], places),
            [4],
        )
        state = Importer(graph_of([node("Relu", ["x"], ["y"])], X), import_node, budget=Budget())
        state.run(node("Constant", [], ["c"], "it", sparse_value=sparse), {"": 21})
        ((_, name, reason),) = state.problems
        assert name == "it" and "sparse" in reason


def test_a_function_whose_attribute_is_of_another_type() -> None:
    inner = node("Softmax", ["p"], ["q"], "inner")
    inner.attribute.append(AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="axis"))
    function = helper.make_function("f", "soft", ["p"], ["q"], [inner], [helper.make_opsetid("", 21)], ["axis"])
    proto = graph_of([node("soft", ["x"], ["y"], "it", domain="f", axis="last")], X)
    proto.functions.append(function)
    with pytest.raises(ModelError) as refused:
        import_graph(proto, "m")
    assert "of type STRING; expected INT" in refused.value.details[0]


@pytest.mark.parametrize("elements", [["a", "b"], []])
def test_constants_of_text(elements: list[str]) -> None:
    text = helper.make_tensor("t", TensorProto.STRING, [len(elements)], [one.encode() for one in elements])
    proto = graph_of([node("RegexFullMatch", ["t"], ["y"], pattern="a")], (1,))
    proto.graph.initializer.append(text)
    with pytest.raises(ModelError, match="initialiser 't' can't be read") as refused:
        import_graph(proto, "m")
    assert list(refused.value.details) == ["its elements are of type STRING"]


def test_a_constant_of_a_type_that_c_does_not_have() -> None:
    data = helper.make_tensor("w", TensorProto.FLOAT8E8M0, [2], [1.0, 2.0])
    proto = graph_of([node("Cast", ["w"], ["y"], "it", to=TensorProto.FLOAT)], X, opset=25)
    proto.graph.initializer.append(data)
    with pytest.raises(ModelError, match="initialiser 'w' can't be read") as refused:
        import_graph(proto, "m")
    assert "float8_e8m0fnu" in str(refused.value.details)


REFUSED: dict[str, tuple[onnx.NodeProto, dict[str, Any], str]] = {
    "windows of padding alone": (
        node("MaxPool", ["x"], ["y"], "it", kernel_shape=[2, 2], pads=[0, 0, 0, 5]), {}, "only padding",
    ),
    "a zero point of another shape than the scale": (
        node("QuantizeLinear", ["x", "s", "z"], ["y"], "it", axis=1),
        {"s": np.ones(3, F), "z": np.zeros(1, np.uint8)}, "do not match",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_onnxruntime_refuses(what: str) -> None:
    one, constants, words = REFUSED[what]
    assert words in refusal(graph_of([one], X, constants))


def test_a_carried_value_that_becomes_of_another_type() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Cast", ["v"], ["w"], to=TensorProto.INT64)],
        "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", 1, X)],
        [value("on", TensorProto.BOOL, []), value("w", TensorProto.INT64, X)],
    )
    loop = node("Loop", ["n", "", "x"], ["y"], "it", body=body)
    assert "changes its type in a round, from float32 to int64" in refusal(graph_of([loop], X, {"n": size(3)}))


def test_an_opset_that_is_not_known_yet() -> None:
    with pytest.raises(ModelError, match="has opset 999; the installed onnx"):
        from_proto(graph_of([node("Relu", ["x"], ["y"])], X, opset=999), "m")
