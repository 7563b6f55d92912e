"""Long float sums against float64: the error is no larger than onnxruntime's."""

from pathlib import Path

import amount
import numpy as np
import pytest
import sums
from graphs import compiled, model, run_c
from onnx import helper

F = np.float32
FEW = [
    ("LayerNormalization", "random", 5760, "host"),
    ("CumSum", "large mean", 5760, "host"),
    ("SVMRegressor", "random", 1000, "host"),
    ("Gemm", "random", 1000, "m4"),
    ("Conv", "random", 1000, "m55"),
]
MANY = [
    (name, kind, length, target)
    for name, case in sums.CASES.items()
    for kind in case.data
    for length in (1000, 10_000)
    for target in (sums.TARGETS if name in ("Gemm", "Conv", "GlobalAveragePool") else ("host",))
]


@pytest.mark.parametrize(("name", "kind", "length", "target"), MANY if amount.IS_ALL else FEW)
def test_a_long_sum_is_off_by_no_more_than_onnxruntimes(name: str, kind: str, length: int, target: str) -> None:
    worst = sums.largest_errors(name, kind, length, amount.of(200, 30), {target: sums.TARGETS[target]})
    # the last bit of an exponential or a quotient is chance
    assert worst[target] <= 1.05 * worst["onnxruntime"]


SHAPES = {
    (2, 16): [1],
    (2, 17): [1],
    (2, 255, 3): [1],
    (3, 7, 11): [1, 2],
    (5, 40, 3): [1, 2],
    (33, 9, 2): [0, 1],
    (2, 3, 1): [1],
}


def test_each_element_is_in_a_sum_once_and_infinities_stay(tmp_path: Path) -> None:
    nodes, feeds, constants = [], {}, {}
    for number, (shape, axes) in enumerate(SHAPES.items()):
        nodes.append(helper.make_node("ReduceSum", [f"x{number}", f"a{number}"], [f"y{number}"], keepdims=0))
        feeds[f"x{number}"] = np.random.default_rng(number).integers(-9, 9, shape).astype(F)
        constants[f"a{number}"] = np.array(axes, np.int64)
    feeds["x1"][0, 5], feeds["x1"][1, 3:5] = np.inf, (np.inf, -np.inf)
    inputs = {name: (F, data.shape) for name, data in feeds.items()}
    made = run_c(compiled(model(nodes, inputs, [f"y{n}" for n in range(len(nodes))], constants, 18)), feeds, tmp_path)
    for result, data, axes in zip(made, feeds.values(), SHAPES.values(), strict=True):
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(result, data.astype(np.float64).sum(tuple(axes)))
