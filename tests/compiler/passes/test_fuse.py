"""Fusion changes no bit, terminates, and keeps expressions small enough for C compilers."""

import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import assert_same, ops, pairs

from mtool.compiler.ir import Graph
from mtool.compiler.ir.node import expression_of
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.passes.fuse import DEEPEST, LARGEST, OPERANDS, fuse
from mtool.compiler.passes.layout import simplify_layout
from mtool.compiler.passes.lower import lower

F32 = np.float32


@pytest.mark.product(2)
@pytest.mark.parametrize(("kind", "count"), [("float", 50), ("long", 15), ("int8", 25), ("uint8", 10)])
def test_random_networks_stay_the_same(kind: str, count: int) -> None:
    loops = left = 0
    for before, after in pairs("fuse", kind, count):
        loops, left = loops + ops(before).count("loop"), left + ops(after).count("loop")
        assert_same(before, after)
        assert {origin for node in after.nodes for origin in node.origins} == {
            origin for node in before.nodes for origin in node.origins if node.op != "view"
        } | {origin for node in after.nodes for origin in node.origins}
    assert left < loops


def test_fused_graphs_do_not_change() -> None:
    for kind in ("float", "int8"):
        for _, after in pairs("fuse", kind, 15):
            assert [str(node) for node in fuse(after).nodes] == [str(node) for node in after.nodes]


def fused(nodes, inputs, outputs, constants=None) -> tuple[Graph, Graph]:  # type: ignore[no-untyped-def]
    before = simplify_layout(lower(networks.imported(model(nodes, inputs, outputs, constants))))
    after = fuse(before)
    assert_same(before, after)
    for node in after.nodes:
        expr = expression_of(node)
        if expr is not None:
            assert expr.size <= LARGEST and expr.depth <= DEEPEST and len(node.inputs) <= OPERANDS
    return before, after


@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_a_chain_that_squares_what_it_reads_grows_by_what_it_has(op: str) -> None:
    nodes = [helper.make_node(op, [f"v{n}", f"v{n}"], [f"v{n + 1}"]) for n in range(200)]
    _, after = fused(nodes, {"v0": (F32, (4,))}, ["v200"])
    assert sum(Loop.of(node).expr.size for node in after.nodes) < 200 * 20


def test_a_long_chain_is_a_few_loops() -> None:
    ops = ["Relu", "Neg", "Sigmoid", "Abs"]
    nodes = [helper.make_node(ops[n % 4], [f"v{n}"], [f"v{n + 1}"]) for n in range(400)]
    _, after = fused(nodes, {"v0": (F32, (4,))}, ["v400"])
    assert 400 / DEEPEST <= len(after.nodes) <= 400 / (DEEPEST - 8)


def test_paddings_of_paddings_do_not_multiply() -> None:
    """Where an element lies is written once for each way to read it."""
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    nodes = [helper.make_node("Pad", [f"v{n}", "pads"], [f"v{n + 1}"], mode="reflect") for n in range(12)]
    _, after = fused(nodes, {"v0": (F32, (1, 1, 3, 3))}, ["v12"], {"pads": pads})
    assert sum(Loop.of(node).expr.size for node in after.nodes) < 12 * LARGEST


def test_a_sum_of_hundreds_has_few_parameters() -> None:
    inputs = {f"x{n}": (F32, (2,)) for n in range(150)}
    _, after = fused([helper.make_node("Sum", [*inputs], ["y"])], inputs, ["y"])
    assert len(after.nodes) >= 150 / OPERANDS


def test_what_two_read_is_computed_once_unless_it_is_cheap() -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Neg", ["t"], ["a"]),
        helper.make_node("Abs", ["t"], ["b"]),
    ]
    _, after = fused(nodes, {"x": (F32, (4,))}, ["a", "b"])
    assert sum("tanh" in Loop.of(node).label for node in after.nodes) == 1


def test_an_output_is_not_taken_away() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    _, after = fused(nodes, {"x": (F32, (4,))}, ["a", "b"])
    assert len(after.nodes) == 2
    conv = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"])]
    weights = {"w": np.ones((2, 2, 1, 1), F32)}
    _, after = fused(conv, {"x": (F32, (1, 2, 3, 3))}, ["c", "r"], weights)
    assert "loop" in ops(after)


def test_a_kernel_waits_for_what_its_epilogue_reads() -> None:
    """The sum goes into the later convolution, when the earlier one's result is there."""
    rng = np.random.default_rng(1)
    weights = {name: rng.uniform(-1, 1, (2, 2, 1, 1)).astype(F32) for name in "vw"}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("Conv", ["x", "w"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    _, after = fused(nodes, {"x": (F32, (1, 2, 3, 3))}, ["y"], weights)
    assert ops(after).count("conv2d") == 2 and "loop" not in ops(after)


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax"])
def test_a_reduction_is_fused_element_by_element_only(op: str) -> None:
    nodes = [
        helper.make_node(op, ["x"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Exp", ["m"], ["e"]),
        helper.make_node("Sub", ["x", "e"], ["y"]),
    ]
    _, after = fused(nodes, {"x": (F32, (3, 4))}, ["y"])
    assert len(after.nodes) == 2


def test_what_a_reduction_reads_often_is_computed_once() -> None:
    """Each element of a product's operand is read for every row of the other."""
    nodes = [helper.make_node("Tanh", ["a"], ["t"]), helper.make_node("MatMul", ["t", "b"], ["y"])]
    before, after = fused(nodes, {"a": (F32, (3, 4)), "b": (F32, (4, 5))}, ["y"])
    assert len(after.nodes) == len(before.nodes) == 2


def test_a_quantization_stays_with_what_makes_its_floats() -> None:
    """Integers are stored, also where one of its operands is of integers."""
    grid = {"s": F32(0.05), "z": np.int8(2)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["f"]),
        helper.make_node("Sub", ["x", "f"], ["d"]),
        helper.make_node("QuantizeLinear", ["d", "s", "z"], ["i"]),
        helper.make_node("Sub", ["i", "w"], ["y"]),
    ]
    grid["w"] = np.int8([3, -4, 5])
    _, after = fused(nodes, {"x": (F32, (4, 3)), "q": (np.int8, (4, 3))}, ["y"], grid)
    assert [after.types[node.outputs[0]].dtype.label for node in after.nodes] == ["int8", "int8"]
