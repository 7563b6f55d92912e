"""Networks with mtool's own operators: verify compares each part with onnxruntime on LiteRT's values."""

from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_models import Op, T, litert, model

import mtool
from mtool.base.errors import MismatchError
from mtool.compiler.frontend.tflite.builtins import BUILTINS, Builtin
from mtool.compiler.frontend.tflite.translation import Translation

pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")
R = np.random.default_rng(3)
OUTPUTS = ["boxes", "classes", "scores", "count"]
COUNT = 400


def detector() -> bytes:
    """Two dense layers, whose results CONCATENATION brings to a finer grid, in front of a detection."""
    options = {
        "max_detections": 10, "max_classes_per_detection": 1, "num_classes": 3, "nms_score_threshold": 0.2,
        "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
    }  # fmt: skip
    half = [1, COUNT // 2, 4]
    tensors = [
        T("x", [COUNT // 2, 24], np.uint8, 0.05, 120),
        T("w", [4, 24], np.uint8, 0.02, 121, data=R.integers(0, 256, (4, 24))),
        T("d", [COUNT // 2, 4], np.uint8, 0.3, 120),
        T("r", half, np.uint8, 0.3, 120),
        T("q", half, np.uint8, 0.1, 128),
        T("b", [1, COUNT, 4], np.uint8, 0.1, 128),
        T("s", [1, COUNT, 3], np.uint8, 1 / 256, 0),
        T("a", [COUNT, 4], np.uint8, 0.005, 10, data=R.integers(20, 200, (COUNT, 4))),
        T("shape", [3], np.int32, data=np.asarray(half)),
        *(T(name, []) for name in OUTPUTS),
    ]
    ops = [
        Op("FULLY_CONNECTED", ["x", "w", ""], ["d"], "FullyConnectedOptions", {"FusedActivationFunction": 0}),
        Op("RESHAPE", ["d", "shape"], ["r"]),
        Op("CONCATENATION", ["r", "q"], ["b"], "ConcatenationOptions", {"Axis": 1}),
        Op("CUSTOM TFLite_Detection_PostProcess", ["b", "s", "a"], OUTPUTS, custom=flexbuffers.Dumps(options)),
    ]
    return model(tensors, ops, ["x", "q", "s"], OUTPUTS)


@pytest.mark.slow
def test_a_step_that_a_finer_grid_makes_three_is_not_a_fault(tmp_path: Path) -> None:
    """The dense layer and what CONCATENATION makes of it are one operator here: LiteRT's is a step off before that."""
    path = tmp_path / "m.tflite"
    path.write_bytes(detector())
    found = mtool.verify_layers(path, board="host", deployment=mtool.Deployment(tmp_path / "project"))
    found.check()
    compared = [layer for layer in found.layers if layer.difference]
    assert {layer.tensor for layer in compared} >= {"b", *OUTPUTS}
    assert all(layer.difference and not layer.difference.differing for layer in compared)
    assert found.complete


@pytest.mark.slow
def test_a_part_that_is_translated_wrongly_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(t: Translation) -> None:
        t.store(t("Mul", t("Concat", t.real(0), t.real(1), axis=1), 0.5))

    path = tmp_path / "m.tflite"
    path.write_bytes(detector())
    monkeypatch.setitem(BUILTINS, "CONCATENATION", Builtin(halved))
    with pytest.raises(MismatchError, match=r"CONCATENATION 2.* computes something else than in LiteRT"):
        mtool.verify_layers(path, board="host", deployment=mtool.Deployment(tmp_path / "project")).check()


def test_a_grid_of_nothing_is_not_compared_in_steps(tmp_path: Path) -> None:
    """LiteRT's shifts do not reach 1e-35: it makes 0 of these products, which are far above its end."""
    tensors = [
        T("a", [1, 64], np.uint8, 1 / 256, 0),
        T("b", [1, 64], np.uint8, 5.0382832e-06, 0),
        T("p", [1, 64], np.uint8, 1.2141535e-35, 0),
        T("y", [1, 64], np.uint8, 1 / 256, 0),
    ]
    ops = [Op("MUL", ["a", "b"], ["p"], "MulOptions", {}), Op("ADD", ["a", "p"], ["y"], "AddOptions", {})]
    a, b = np.full((1, 64), 128, np.uint8), np.arange(64, dtype=np.uint8)[None]
    assert not litert(model(tensors, ops, ["a", "b"], ["y", "p"]), {"a": a, "b": b}, reference=True)[1].any()
    path, golden = tmp_path / "m.tflite", tmp_path / "g.npz"
    path.write_bytes(model(tensors, ops, ["a", "b"], ["y"]))
    np.savez(golden, x0=a[None], x1=b[None], y0=a[None])
    deployment = mtool.Deployment(tmp_path / "project")
    mtool.verify_layers(path, board="host", golden=golden, deployment=deployment).check()
