"""TFLite_Detection_PostProcess against LiteRT's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_cases import compute
from tflite_models import Array, Op, T, litert, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import load
from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset())
R = np.random.default_rng(7)
OUTPUTS = ["boxes", "classes", "scores", "count"]


def detector(count: int, classes: int, columns: int, *, quantized: bool = False, **options: Any) -> bytes:
    reported = {
        "max_detections": 10, "max_classes_per_detection": 1, "num_classes": classes, "nms_score_threshold": 0.2,
        "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, **options,
    }  # fmt: skip
    given = {name: value for name, value in reported.items() if value is not None}
    if quantized:
        places = R.integers(20, 200, (count, 4)).astype(np.uint8)
        tensors = [T("b", [1, count, 4], np.uint8, 0.06, 130), T("s", [1, count, columns], np.uint8, 1 / 256, 0)]
        tensors.append(T("a", [count, 4], np.uint8, 0.005, 10, data=places))
    else:
        tensors = [T("b", [1, count, 4]), T("s", [1, count, columns])]
        tensors.append(T("a", [count, 4], data=R.random((count, 4)).astype(np.float32)))
    tensors += [T(name, []) for name in OUTPUTS]  # of no shape, as converters write them
    op = Op("CUSTOM TFLite_Detection_PostProcess", ["b", "s", "a"], OUTPUTS, custom=flexbuffers.Dumps(given))
    return model(tensors, [op], ["b", "s"], OUTPUTS)


def feeds(count: int, columns: int, quantized: bool) -> dict[str, Array]:
    if quantized:
        scores = R.integers(0, 256, (1, count, columns)).astype(np.uint8)
        return {"b": R.integers(90, 170, (1, count, 4)).astype(np.uint8), "s": scores}
    boxes = R.standard_normal((1, count, 4)).astype(np.float32)
    return {"b": boxes, "s": R.random((1, count, columns)).astype(np.float32)}


@pytest.mark.product(3)
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize(
    ("count", "classes", "columns", "options"),
    [
        (50, 3, 4, {}),
        (60, 4, 4, {"max_classes_per_detection": 3, "max_detections": 8}),
        (200, 5, 6, {"use_regular_nms": True, "detections_per_class": 4}),
        (90, 2, 3, {"use_regular_nms": True, "nms_score_threshold": 0.9, "max_detections": 40}),
        (40, 3, 4, {"nms_score_threshold": 0.95, "max_detections": 30}),
    ],
)
def test_detections_are_litert_s(
    count: int, classes: int, columns: int, options: dict[str, Any], quantized: bool, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    data = detector(count, classes, columns, quantized=quantized, **options)
    given = feeds(count, columns, quantized)
    expected = litert(data, given)
    found = compute(data, given, tmp_path, "onnx", HOST)
    (number,) = expected[3]
    assert found[3] == number > 0
    rows = int(number) * (1 if options.get("use_regular_nms") else options.get("max_classes_per_detection", 1))
    for mine, theirs in zip(found[:3], expected[:3], strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_array_equal(mine[:, :rows], theirs[:, :rows])
        assert not mine[:, rows:].any()  # where LiteRT leaves what was there before


def test_scores_that_are_not_numbers_are_not_detections(tmp_path: Path) -> None:
    data, given = detector(20, 2, 2), feeds(20, 2, False)
    given["s"][:] = np.nan
    given["s"][0, 5] = 0.5, 0.25
    boxes, classes, scores, number = compute(data, given, tmp_path, "onnx", HOST)
    assert number == 1 and classes[0, 0] == 0 and scores[0, 0] == 0.5 and np.isfinite(boxes).all()


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"max_detections": 0}, "its option 'max_detections' is 0"),
        ({"max_detections": 2**31 - 1}, "its option 'max_detections'"),
        ({"num_classes": 9}, "do not fit 9 classes"),
        ({"y_scale": 0.0}, "its option 'y_scale' is 0.0; expected a positive number"),
        ({"nms_iou_threshold": 1.5}, "its overlap threshold 1.5"),
        ({"num_classes": None}, "its option 'num_classes' is not given"),
    ],
)
def test_options_that_make_no_sense_are_reported(change: dict[str, Any], reported: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(detector(10, 3, 4, **change))
    with pytest.raises(ModelError) as found:
        load(path)
    assert reported in str(found.value)
