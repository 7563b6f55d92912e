"""LSTM and GRU with 8-bit weights: in QDQ form, and DynamicQuantizeLSTM; against onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import HOST, compiled, model, reference, run_c
from onnx import helper

RNG = np.random.default_rng(21)
F = np.float32
STEPS, SIZE, HIDDEN = 6, 5, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@pytest.fixture(autouse=True)
def the_same_numbers_in_any_order_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(21))


def codes(dtype: Any, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def qdq(op: str, dtype: Any, axis: int | None, directions: int, **attrs: Any) -> tuple[Any, dict[str, Any]]:
    rows = GATES[op] * HIDDEN
    count = {None: (), 0: (directions,), 1: (rows,)}[axis]
    constants = {
        "w": codes(dtype, directions, rows, SIZE), "ws": (RNG.random(count) * 0.004 + 0.002).astype(F),
        "r": codes(dtype, directions, rows, HIDDEN), "rs": (RNG.random(count) * 0.004 + 0.002).astype(F),
        "z": np.full(count, 0 if dtype is np.int8 else 130, dtype),
        "b": (RNG.standard_normal((directions, 2 * rows)) / 4).astype(F), "xs": F(0.02), "xz": np.int8(5),
        "ys": F(0.008), "yz": np.int8(-3),
    }  # fmt: skip
    kept = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wf"], **kept),
        helper.make_node("DequantizeLinear", ["r", "rs", "z"], ["rf"], **kept),
        helper.make_node(op, ["xf", "wf", "rf", "b"], ["yf", "h"], hidden_size=HIDDEN, **attrs),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int8, (STEPS, 2, SIZE))}, ["y", "h"], constants)
    return proto, {"x": codes(np.int8, STEPS, 2, SIZE)}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("LSTM", {}), ("LSTM", {"direction": "bidirectional"}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}),
        ("RNN", {}),
    ],
)  # fmt: skip
@pytest.mark.product(3)
def test_quantized_weights_stay_integers(op: str, attrs: Any, axis: int | None, dtype: Any, tmp_path: Path) -> None:
    proto, feeds = qdq(op, dtype, axis, 2 if attrs.get("direction") else 1, **attrs)
    plan = compiled(proto, HOST)
    sizes = [
        plan.graph.types[value] for step in plan.steps for value in step.node.inputs if value in plan.graph.constants
    ]
    assert sum(kind.dtype.numpy == dtype and len(kind.shape) == 3 for kind in sizes) == 2
    assert not any(kind.dtype.is_float and len(kind.shape) == 3 for kind in sizes), "floats of the weights' size remain"
    (y, h), (their_y, their_h) = run_c(plan, feeds, tmp_path), reference(proto, feeds)
    np.testing.assert_allclose(h, their_h, rtol=1e-4, atol=1e-5)
    assert np.abs(y.astype(int) - their_y).max() <= 1 and (y != their_y).mean() < 0.02


@pytest.mark.product(2)
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("per_row", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_dynamic_quantize_lstm(dtype: Any, per_row: bool, directions: int, tmp_path: Path) -> None:
    rows = 4 * HIDDEN
    shape = (directions, rows) if per_row else (directions,)
    constants = {
        "w": codes(dtype, directions, SIZE, rows), "r": codes(dtype, directions, HIDDEN, rows),
        "b": (RNG.standard_normal((directions, 2 * rows)) / 4).astype(F),
        "ws": (RNG.random(shape) * 0.004 + 0.002).astype(F), "rs": (RNG.random(shape) * 0.004 + 0.002).astype(F),
        "wz": np.full(shape, 0 if dtype is np.int8 else 128, dtype),
    }  # fmt: skip
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "wz"]
    attrs = {"hidden_size": HIDDEN, "direction": "bidirectional" if directions == 2 else "forward"}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "h", "c"], domain="com.microsoft", **attrs)
    proto = model([node], {"x": (F, (STEPS, 1, SIZE))}, ["y", "h", "c"], constants)
    feeds = {"x": RNG.standard_normal((STEPS, 1, SIZE)).astype(F)}
    for mine, theirs in zip(run_c(compiled(proto, HOST), feeds, tmp_path), reference(proto, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
