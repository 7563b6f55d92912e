"""Files that LiteRT refuses for an insignificant reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import compute
from tflite_models import Op, T, litert, model

import mtool
from mtool.compiler.frontend.tflite.schema import litert_can_read
from mtool.compiler.kernels.target import Target

R = np.random.default_rng(11)


def depthwise(axis: int) -> bytes:
    """Return a depthwise convolution whose bias has its scales along `axis`, as its weights do along 3."""
    scale = R.uniform(0.01, 0.02, 4)
    tensors = [
        T("x", [1, 5, 5, 4], np.int8, 0.1, 2),
        T("w", [1, 3, 3, 4], np.int8, scale, 0, 3, R.integers(-127, 128, [1, 3, 3, 4])),
        T("b", [4], np.int32, scale * 0.1, 0, axis, R.integers(-99, 99, 4)),
        T("y", [1, 3, 3, 4], np.int8, 0.2, 5),
    ]
    values = {
        "StrideH": 1,
        "StrideW": 1,
        "DilationHFactor": 1,
        "DilationWFactor": 1,
        "Padding": 1,
        "DepthMultiplier": 1,
    }
    return model(
        tensors, [Op("DEPTHWISE_CONV_2D", ["x", "w", "b"], ["y"], "DepthwiseConv2DOptions", values)], ["x"], ["y"]
    )


def test_a_bias_with_the_axis_of_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data = depthwise(3)
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    repaired = litert_can_read(path)
    assert isinstance(repaired, bytes) and sum(a != b for a, b in zip(data, repaired, strict=True)) == 1
    feeds: dict[str, Any] = {"x": R.integers(-128, 128, [1, 5, 5, 4]).astype(np.int8)}
    with pytest.raises(ValueError, match="quantized_dimension"):
        litert(data, feeds)
    (found,) = compute(data, feeds, tmp_path, "tflite", Target("host", frozenset()))
    np.testing.assert_array_equal(found, litert(repaired, feeds, reference=True)[0])
    options = mtool.Options(rounding="tflite")
    project = mtool.Deployment(tmp_path / "project")
    mtool.verify(path, board="host", options=options, samples=2, deployment=project).check()


def test_a_file_that_needs_no_repair_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(depthwise(0))
    assert litert_can_read(path) == str(path.absolute())
