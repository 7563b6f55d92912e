import math

import numpy as np
import pytest

from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.expr import Reduction, acc, axis, broadcast_index, call, const, identity, load
from mtool.compiler.ir.scalar import FUNCTIONS, Requantize, Text, evaluate, largest, literal, render


def test_integer_index_arithmetic_folds() -> None:
    index = call("add", call("mul", axis(0), const(1, DType.INT32)), const(0, DType.INT32))
    assert index == axis(0)
    assert call("add", const(2, DType.INT32), const(3, DType.INT32)).value == 5


def test_evaluate_broadcasts_and_reduces() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    row = np.array([10, 20, 30], np.float32)
    index = broadcast_index((3,), (2, 3))
    total = call("add", load(0, DType.FLOAT32, identity(2)), load(1, DType.FLOAT32, index))
    np.testing.assert_array_equal(evaluate(total, [data, row], (2, 3)), data + row)
    body = load(0, DType.FLOAT32, (axis(0), axis(1)))
    mean = Expr("reduce", DType.FLOAT32, (body,), Reduction("add", ((1, 3),)))
    np.testing.assert_array_equal(evaluate(mean, [data], (2,)), data.sum(axis=1))


@pytest.mark.parametrize("value", [0.1, 1e-30, 3.0, -2.5, float("inf"), 16777216.0, 1 / 3])
def test_float_literals_round_trip(value: float) -> None:
    text = literal(np.float32(value).item(), DType.FLOAT32).c
    back = float("inf") if text == "INFINITY" else float(text.rstrip("f"))
    assert np.float32(back) == np.float32(value)


def test_c_text_keeps_the_order_of_operations() -> None:
    x = Expr("acc", DType.FLOAT32)
    one = const(1, DType.FLOAT32)
    product = call("mul", call("add", x, one), call("sub", x, call("sub", x, one)))
    assert render(product, lambda part: Text("x")).c == "(x + 1.0f) * (x - (x - 1.0f))"


def test_logical_results_are_stored_as_bytes() -> None:
    """Without the conversion gcc warns where it turns `!(a >= b)` into a comparison of its own."""
    x = Expr("acc", DType.FLOAT32)
    above = call("greater_equal", x, const(1, DType.FLOAT32))
    for made in (above, call("not", above), call("xor", above, call("not", above))):
        assert render(made, lambda part: Text("x")).c.startswith("(uint8_t)")


def test_requantize_rounds_ties_to_even_and_saturates() -> None:
    expr = Expr(
        "requantize", DType.INT8, (Expr("acc", DType.INT32), const(0.5, DType.FLOAT32)), Requantize(3, -128, 127, True)
    )
    total = np.array([1, 3, 5, -1, 1000, -1000])
    assert evaluate(expr, [], (6,), total).tolist() == [3, 5, 5, 3, 127, -128]


def test_every_scalar_function_has_meaning_and_text() -> None:
    assert all(callable(function.meaning) and callable(function.text) for function in FUNCTIONS.values())


def shared(levels: int) -> Expr:
    """Return x to the power of 2^levels, each square of one shared part."""
    expr = load(0, DType.FLOAT64, identity(1))
    for _ in range(levels):
        expr = Expr("mul", DType.FLOAT64, (expr, expr))
    return expr


def test_shared_parts_are_visited_once() -> None:
    expr = shared(60)  # 2^61 nodes, were each part written as often as it stands there
    assert (expr.size, expr.depth) == (2**61 - 1 + 2**60, 62)
    visits = expr.fold(lambda node, args: 1 + sum(args))
    assert visits == expr.size
    seen: list[str] = []
    assert expr.rewrite(lambda node: (seen.append(node.op), node)[1]) is expr
    assert len(seen) == 62
    np.testing.assert_allclose(evaluate(expr, [np.ones(3)], (3,)), 1)
    assert hash(expr) == hash(shared(60)) and expr != shared(59)


def test_ten_thousand_levels_need_no_recursion() -> None:
    expr = Expr("acc", DType.FLOAT32)
    for _ in range(10_000):
        expr = Expr("neg", DType.FLOAT32, (expr,))
    assert sum(1 for _ in expr.walk()) == expr.depth == expr.size == 10_001
    doubled = expr.rewrite(lambda node: Expr("abs", node.dtype, node.args) if node.op == "neg" else node)
    assert evaluate(doubled, [], (2,), np.array([-1.0, 2.0])).tolist() == [1, 2]
    assert render(expr, lambda part: Text("x")).c.count("-") == 10_000


def test_constants_are_equal_by_their_bits() -> None:
    zero, negative, nan = (const(value, DType.FLOAT32) for value in (0.0, -0.0, float("nan")))
    assert zero != negative and nan == const(float("nan"), DType.FLOAT32)
    assert const(1, DType.INT32) == const(1, DType.INT32) != const(1, DType.INT64)


def test_a_walk_may_leave_out_indices() -> None:
    table = load(0, DType.FLOAT32, (call("add", axis(0), const(1, DType.INT32)),))
    ops = [part.op for part in call("exp", table).walk(indices=False)]
    assert ops == ["exp", "load"]


def test_the_low_bits_of_a_sum_that_wraps_are_cast_once() -> None:
    total = Expr("add", DType.INT32, (Expr("acc", DType.INT32), const(25, DType.INT32)))
    narrow = Expr("cast", DType.INT8, (total,))
    assert render(narrow, lambda leaf: Text("acc" if leaf.op == "acc" else "25")).c == (
        "(int8_t)((uint32_t)acc + (uint32_t)25)"
    )


def test_a_magnitude_is_bounded_where_nothing_may_be_nan() -> None:
    byte, real = load(0, DType.INT8, (axis(0),)), load(1, DType.FLOAT32, (axis(0),))
    wide = call("cast", call("cast", byte, dtype=DType.INT32) - 3, dtype=DType.FLOAT32)
    scaled = call("mul", wide, const(0.5, DType.FLOAT32))
    assert largest(scaled) == 65.5
    assert largest(call("sub", scaled, scaled)) == largest(
        Expr("acc", DType.FLOAT32, (call("add", scaled, scaled),), "x0")
    )
    unknown = (real, acc(DType.FLOAT32), const(math.nan, DType.FLOAT32), call("div", scaled, scaled))
    for one in (*unknown, call("cast", wide, dtype=DType.FLOAT16)):
        assert largest(call("add", one, one)) == math.inf
