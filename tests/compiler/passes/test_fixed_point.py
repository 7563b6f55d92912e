import amount
import numpy as np
import pytest
from single_pass import HOST, M3, assert_same, pairs

from mtool.compiler.ir import Graph
from mtool.compiler.ir.node import WithEpilogue, expression_of
from mtool.compiler.ir.scalar import FixedRequantize
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.passes.integer_math import best_shift, use_fixed_point


def parts(graph: Graph) -> list[str]:
    found = [expr for node in graph.nodes if (expr := expression_of(node)) is not None]
    return [part.op for expr in found for part in expr.walk()]


@pytest.mark.slow
def test_random_networks_are_the_same() -> None:
    """Multipliers of 32 bits are chosen so that no accumulator gives another integer."""
    rewritten = 0
    for kind in ("int8", "dead"):
        for before, after in pairs("use_fixed_point", kind, 10, M3):
            rewritten += parts(after).count("requantize_fixed")
            assert "requantize" not in parts(after) or "requantize" in parts(before)
            assert_same(before, after)
            for node in after.nodes:
                if node.op == "loop":  # float scales are left behind
                    assert Loop.of(node).expr.operands() == {*range(len(node.inputs))}
    assert rewritten > amount.of(30, 15)


def test_with_an_fpu_nothing_changes() -> None:
    for before, after in pairs("use_fixed_point", "int8", 5):
        assert after is before and use_fixed_point(before, HOST) is before


def test_nothing_leaves_its_bits() -> None:
    for _, after in pairs("use_fixed_point", "int8", 12, M3):
        for node in after.nodes:
            for part in expr.walk() if (expr := expression_of(node)) is not None else ():
                if part.op != "requantize_fixed":
                    continue
                how: FixedRequantize = part.value
                factor = part.args[1]
                data = np.atleast_1d(
                    factor.value if factor.op == "const" else after.constants[node.inputs[factor.value]]
                )
                assert how.shift >= 1 and data.astype(np.int64).max() < 2**31
                high_word = (WithEpilogue.of(node).acc_bound * int(data.max())) >> 32
                assert high_word + abs(how.offset) < 2**31
                assert how.even or WithEpilogue.of(node).acc_bound * int(data.max()) < 2**62


def test_a_shift_keeps_every_bit_that_there_is() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        scale, bound = float(2 ** rng.uniform(-20, -1)), int(2 ** rng.uniform(8, 30))
        shift = best_shift(scale, bound)
        if shift is not None:
            multiplier = round(scale * 2 ** (32 + shift))
            assert multiplier < 2**31 and (multiplier * bound) >> 32 < 2**30
            wider = round(scale * 2 ** (33 + shift))
            assert wider >= 2**30 or (wider * bound) >> 32 >= 2**28 or shift >= 20
    assert best_shift(4.0, 2**30) is None
