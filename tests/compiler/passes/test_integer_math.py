"""Integer arithmetic gives the bits of the float formulas."""

import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import DSP, HOST, M3, assert_same, pairs

from mtool.compiler.ir import Graph
from mtool.compiler.ir.node import WithEpilogue, expression_of
from mtool.compiler.ir.scalar import Requantize
from mtool.compiler.kernels.target import Target
from mtool.compiler.passes.fuse import fuse
from mtool.compiler.passes.integer_math import use_integer_math
from mtool.compiler.passes.layout import simplify_layout
from mtool.compiler.passes.lower import lower

F32 = np.float32


def parts(graph: Graph) -> list[str]:
    found = [expr for node in graph.nodes if (expr := expression_of(node)) is not None]
    return [part.op for expr in found for part in expr.walk()]


@pytest.mark.parametrize(("kind", "target"), [("int8", HOST), ("uint8", HOST), ("uint8", DSP), ("dead", HOST)])
def test_random_networks_stay_the_same(kind: str, target: Target) -> None:
    floats, left, forms = 0, 0, set()
    for before, after in pairs("use_integer_math", kind, 16 if target is HOST else 8, target):
        floats, left = floats + parts(before).count("quantize"), left + parts(after).count("quantize")
        forms |= {*parts(after)}
        assert_same(before, after)
    assert left < floats / 3 and {"requantize", "rescale_pair"} <= forms


def test_without_an_fpu_a_pair_may_be_off_by_one() -> None:
    for before, after in pairs("use_integer_math", "int8", 20, M3):
        assert_same(before, after, steps=3)  # one of each pair on the way


def test_floats_stay_the_same() -> None:
    for before, after in pairs("use_integer_math", "float", 20):
        assert_same(before, after)


def quantized(nodes: list, operands: int = 1, scale: float = 0.03) -> tuple[Graph, Graph]:  # type: ignore[type-arg]
    """Return the graph of x0, x1, … -> y between quantizations, before and after the pass, held to be the same."""
    constants = {"s": F32(scale), "z": np.int8(4), "os": F32(0.021), "oz": np.int8(-7), "c": F32(0.1), "h": F32(0.8)}
    ins = [f"x{number}" for number in range(operands)]
    steps = [helper.make_node("DequantizeLinear", [name, "s", "z"], [f"{name}f"]) for name in ins]
    steps += [*nodes, helper.make_node("QuantizeLinear", ["t", "os", "oz"], ["y"])]
    proto = model(steps, dict.fromkeys(ins, (np.int8, (1, 2, 16, 16))), ["y"], constants)
    before = fuse(simplify_layout(lower(networks.imported(proto))))
    after = use_integer_math(before, HOST)
    assert_same(before, after, calls=3)
    return before, after


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "Exp", "Elu", "HardSwish", "Abs", "Neg"])
def test_a_function_of_one_number_is_a_table(op: str) -> None:
    _, after = quantized([helper.make_node(op, ["x0f"], ["t"])])
    assert "quantize" not in parts(after) and op.lower() not in parts(after)


def test_a_table_has_an_entry_for_every_number() -> None:
    _, after = quantized([helper.make_node("Sigmoid", ["x0f"], ["t"])])
    (table,) = after.constants.values()
    real = 1 / (1 + np.exp(-(np.arange(-128, 128) - 4) * np.float64(F32(0.03))))
    np.testing.assert_array_equal(np.roll(table, 128), np.clip(np.rint(real / F32(0.021)) - 7, -128, 127))


def test_a_chain_of_functions_is_one_table() -> None:
    nodes = [helper.make_node("Sigmoid", ["x0f"], ["a"])]
    nodes += [
        helper.make_node("QuantizeLinear", ["a", "os", "oz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "os", "oz"], ["d"]),
    ]
    nodes += [helper.make_node("Tanh", ["d"], ["t"])]
    _, after = quantized(nodes)
    assert len(after.nodes) == 1 and len(after.constants) == 1


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_a_sum_of_two_is_a_pair(op: str) -> None:
    _, after = quantized([helper.make_node(op, ["x0f", "x1f"], ["t"])], 2)
    assert "rescale_pair" in parts(after) and "quantize" not in parts(after)


def test_what_needs_floats_keeps_them() -> None:
    nodes = [helper.make_node("Mul", ["x0f", "x1f"], ["m"]), helper.make_node("Add", ["m", "x0f"], ["t"])]
    _, after = quantized(nodes, 2)
    assert "quantize" in parts(after)


def test_both_sides_of_a_choice_are_quantized() -> None:
    nodes = [
        helper.make_node("Sigmoid", ["x1f"], ["a"]),
        helper.make_node("Max", ["x0f", "a", "x2f"], ["m"]),
        helper.make_node("Less", ["x0f", "x2f"], ["less"]),
        helper.make_node("Where", ["less", "m", "x1f"], ["t"]),
    ]
    _, after = quantized(nodes, 3)
    assert "quantize" not in parts(after) and {"where", "maximum"} <= {*parts(after)}


def test_a_condition_stays_a_comparison() -> None:
    """Helium has no vectors of a choice between conditions."""
    nodes = [
        helper.make_node("Less", ["x", "c"], ["less"]),
        helper.make_node("Where", ["less", "c", "h"], ["w"]),
        helper.make_node("Greater", ["w", "c"], ["more"]),
        helper.make_node("Where", ["more", "x", "h"], ["y"]),
    ]
    proto = model(nodes, {"x": (F32, (1, 8))}, ["y"], {"c": F32(0.1), "h": F32(0.8)})
    before = fuse(simplify_layout(lower(networks.imported(proto))))
    after = use_integer_math(before, HOST)
    assert_same(before, after)
    found = [part for node in after.nodes if (expr := expression_of(node)) is not None for part in expr.walk()]
    assert not [part for part in found if part.op == "where" and part.dtype.label == "bool"]


def test_bounds_clamp_after_rounding() -> None:
    nodes = [helper.make_node("Mul", ["x0f", "x1f"], ["m"]), helper.make_node("Clip", ["m", "c", "h"], ["t"])]
    before, after = quantized(nodes, 2)
    assert "maximum" in parts(before) and "maximum" not in parts(after)


def test_bounds_that_cross_keep_the_upper_one() -> None:
    nodes = [helper.make_node("Mul", ["x0f", "x1f"], ["m"])]
    nodes += [helper.make_node("Min", ["m", "c"], ["n"]), helper.make_node("Max", ["n", "h"], ["t"])]
    quantized(nodes, 2)


def test_a_quantization_to_its_own_grid_goes() -> None:
    grid = {"s": F32(0.03), "z": np.int8(4)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["g"]),
        helper.make_node("ReduceSum", ["g"], ["y"]),
    ]
    before = fuse(simplify_layout(lower(networks.imported(model(nodes, {"x": (np.int8, (5, 7))}, ["y"], grid)))))
    after = use_integer_math(before, HOST)
    assert "quantize" not in parts(after)
    assert_same(before, after)


def test_a_requantization_knows_whether_it_is_bounded() -> None:
    """The cheap rounding of the FPU is right up to 2^22 only."""
    for _, after in pairs("use_integer_math", "int8", 25):
        for node in after.nodes:
            for part in expr.walk() if (expr := expression_of(node)) is not None else ():
                if part.op == "requantize":
                    how: Requantize = part.value
                    factor = part.args[1]
                    scale = factor.value if factor.op == "const" else after.constants[node.inputs[factor.value]].max()
                    assert not how.bounded or WithEpilogue.of(node).acc_bound * scale < 2**22
                    assert how.bounded or WithEpilogue.of(node).acc_bound * scale > 2**21
