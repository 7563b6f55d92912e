"""A seeded part of scripts/fuzz_networks.py: random networks equal onnxruntime's bits, except for ties."""

import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mtool.plugins.onnx_backend.batch import CModel
from tests.fuzzing import compare, draw, environments, exact, shrink
from tests.fuzzing.compare import Network
from tests.fuzzing.networks import Net, draw_case

COUNT = 30
FIRST = 20


def _networks(first: int, count: int) -> list[Network]:
    found = []
    for number in range(first, first + count):
        try:
            model = draw.network(number, 1)[1]
            found.append(compare.prepared(number, model, in_bodies=draw.in_bodies(number, model, 1)))
        except ValueError:
            continue
    return found


def test_random_networks_are_right() -> None:
    networks = _networks(FIRST, COUNT)
    assert len(networks) > COUNT * 0.7
    report = compare.run(networks, environments.environment("host"))
    assert not report.finds, report.finds
    assert report.counts["networks"] == len(networks)


def test_bodies_of_every_kind_are_drawn() -> None:
    kinds = Counter()
    for network in _networks(0, 60):
        waiting = [network.model.graph] if network.flat is not None else []
        while waiting:
            for node in waiting.pop().node:
                inside = [attr.g for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH]
                waiting += inside
                kinds.update([node.op_type] * bool(inside))
    assert {"If", "Loop", "Scan"} <= set(kinds) and sum(kinds.values()) > 20, kinds


@pytest.mark.slow
def test_the_draw_has_every_family_and_most_operators() -> None:
    families, operators = Counter(), Counter()
    for number in range(250):
        try:
            family, model = draw.network(number)
        except ValueError:
            continue
        families[family] += 1
        operators.update({node.op_type for node in model.graph.node})
    assert set(families) == {"float", "qdq", "integer", "mixed"}
    wanted = {
        "If",
        "Loop",
        "Conv",
        "MatMul",
        "QLinearConv",
        "QLinearMatMul",
        "MatMulInteger",
        "QuantizeLinear",
        "Softmax",
        "MaxPool",
    }
    assert wanted <= set(operators) and len(operators) > 70


