"""The digits example: the committed files match its README."""

from pathlib import Path

import numpy as np
import onnx
import pytest

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
