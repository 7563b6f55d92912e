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


def test_each_integer_is_in_a_reduction_once(tmp_path: Path) -> None:
    feeds = {f"x{size}": np.random.default_rng(size).integers(-99, 99, (2, size)).astype(np.int32) for size in (9, 12)}
    kinds = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}
    made = [(name, op) for name in feeds for op in kinds]
    nodes = [helper.make_node(op, [name, "axes"], [f"{op}_{name}"]) for name, op in made]
    inputs = {name: (np.int32, data.shape) for name, data in feeds.items()}
    outputs = [node.output[0] for node in nodes]
    proto = model(nodes, inputs, outputs, {"axes": np.array([1], np.int64)}, 18)
    for (name, op), result in zip(made, run_c(compiled(proto), feeds, tmp_path), strict=True):
        np.testing.assert_array_equal(result, kinds[op](feeds[name], axis=1, keepdims=True))