def _rounded(scale: float) -> onnx.ModelProto:
    """Return a model that rounds x / scale and keeps it as an output."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])]
    constants = [numpy_helper.from_array(np.float32(scale), "s"), numpy_helper.from_array(np.int8(3), "z")]
    kinds = [helper.make_tensor_value_info(*of) for of in (("x", 1, [3]), ("y", onnx.TensorProto.INT8, [3]))]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("seen", "ties", "wrong"), [((4, 5, 13), 0, 0), ((4, 6, 13), 1, 0), ((4, 5, 14), 0, 1), ((5, 5, 13), 0, 1)]
)
def test_a_tie_is_a_half_and_nothing_else(seen: tuple[int, ...], ties: int, wrong: int) -> None:
    x = np.array([0.49 * 2, 2.5 * 1.0, 10.4], np.float32)  # 0.98, a half, 10.4
    found = exact.check(_rounded(1.0), {"x": x}, {"y": np.array(seen, np.int8)})
    assert (len(found.ties), len(found.wrong)) == (ties, wrong)
    assert all("2.5" in str(tie) for tie in found.ties)


def test_a_difference_behind_a_tie_is_not_excused() -> None:
    """The second rounding is checked from what the first one gave, so that a tie there explains nothing here."""
    model = _rounded(1.0)
    grid = [numpy_helper.from_array(np.float32(0.25), "t"), numpy_helper.from_array(np.int8(0), "p")]
    model.graph.initializer.extend(grid)
    model.graph.node.append(helper.make_node("DequantizeLinear", ["y", "s", "z"], ["d"]))
    model.graph.node.append(helper.make_node("QuantizeLinear", ["d", "t", "p"], ["q"]))
    model.graph.output.append(helper.make_tensor_value_info("q", onnx.TensorProto.INT8, [3]))
    x = np.array([1.0, 2.5, 10.0], np.float32)
    y = np.array([4, 6, 13], np.int8)  # 2.5 is rounded up
    good, bad = np.array([4, 12, 40], np.int8), np.array([4, 8, 40], np.int8)
    found = exact.check(model, {"x": x}, {"y": y, "q": good})
    assert (len(found.ties), found.wrong) == (1, [])
    assert len(exact.check(model, {"x": x}, {"y": y, "q": bad}).wrong) == 1


@dataclass
class Replies:
    """A device that gives each set of outputs, by their names, set values."""

    values: Mapping[frozenset[str], Mapping[str, Any]]
    models: Sequence[CModel] = ()

    def run(self, number: int, inputs: Sequence[Any]) -> list[Any]:
        tensors = self.models[number].manifest.outputs
        values = self.values[frozenset(tensor.name for tensor in tensors)]
        return [np.asarray(values[tensor.name], np.int8) for tensor in tensors]

    def close(self) -> None:
        pass


def _judged(network: Network, values: Mapping[frozenset[str], Mapping[str, Any]]) -> compare.Report:
    environment = environments.Environment(environments.HOST, lambda models, _: Replies(values, models))
    return compare.run([network], environment)


def _twice_rounded() -> onnx.ModelProto:
    """Return a model that rounds x to q, half of that to y, and a half of that to z."""
    nodes = []
    for source, scale, name in (("x", "s", "q"), ("q.real", "t", "y"), ("y.real", "u", "z")):
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, "p"], [name]))
        nodes.append(helper.make_node("DequantizeLinear", [name, scale, "p"], [f"{name}.real"]))
    numbers = {"s": np.float32(1), "t": np.float32(2), "u": np.float32(4), "p": np.int8(0)}
    kinds = {"x": 1, "q": 3, "y": 3, "z": 3, "q.real": 1, "y.real": 1}
    types = {name: helper.make_tensor_value_info(name, kind, [2]) for name, kind in kinds.items()}
    between = [types[name] for name in kinds if name not in ("x", "z")]
    constants = [numpy_helper.from_array(np.asarray(data), name) for name, data in numbers.items()]
    graph = helper.make_graph(nodes[:-1], "g", [types["x"]], [types["z"]], constants, value_info=between)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _in_a_branch(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """Return a model whose first nodes are in a branch."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    inside, after = list(made.graph.node[:count]), list(made.graph.node[count:])
    name = inside[-1].output[0]
    types = {value.name: value for value in (*made.graph.value_info, *made.graph.output)}
    inside[-1].output[0] = f"inner.{name}"
    result = helper.make_tensor_value_info(f"inner.{name}", types[name].type.tensor_type.elem_type, [2])
    bodies = {branch: helper.make_graph(inside, branch, [], [result]) for branch in ("then_branch", "else_branch")}
    del made.graph.value_info[:], made.graph.node[:]
    limit = helper.make_node("Constant", [], ["limit"], value_float=0.0)
    total = helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0)
    condition = helper.make_node("Greater", ["total", "limit"], ["condition"])
    made.graph.node.extend([total, limit, condition, helper.make_node("If", ["condition"], [name], **bodies), *after])
    return made


X = np.array([5.1, 8.2], np.float32)  # 5 / 2 is a tie: y is 2 and z is 1, or y is 3 and z is 2
INTEGERS = {"q": [5, 8], "y": [2, 4], "z": [1, 2]}
OTHERS = {"q": [5, 8], "y": [3, 4], "z": [2, 2]}
ONE, ALL, OUTSIDE = frozenset("z"), frozenset("qyz"), frozenset("yz")


@pytest.mark.parametrize(
    ("kind", "ties", "z", "y"),
    [
        ("equal but for ties", 1, [2, 2], [3, 4]),
        ("wrong", 0, [2, 2], [2, 4]),
        ("wrong", 0, [2, 1], [3, 4]),
    ],
)
def test_a_tie_in_a_network_with_bodies_is_found_in_the_same_without(kind: str, ties: int, z: Any, y: Any) -> None:
    """Its integers in bodies are those without bodies, the others its own: y is the tie that explains z."""
    flat = _twice_rounded()
    network = compare.prepared(1, flat, {"x": X}, _in_a_branch(flat, 2))
    values = {ONE: {"z": z}, ALL: INTEGERS, OUTSIDE: {"y": y, "z": z}}
    report = _judged(network, values)
    assert (report.counts[kind], len(report.ties)) == (1, ties), report
    assert not any("no exact reference" in words for _, _, words in report.finds)


def test_a_tie_behind_bodies_needs_no_integers_of_their_inside() -> None:
    flat = _twice_rounded()
    del flat.graph.node[3:]  # y is the output
    flat.graph.output[0].name = "y"
    network = compare.prepared(1, flat, {"x": X}, _in_a_branch(flat, 2))
    values = {frozenset("y"): {"y": [3, 4]}, frozenset("qy"): INTEGERS}
    assert _judged(network, values).counts["equal but for ties"] == 1


