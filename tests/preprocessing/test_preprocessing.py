"""Front ends compute what other libraries do (features.npz, from scripts/record_features.py)."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import sounds
from graphs import Array, compiled, run_c

import mtool
from mtool.errors import UsageError
from mtool.verification import reference

RECORDED = np.load(Path(__file__).with_name("features.npz"))
UNIT = 25.6  # of micro_speech's integers


def _identity(folder: Path, *shape: int) -> Path:
    sizes = ", ".join(map(str, shape))
    proto = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        model (float[{sizes}] x) => (float[{sizes}] y) {{ y = Identity(x) }}
    """)
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


def _front(folder: Path, kind: str, *shape: int) -> Path:
    made = mtool.preprocess(kind, _identity(folder, *shape), output=folder / "front.onnx")
    return made.path


def _by_onnxruntime(path: Path, pcm: Array, size: int) -> list[Array]:
    samples = [{"pcm": pcm[n * size : (n + 1) * size]} for n in range(len(pcm) // size)]
    return [one["y"] for one in reference.outputs(path, samples)]


@pytest.mark.parametrize(
    "name", ["voice", "spikes", *(pytest.param(name, marks=pytest.mark.slow) for name in ("noise", "clipped", "quiet"))]
)
def test_micro_speech_is_exact(name: str, tmp_path: Path) -> None:
    path = _front(tmp_path, "micro_wake_word:rows=1", 1, 40)
    found = np.concatenate(_by_onnxruntime(path, sounds.PCM[name], 160))
    assert np.array_equal(np.rint(found * UNIT), RECORDED[f"micro_speech/{name}"])


def test_micro_speech_in_c_is_exact(tmp_path: Path) -> None:
    path = _front(tmp_path, "micro_speech:hop=160", 2, 40)
    samples = np.pad(sounds.PCM["voice"], (320, 0))[:640]
    (found,) = run_c(compiled(onnx.load(path)), {"pcm": samples}, tmp_path)
    assert np.array_equal(np.rint(found * UNIT), RECORDED["micro_speech/voice"][:2])


_SIZES = "rate=16000,hop=128"
_MELS = f"{_SIZES},mels=20"
_CASES = {
    "tensorflow/spectrogram": f"spectrogram:{_SIZES},window=224,",
    "tensorflow/log_mel": f"log_mel:{_MELS},window=224,low=80,high=7600,",
    "tensorflow/mfcc": f"mfcc:{_MELS},window=224,low=80,high=7600,coefficients=8,",
    "torchaudio/spectrogram": f"spectrogram:like=torchaudio,{_SIZES},window=256,",
    "torchaudio/log_mel": f"log_mel:like=torchaudio,{_MELS},window=256,",
    "torchaudio/mfcc": f"mfcc:like=torchaudio,{_MELS},window=256,coefficients=8,",
    "librosa/spectrogram": f"spectrogram:like=librosa,{_SIZES},window=256,",
    "librosa/log_mel": f"log_mel:like=librosa,{_MELS},window=256,",
    "librosa/mfcc": f"mfcc:like=librosa,{_MELS},window=256,coefficients=8,",
    "mlperf/log_mel": "mlperf_wake_word:",
}


@pytest.mark.parametrize("name", _CASES)
def test_float_features_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    wanted, kind = RECORDED[name], _CASES[name]
    path = _front(tmp_path, f"{kind}samples={sounds.SAMPLES}", *wanted.shape)
    (found,) = _by_onnxruntime(path, sounds.PCM["voice"][: sounds.SAMPLES], sounds.SAMPLES)
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["torchaudio/mfcc", "mlperf/log_mel"])
def test_float_features_in_c_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    wanted = RECORDED[name]
    plan = compiled(onnx.load(_front(tmp_path, f"{_CASES[name]}samples={sounds.SAMPLES}", *wanted.shape)))
    (found,) = run_c(plan, {"pcm": sounds.PCM["voice"][: sounds.SAMPLES]}, tmp_path)
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_rows_of_a_stream_are_those_of_the_whole(tmp_path: Path) -> None:
    path = _front(tmp_path, "mlperf_wake_word:window=256,hop=128,rows=1", 1, 40)
    rows = np.concatenate(_by_onnxruntime(path, sounds.PCM["voice"], 128))
    path = _front(tmp_path, "mlperf_wake_word:window=256,hop=128", len(rows) - 1, 40)
    whole = _by_onnxruntime(path, sounds.PCM["voice"], 128 * len(rows))[0]
    assert np.allclose(rows[1:], whole, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("micro_speach", "did you mean micro_speech"),
        ("micro_speech:hopp=3", "did you mean hop"),
        ("micro_speech:hop=x", "expected int"),
        ("micro_speech:channels=7", "does not consist of rows of 7"),
        ("micro_speech:rows=4", "has 3 rows of 40"),
        ("log_mel:like=torch", "did you mean torchaudio"),
        ("log_mel:samples=12", "need 1,120"),
    ],
)
def test_what_is_wrong_is_named(kind: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _front(tmp_path, kind, 1, 3, 40)
    assert words in str(caught.value)
