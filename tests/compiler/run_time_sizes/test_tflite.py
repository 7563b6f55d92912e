"""Open batches of TFLite files as run-time sizes, against LiteRT with the same shapes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_models import Op, T, model

import mtool
from mtool.stages.options import Options

pytest.importorskip("ai_edge_litert")
R = np.random.default_rng(9)


def flattened(*, quantized: bool) -> bytes:
    """Keras' Flatten, whose shape is computed, and Dense."""

    def open_batch(name: str, *shape: int) -> T:
        grid: dict[str, Any] = {"dtype": np.int8, "scale": 0.0987, "zero": 3} if quantized else {}
        return T(name, [1, *shape], signature=[-1, *shape], **grid)

    def whole(name: str, numbers: Any) -> T:
        data = np.asarray(numbers)
        return T(name, data.shape, np.int32, data=data)

    weights = T("w", [5, 12], data=R.standard_normal([5, 12]))
    if quantized:
        weights = T("w", [5, 12], np.int8, 0.0213, data=R.integers(-127, 128, [5, 12]))
    tensors = [
        open_batch("x", 2, 2, 3), whole("zero", [0]), whole("one", [1]), T("s", [4], np.int32), T("n", [], np.int32),
        whole("c", 12), T("p", [2], np.int32), open_batch("f", 12), weights, open_batch("y", 5),
    ]  # fmt: skip
    ops = [
        Op("SHAPE", ["x"], ["s"], "ShapeOptions", {"OutType": 2}),
        Op("STRIDED_SLICE", ["s", "zero", "one", "one"], ["n"], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        Op("PACK", ["n", "c"], ["p"], "PackOptions", {"ValuesCount": 2, "Axis": 0}),
        Op("RESHAPE", ["x", "p"], ["f"]),
        Op("FULLY_CONNECTED", ["f", "w", ""], ["y"], "FullyConnectedOptions", {}),
    ]
    return model(tensors, ops, ["x"], ["y"])


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize("quantized", [False, True])
def test_a_batch_that_is_left_open(quantized: bool, rounding: Any, tmp_path: Path) -> None:
    path = tmp_path / "open.tflite"
    path.write_bytes(flattened(quantized=quantized))
    options = Options(maxima={"x_0": 6}, rounding=rounding)
    deployment = mtool.Deployment(tmp_path / "project")
    report = mtool.verify(path, board="host", samples=6, options=options, deployment=deployment)
    report.check()
    assert not quantized or all(output.differing == 0 for output in report.outputs)
    layers = mtool.verify_layers(path, board="host", samples=3, options=options, deployment=deployment)
    layers.check()
    assert not quantized or any(layer.difference and layer.difference.elements == 3 * 6 * 5 for layer in layers.layers)