def test_outputs_are_judged_as_they_were_without_integers_between_as_outputs() -> None:
    """A fused kernel is wrong, which no longer runs where what it skips is an output."""
    network = compare.prepared(1, _twice_rounded(), {"x": X})
    report = _judged(network, {ONE: {"z": [4, 2]}, ALL: INTEGERS})
    assert report.counts["wrong"] == 1
    assert "with the integers between as outputs" in report.finds[0][2]
    assert not _judged(network, {ONE: {"z": [2, 2]}, ALL: OTHERS}).finds


def test_an_integer_product_over_nothing_is_zero() -> None:
    """onnxruntime leaves it unwritten, so that no network has one; the reference must not be what is in its memory."""
    kinds = [("x", 3, [6, 0]), ("y", 6, [6, 3])]
    values = [helper.make_tensor_value_info(*kind) for kind in kinds]
    weights = numpy_helper.from_array(np.zeros((0, 3), np.int8), "w")
    graph = helper.make_graph([helper.make_node("MatMulInteger", "xw", "y")], "g", values[:1], values[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feeds, zeros = {"x": np.zeros((6, 0), np.int8)}, np.zeros((6, 3), np.int32)
    for _ in range(20):
        assert not exact.check(model, feeds, {"y": zeros}).wrong
    assert exact.check(model, feeds, {"y": zeros + 1}).wrong


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_no_integer_product_over_nothing_is_drawn(op: str) -> None:
    net = Net(random.Random(0))
    for shape in ((6, 0), (2, 6, 0), (1, 0, 3, 3)):
        net.input(np.uint8, shape)
    with pytest.raises(ValueError, match="no weights"):
        draw_case(net, op)


def test_the_scale_of_nothing_is_not_a_find() -> None:
    """ONNX's formula gives a scale of 0, and onnxruntime 1."""
    net = Net(random.Random(0))
    net.add("DynamicQuantizeLinear", [net.input(np.float32, (6, 0)).name], 3)
    report = compare.run([compare.prepared(1, net.model())], environments.environment("O0"))
    assert report.counts["equal but for the scale of zeros"] == 1, report


@pytest.mark.parametrize(("x", "scale", "wrong"), [(0, 0, 0), (0, 1, 0), (0, 0.5, 1), (51, 0.2, 0), (51, 1, 1)])
def test_the_scale_of_zeros_is_zero_or_one(x: float, scale: float, wrong: int) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "point"])
    values = [helper.make_tensor_value_info(*kind) for kind in (("x", 1, [2]), ("y", 2, [2]), ("scale", 1, []),
                                                                ("point", 2, []))]  # fmt: skip
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    codes = np.full(2, np.rint(x / (scale or 1)), np.uint8)
    seen = {"y": codes, "scale": np.float32(scale), "point": np.uint8(0)}
    found = exact.check(model, {"x": np.full(2, x, np.float32)}, seen)
    assert (len(found.wrong), len(found.scales_of_zeros)) == (wrong, int(x == 0 and not wrong))


def test_shrinking_keeps_the_same_network_without_bodies() -> None:
    flat = _twice_rounded()
    network = compare.prepared(1, flat, {"x": X}, _in_a_branch(flat, 2))
    small = shrink.shrunk(network, lambda smaller: any(node.op_type == "If" for node in smaller.model.graph.node))
    assert small.flat is not None and len(small.flat.graph.node) == 2
    assert [value.name for value in small.model.graph.output] == ["q.real"]
    again = compare.by_onnxruntime(small.flat, small.inputs)
    assert not compare.differences(small.outputs, again)


def test_shrinking_leaves_the_node_that_fails() -> None:
    network = next(n for n in _networks(0, 60) if 6 < len(n.model.graph.node) < 30)
    wanted = network.model.graph.node[len(network.model.graph.node) // 2].op_type

    def fails(smaller: Network) -> bool:
        return any(node.op_type == wanted for node in smaller.model.graph.node)

    small = shrink.shrunk(network, fails)
    assert [node.op_type for node in small.model.graph.node] == [wanted]
    again = compare.by_onnxruntime(small.model, small.inputs)
    assert all(
        np.array_equal(again[name], data, equal_nan=data.dtype.kind == "f") for name, data in small.outputs.items()
    )


POWERPC = shutil.which("qemu-ppc") and shutil.which("powerpc-linux-gnu-gcc")


@pytest.mark.skipif(not POWERPC, reason="qemu-ppc or powerpc-linux-gnu-gcc is not installed")
def test_a_big_endian_machine_gives_the_same() -> None:
    report = compare.run(_networks(FIRST, 8), environments.environment("powerpc"))
    assert not report.finds, report.finds
