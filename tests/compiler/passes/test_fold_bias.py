import networks
import numpy as np
import pytest
from graphs import HOST, model
from onnx import helper
from single_pass import assert_same, pairs, results

from mtool.compiler.ir import Graph
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.passes.fold_constants import fold_bias
from mtool.compiler.passes.fuse import fuse
from mtool.compiler.passes.integer_math import use_integer_math
from mtool.compiler.passes.layout import simplify_layout
from mtool.compiler.passes.lower import lower

F32 = np.float32


def sums(graph: Graph) -> int:
    """Return how many sums the epilogues have."""
    kernels = [node for node in graph.nodes if node.op in ("conv2d", "dense")]
    return sum(part.op == "add" for node in kernels for part in WithEpilogue.of(node).epilogue.walk())


def test_random_networks_stay_the_same() -> None:
    for before, after in pairs("fold_bias", "float", 40):
        assert_same(before, after, exact=False)
    for before, after in pairs("fold_bias", "int8", 20):
        assert_same(before, after, steps=1)


def network(op: str, *addends: np.ndarray) -> Graph:  # type: ignore[type-arg]
    """Return relu(product + addends) with a bias, fused."""
    rng = np.random.default_rng(0)
    shape = (1, 2, 2, 3) if op == "Conv" else (5, 2)
    constants = {"w": rng.uniform(-1, 1, (3, 2, 1, 1) if op == "Conv" else (2, 3)).astype(F32)}
    constants |= {"b": rng.uniform(-1, 1, 3).astype(F32)}
    nodes = [helper.make_node(op, ["x", "w", "b"], ["s"])]
    for number, addend in enumerate(addends):
        constants[f"a{number}"] = addend
        nodes.append(helper.make_node("Add", ["s" + "n" * number, f"a{number}"], ["s" + "n" * (number + 1)]))
    nodes.append(helper.make_node("Relu", ["s" + "n" * len(addends)], ["y"]))
    return fuse(simplify_layout(lower(networks.imported(model(nodes, {"x": (F32, shape)}, ["y"], constants)))))


@pytest.mark.parametrize(
    ("op", "shape"), [("Conv", (1,)), ("Conv", ()), ("Gemm", (3,)), ("Gemm", (1, 3)), ("Gemm", ())]
)
def test_a_constant_a_channel_goes_into_the_bias(op: str, shape: tuple[int, ...]) -> None:
    graph = network(op, np.random.default_rng(1).uniform(-2, 2, shape).astype(F32))
    folded = fold_bias(graph)
    assert sums(graph) == 1 and sums(folded) == 0
    assert_same(graph, folded, exact=False)


def test_one_addend_after_the_other() -> None:
    graph = network("Gemm", F32([1, 2, 3]), F32(0.5), F32([[3, 1, 2]]))
    assert sums(graph) == 3 and sums(fold_bias(graph)) == 0
    assert_same(graph, fold_bias(graph), exact=False)


@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (1, 1, 1, 3), (1, 1, 2, 1)])
def test_an_addend_of_pixels_stays(shape: tuple[int, ...]) -> None:
    graph = network("Conv", np.random.default_rng(1).uniform(-2, 2, shape).astype(F32))
    assert sums(fold_bias(graph)) == 1
    assert_same(graph, fold_bias(graph))


def test_a_sum_beside_the_accumulator_itself_stays() -> None:
    """relu((acc + a) * acc) needs both."""
    constants = {"w": np.ones((3, 2, 1, 1), F32), "a": F32(1.5)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["s"]),
        helper.make_node("Mul", ["s", "c"], ["y"]),
    ]
    proto = model(nodes, {"x": (F32, (1, 2, 2, 3))}, ["y"], constants)
    graph = fuse(simplify_layout(lower(networks.imported(proto))))
    assert_same(graph, fold_bias(graph))


@pytest.mark.parametrize(
    ("steps", "stays"),
    [(40, False), (-40, False), (40.4, True), (2.0**31, True), ([3, 40, -5], False), ([3, 40.4, -5], True)],
)
def test_whole_steps_of_integers_go_into_the_bias(steps: float | list[float], stays: bool) -> None:
    scale, w_scale = F32(0.5), F32(0.25)
    constants = {
        "s": scale, "z": np.int8(1), "ws": w_scale, "wz": np.int8(0),
        "w": np.arange(-3, 3, dtype=np.int8).reshape(2, 3),
        "a": F32(steps) * scale * w_scale, "ys": F32(0.75), "yz": np.int8(-4),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["t"]),
        helper.make_node("QuantizeLinear", ["t", "ys", "yz"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int8, (2, 2))}, ["y"], constants)
    graph = fuse(simplify_layout(lower(networks.imported(proto))))
    folded = fold_bias(graph)
    assert sums(graph) == 1 and sums(folded) == stays
    (before,), (after,) = ([n for n in g.nodes if n.op == "dense"] for g in (graph, folded))
    assert WithEpilogue.of(after).acc_bound >= WithEpilogue.of(before).acc_bound + (0 if stays else 40)
    assert_same(graph, folded, calls=20)


def test_as_many_numbers_along_another_axis_are_not_a_bias() -> None:
    """Of three channels and three columns, a number for each column."""
    graph = network("Conv", F32([1, -2, 3]))
    folded = fold_bias(graph)
    assert sums(graph) == sums(folded) == 1
    assert_same(graph, folded, exact=False)


@pytest.mark.parametrize("op", ["GreaterOrEqual", "Greater", "Less", "LessOrEqual"])
def test_what_a_sum_is_compared_with_goes_into_the_bias(op: str) -> None:
    """For all sums; 0.1 and 0.3 are not multiples of one another in float32, and some channels' scales are negative."""
    scales, x = F32([0.1, -0.1, 0.003, 1e-30, 0.1, 3e37]), np.arange(-128, 128, dtype=np.int8)[:, None]
    constants = {
        "s": F32(1), "z": np.int8(0), "ws": np.abs(scales), "wz": np.zeros(6, np.int8), "m": np.sign(scales),
        "w": np.int8([[1], [-1], [127], [1], [3], [-1]]), "a": F32([-0.3, 0.3, 0.7, 0, 1e9, 0]), "zero": F32(0),
        "yes": F32(1), "no": F32(-1),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Gemm", ["xf", "wf"], ["g"], transB=1),
        helper.make_node("Mul", ["g", "m"], ["n"]),
        helper.make_node("Add", ["n", "a"], ["t"]),
        helper.make_node(op, ["t", "zero"], ["c"]),
        helper.make_node("Where", ["c", "yes", "no"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["y"]),
    ]
    before = fuse(simplify_layout(lower(networks.imported(model(nodes, {"x": (np.int8, x.shape)}, ["y"], constants)))))
    after = use_integer_math(fold_bias(before), HOST)
    (node,) = (node for node in after.nodes if node.op == "conv2d")
    assert {part.dtype.is_float for part in WithEpilogue.of(node).epilogue.walk()} == {False}
    (old,), (new,) = (results(graph, [{"x": x}]) for graph in (before, after))
    np.testing.assert_array_equal(new[0], old[0])
    assert {*np.unique(new[0])} == {-1, 1}
