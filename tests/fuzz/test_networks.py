"""A seeded part of scripts/fuzz_networks.py: random networks are onnxruntime's to the bit, but for ties."""

import shutil
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from scripts.fuzzing import compare, draw, environments, exact, shrink
from scripts.fuzzing.compare import Network

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
