"""The digits example: the committed files match its README."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import mtool
from mtool.verification import reference

FOLDER = Path(__file__).parents[2] / "examples" / "digits"


def test_the_model_is_int8_from_end_to_end_and_small() -> None:
    path = FOLDER / "digits_int8.onnx"
    assert path.stat().st_size < 64 << 10
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    ends = [*model.graph.input, *model.graph.output]
    assert [(end.name, end.type.tensor_type.elem_type) for end in ends] == [
        ("image", onnx.TensorProto.INT8),
        ("scores", onnx.TensorProto.INT8),
    ]


def test_the_model_reads_the_held_out_images() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(FOLDER / "digits_int8.onnx")
    with np.load(FOLDER / "test_data.npz") as data:
        x, y = data["x"], data["y"]
    assert x.shape == (450, 1, 8, 8) and x.dtype == np.int8 and (x.min(), x.max()) == (0, 16)
    assert sorted(set(y.tolist())) == list(range(10))
    scores = [session.run(None, {"image": image[np.newaxis]})[0][0] for image in x]
    assert np.mean(np.argmax(scores, axis=1) == y) > 0.97


def test_the_model_of_brevitas_has_integer_kernels_and_reads_images() -> None:
    path = FOLDER / "digits_2bit.onnx"
    found = mtool.compile(path, board="mps2_an386").manifest
    kinds = [(one.label, one.reads[0].dtype) for one in found.operators if one.macs]
    assert kinds == [("conv2d 3x3", "int8")] * 3 + [("dense", "int8")]
    with np.load(FOLDER / "test_data.npz") as data:
        x, y = data["x"][:60], data["y"][:60]
    scores = reference.outputs(path, [{"image": image[np.newaxis].astype(np.float32)} for image in x])
    assert np.mean([one["scores"].argmax() == label for one, label in zip(scores, y, strict=True)]) > 0.9
