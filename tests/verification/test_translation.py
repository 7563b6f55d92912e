"""A TFLite model's operators, translated to ONNX, against LiteRT: a wrong translation excuses no difference."""

from pathlib import Path

import numpy as np
import pytest
from tflite_models import Op, T, model

import mtool
from mtool.base.errors import MismatchError
from mtool.compiler.frontend.tflite import products
from mtool.compiler.frontend.tflite.builtins import BUILTINS, Builtin
from mtool.compiler.frontend.tflite.translation import Translation

pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")
R = np.random.default_rng(5)


def network(quantized: bool) -> bytes:
    """A dense layer, a softmax over its results, and a dense layer of that."""
    kind = np.int8 if quantized else np.float32

    def tensor(name: str, size: int, scale: float, zero: int) -> T:
        return T(name, [1, size], kind, scale, zero) if quantized else T(name, [1, size])

    def weights(name: str, shape: list[int]) -> T:
        if quantized:
            return T(name, shape, np.int8, 0.02, 0, 0, R.integers(-127, 128, shape))
        return T(name, shape, data=R.standard_normal(shape).astype(np.float32))

    tensors = [
        tensor("x", 16, 0.05, 3), weights("w", [8, 16]), tensor("d", 8, 0.1, 5), tensor("s", 8, 1 / 256, -128),
        weights("v", [4, 8]), tensor("y", 4, 0.02, 1),
    ]  # fmt: skip
    ops = [
        Op("FULLY_CONNECTED", ["x", "w", ""], ["d"], "FullyConnectedOptions", {}),
        Op("SOFTMAX", ["d"], ["s"], "SoftmaxOptions", {"Beta": 1.0}),
        Op("FULLY_CONNECTED", ["s", "v", ""], ["y"], "FullyConnectedOptions", {}),
    ]
    return model(tensors, ops, ["x"], ["y"])


def _steeper(t: Translation) -> None:
    t.store(t("Softmax", t("Mul", t.real(0), 2.0), axis=-1))


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("quantized", [True, False], ids=["int8", "float"])
def test_a_mistranslated_operator_is_named(quantized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its C is what its translation says, bit for bit, so comparing the two would find nothing."""
    path = tmp_path / "m.tflite"
    path.write_bytes(network(quantized))
    deployment = mtool.Deployment(tmp_path / "project")
    right = mtool.verify_layers(path, board="host", deployment=deployment)
    assert not right.mistranslated
    right.check()
    monkeypatch.setitem(BUILTINS, "SOFTMAX", Builtin(_steeper))
    wrong = mtool.verify_layers(path, board="host", deployment=deployment)
    assert [one.words.partition(":")[0] for one in wrong.mistranslated] == ["s"]
    assert not wrong.explain
    with pytest.raises(MismatchError, match=r"SOFTMAX 1.* computes something else than in LiteRT"):
        wrong.check()
    with pytest.raises(MismatchError, match="the outputs differ from LiteRT"):
        mtool.verify(path, board="host", deployment=deployment).check()


def _half_as_much_again(t: Translation) -> None:
    x, channels = products.flat_rows(products.Real(t))
    w = t("Mul", products.weights(t, 1, lambda data: data, 0), 1.5)
    t.store(products.unflat(t, t("Gemm", x, w, transB=1), channels))


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("asymmetric", [False, True])
def test_a_layer_of_float_activations_and_int8_weights_has_a_bound(
    asymmetric: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LiteRT brings the activations to 8 bits, which --hybrid float does not."""
    rng = np.random.default_rng(5)
    tensors = [
        T("x", [3, 64]),
        T("w", [8, 64], np.int8, rng.uniform(0.01, 0.02, 8), 0, 0, rng.integers(-127, 128, [8, 64])),
        T("y", [3, 8]),
    ]
    options = {"AsymmetricQuantizeInputs": asymmetric}
    path = tmp_path / "m.tflite"
    op = Op("FULLY_CONNECTED", ["x", "w", ""], ["y"], "FullyConnectedOptions", options)
    path.write_bytes(model(tensors, [op], ["x"], ["y"]))
    deployment, chosen = mtool.Deployment(tmp_path / "project"), mtool.Options(hybrid="float")
    right = mtool.verify_layers(path, board="host", deployment=deployment, options=chosen)
    assert not right.mistranslated
    (output,) = mtool.verify(path, board="host", deployment=deployment, options=chosen).outputs
    assert output.within and "the effect of LiteRT's quantization of activations to 8 bits" in output.allowed
    monkeypatch.setitem(BUILTINS, "FULLY_CONNECTED", Builtin(_half_as_much_again))
    wrong = mtool.verify_layers(path, board="host", deployment=deployment, options=chosen)
    assert [one.words.partition(":")[0] for one in wrong.mistranslated] == ["y"]
