import numpy as np
import pytest

from mtool.ir import DType, Expr
from mtool.ir.expr import Reduction, axis, broadcast_index, call, const, identity, load
from mtool.ir.scalar import FUNCTIONS, Requantise, Text, evaluate, literal, render


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


def test_requantise_rounds_ties_to_even_and_saturates() -> None:
    expr = Expr(
        "requantise", DType.INT8, (Expr("acc", DType.INT32), const(0.5, DType.FLOAT32)), Requantise(3, -128, 127, True)
    )
    total = np.array([1, 3, 5, -1, 1000, -1000])
    assert evaluate(expr, [], (6,), total).tolist() == [3, 5, 5, 3, 127, -128]


def test_every_scalar_function_has_meaning_and_text() -> None:
    assert all(callable(function.meaning) and callable(function.text) for function in FUNCTIONS.values())
