"""Front ends compute what other libraries do (features.npz, from scripts/record_features.py)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import sounds
import tflite_models
from graphs import Array, compiled, model, run_c
from onnx import helper, numpy_helper
from scipy import signal
from tflite_models import Op, T

import mtool
from mtool.errors import ModelError, UsageError
from mtool.preprocessing.spectrum import CONVENTIONS
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


def _front(folder: Path, kind: str | tuple[str, ...], *shape: int) -> Path:
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


def test_more_rows_of_micro_speech_are_no_more_operators(tmp_path: Path) -> None:
    few, many = (onnx.load(_front(tmp_path, "micro_speech", rows, 40)).graph.node for rows in (2, 49))
    assert len(few) == len(many) < 12


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547", "qemu_riscv32"])
def test_micro_speech_on_a_board_is_exact(board: str, tmp_path: Path) -> None:
    made = mtool.compile(_front(tmp_path, "micro_wake_word:rows=1", 1, 40), board=board)
    with mtool.open(made) as device:
        for name, pcm in sounds.PCM.items():
            device.reset_state()
            rows = [device.run({"pcm": pcm[n : n + 160]})["y"][0] for n in range(0, len(pcm), 160)]
            assert np.array_equal(np.rint(np.stack(rows) * UNIT), RECORDED[f"micro_speech/{name}"]), name


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


@pytest.mark.parametrize("shape", [(1, -1, 0), (1, 0, -1), (1, 1, -1, 0), (1, -1, 0, 1)])
@pytest.mark.parametrize("name", ["tensorflow/mfcc", "torchaudio/log_mel", "librosa/spectrogram"])
def test_features_have_the_layout_of_the_input(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    rows = RECORDED[name] if name.startswith("tensorflow") else RECORDED[name].T
    wanted = rows if shape.index(-1) < shape.index(0) else rows.T
    sizes = [{-1: len(rows), 0: rows.shape[1]}.get(size, size) for size in shape]
    path = _front(tmp_path, f"{_CASES[name]}samples={sounds.SAMPLES}", *sizes)
    (found,) = _by_onnxruntime(path, sounds.PCM["voice"][: sounds.SAMPLES], sounds.SAMPLES)
    assert np.allclose(found, wanted.reshape(sizes), rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "kind",
    ["log_mel:", "mfcc:coefficients=40,", "log_mel:like=librosa,mels=40,", "spectrogram:fft=78,window=64,hop=32,"],
)
def test_a_stream_starts_with_silence(kind: str, tmp_path: Path) -> None:
    made = onnx.load(_front(tmp_path, f"{kind}rows=1", 1, 3, 40))
    start = next(numpy_helper.to_array(one) for one in made.graph.initializer if one.name == "front/rows")
    silence = reference.outputs(
        tmp_path / "front.onnx",
        [{"pcm": np.zeros(made.graph.input[0].type.tensor_type.shape.dim[0].dim_value, np.int16)}],
    )
    assert np.allclose(silence[0]["y"][0, -1], start, atol=1e-4)


def test_front_ends_of_several_runs_are_those_of_one(tmp_path: Path) -> None:
    np.save(tmp_path / "sos.npy", signal.butter(2, 3000, fs=16000, output="sos"))
    kinds, pcm = ("decimate:by=2", f"biquad:sos={tmp_path / 'sos.npy'}", "decimate:by=3"), sounds.PCM["voice"][:1200]
    once = _calls(_front(tmp_path, kinds, 1, 50), "pcm", np.split(pcm, 4))
    path = _identity(tmp_path, 1, 50)
    for number, kind in enumerate(reversed(kinds)):
        path = mtool.preprocess(kind, path, output=tmp_path / f"{number}.onnx").path
    name = onnx.load(path).graph.input[0].name
    assert np.allclose(_calls(path, name, np.split(pcm, 4)), once, atol=1e-3)


def test_the_defaults_are_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "preprocess.md").read_text()
    for name in ("tensorflow", "torchaudio", "librosa"):
        one = CONVENTIONS[name]
        values = (one.rate, one.window, one.hop, one.mels, one.coefficients, "dB" if one.decibels else "natural")
        assert f"| {name} | {' | '.join(map(str, values))} |" in text


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


def _calls(path: Path, name: str, calls: list[Array]) -> Array:
    return np.concatenate([one["y"].reshape(-1) for one in reference.outputs(path, [{name: data} for data in calls])])


def _in_c(path: Path, feeds: dict[str, Array], folder: Path) -> Array:
    return np.asarray(run_c(compiled(onnx.load(path)), feeds, folder)[0])


def test_filters_are_scipys(tmp_path: Path) -> None:
    sos, pcm = signal.butter(4, 3000, fs=16000, output="sos"), sounds.PCM["voice"][:800]
    np.save(tmp_path / "sos.npy", sos)
    path = _front(tmp_path, f"biquad:sos={tmp_path / 'sos.npy'}", 1, 200)
    wanted = signal.sosfilt(sos, pcm.astype(float))
    assert np.allclose(_calls(path, "pcm", np.split(pcm, 4)), wanted, atol=1e-5 * np.abs(wanted).max())
    path = _front(tmp_path, "decimate:by=4", 1, 50)
    wanted = signal.decimate(pcm.astype(float), 4, ftype="fir", zero_phase=False)
    assert np.allclose(_calls(path, "pcm", np.split(pcm, 4)), wanted, atol=1e-5 * np.abs(wanted).max())


def test_a_filter_in_c_is_that_of_onnxruntime(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=40).astype(np.float32), "state": rng.normal(size=(3, 2)).astype(np.float32)}
    sections = signal.butter(6, 0.2, output="sos").astype(np.float32)
    node = helper.make_node("Biquad", ["x", "sections", "state"], ["y", "next"], domain="mtool")
    proto = model(
        [node], {"x": (np.float32, [40]), "state": (np.float32, [3, 2])}, ["y", "next"], {"sections": sections}
    )
    found = run_c(compiled(proto), feeds, tmp_path)
    wanted, last = signal.sosfilt(sections, feeds["x"], zi=feeds["state"])
    assert np.allclose(found[0], wanted, atol=1e-5) and np.allclose(found[1], last, atol=1e-5)


def test_motion_features_are_scipys(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(1, 2, (64, 3)).astype(np.float32)
    path = _front(tmp_path, "statistics:window=64", 1, 15)
    wanted = np.stack([x.mean(0), x.std(0), np.sqrt((x**2).mean(0)), x.min(0), x.max(0)], 1)
    assert np.allclose(_calls(path, "samples", [x]), wanted.reshape(-1), rtol=1e-5)
    path = _front(tmp_path, "spectral_power:window=64,hop=16", 3, 33)
    wanted = signal.periodogram(x, window="hann", axis=0)[1].T
    found = _calls(path, "samples", np.split(x, 4))[-99:]
    assert np.allclose(found, wanted.reshape(-1), atol=1e-5 * wanted.max())
    path = _front(tmp_path, "spectral_power:window=64", 3, 33)
    assert np.allclose(_in_c(path, {"samples": x}, tmp_path), wanted, atol=1e-5 * wanted.max())


_NHWC, _GREY = (1, 8, 12, 3), (1, 1, 6, 6)
_PICTURES = [
    ("yuv422", _NHWC),
    ("rgb565", _GREY),
    *(pytest.param(*one, marks=pytest.mark.slow) for one in (("yuv422", _GREY), ("rgb565", _NHWC))),
    *(pytest.param(name, shape, marks=pytest.mark.slow) for name in ("rgb", "grey") for shape in (_NHWC, _GREY)),
]


@pytest.mark.parametrize(("pixels", "shape"), _PICTURES)
def test_pictures_are_decoded(pixels: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    red, green, blue = (np.full((16, 24), value) for value in (200, 100, 40))
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    u, v = (0.5 * (blue - luma) / (1 - 0.114), 0.5 * (red - luma) / (1 - 0.299))
    pairs = np.stack([16 + luma * 219 / 255, np.where(np.arange(24) % 2, v, u) * 224 / 255 + 128], 2)
    pictures = {
        "yuv422": np.rint(pairs).astype(np.uint8),
        "rgb565": ((red >> 3 << 11) + (green >> 2 << 5) + (blue >> 3)).astype(np.uint16),
        "rgb": np.stack([red, green, blue], 2).astype(np.uint8),
        "grey": np.rint(luma).astype(np.uint8),
    }
    path = _front(tmp_path, f"image:pixels={pixels},height=16,width=24,scale=1", *shape)
    found = _calls(path, "picture", [pictures[pixels]]).reshape(shape)
    grey = pixels == "grey" or shape[1] == 1
    wanted = [luma[0, 0]] if grey else [200, 100, 40]
    assert (
        np.abs(found - np.reshape(wanted, (1, -1, 1, 1) if shape[1] == 1 else (1, 1, 1, -1))).max() < 9
    )  # of 8 levels of rgb565
    kind = pictures[pixels].dtype
    noise = rng.integers(0, np.iinfo(kind).max, pictures[pixels].shape).astype(kind)
    made = _in_c(path, {"picture": noise}, tmp_path)
    assert np.allclose(made, _calls(path, "picture", [noise]).reshape(shape), atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("micro_speach", "did you mean micro_speech"),
        ("micro_speech:hopp=3", "did you mean hop"),
        ("micro_speech:hop=x", "expected a whole number"),
        ("micro_speech:channels=7", "does not consist of rows of 7"),
        ("micro_speech:rows=4", "has 3 rows of 40"),
        ("log_mel:like=torch", "did you mean torchaudio"),
        ("log_mel:samples=12", "need 1,120"),
        ("log_mel:like=torchaudio,fft=300", "fft is 300; expected 400 (window) to 65536"),
        ("log_mel:fft=512,window=600", "fft is 512; expected 600 (window) to"),
        ("log_mel:fft=0", "fft is 0"),
        ("log_mel:hop=0", "hop is 0; expected 1 to 480 (window)"),
        ("log_mel:rows=1,hop=-5", "hop is -5"),
        ("log_mel:rate=-1", "rate is -1; expected 1 or more"),
        ("log_mel:low=9000", "low is 9000.0; expected 0 or more, below 8000 (high)"),
        ("log_mel:high=9000", "high is 9000.0; expected more than 0, up to 8000 (half the rate)"),
        ("log_mel:low=nan", "low is nan"),
        ("log_mel:hop=128,hop=64", "hop is given twice"),
        ("mfcc:mels=20,coefficients=40", "coefficients is 40; expected 1 to 20 (mels)"),
        ("spectrogram:samples=0", "samples is 0"),
        ("micro_speech:window=4,hop=2", "window is 4; expected 33 to"),
        ("micro_speech:rate=100", "high is 7500.0; expected 0 to 50 (half the rate)"),
        ("micro_speech:rows=-1", "rows is -1; expected 0 or more"),
        ("statistics:axes=0", "axes is 0; expected 1 or more"),
        ("statistics:window=16,hop=17", "hop is 17; expected 1 to 16 (window)"),
        ("spectral_power:log=7", "log is 7; expected 0 to 1"),
        ("image:height=-3", "height is -3"),
        ("image:scale=0", "scale is 0.0; expected a finite number, not 0"),
        ("log_mel:mels=7", "KIND:mels=N"),
        ("mfcc:coefficients=7", "KIND:coefficients=N"),
        ("decimate", "has several channels"),
        ("decimate:by=1", "by is 1; expected 2 to"),
        ("log_mel:mels", "mels has no value"),
        ("biquad", "sos is missing"),
        ("biquad:sos=nowhere.npy", "nowhere.npy can't be read\n  no such file"),
        (f"biquad:sos={__file__}", "is not an array of numbers"),
        (("log_mel", "decimate:by=2"), "filters of samples come first"),
    ],
)
def test_what_is_wrong_is_named(kind: str | tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        _front(tmp_path, kind, 1, 3, 40)
    assert words in str(caught.value)


def test_coefficients_are_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "sos.npy", np.where(np.arange(6) == 1, np.nan, 1.0)[None])
    with pytest.raises(UsageError, match="not finite"):
        _front(tmp_path, f"biquad:sos={tmp_path / 'sos.npy'}", 1, 200)


def test_a_frequency_of_0_is_not_the_default(tmp_path: Path) -> None:
    lowest, usual = (onnx.load(_front(tmp_path, f"log_mel:{low}", 3, 40)) for low in ("low=0", "rows=0"))
    assert lowest.graph.initializer != usual.graph.initializer


def test_a_tflite_model_with_int8_weights_and_floats_gets_a_front_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = T("w", [8, 40], np.int8, rng.uniform(0.01, 0.02, 8), 0, 0, rng.integers(-127, 128, [8, 40]))
    op = Op("FULLY_CONNECTED", ["x", "w", ""], ["y"], "FullyConnectedOptions", {})
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite_models.model([T("x", [3, 40]), weights, T("y", [3, 8])], [op], ["x"], ["y"]))
    made = mtool.preprocess("log_mel", path, output=tmp_path / "front.onnx")
    assert made.input == "pcm int16[1120]"
    assert all(node.domain != "mtool" for node in onnx.load(made.path).graph.node)


def _with_starts(node: onnx.NodeProto, proto: onnx.ModelProto) -> None:
    starts = next(one for one in proto.graph.initializer if one.name == node.input[3])
    starts.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(starts) + np.int16(100), starts.name))


def _with_few_gains(node: onnx.NodeProto, proto: onnx.ModelProto) -> None:
    node.input[2] = node.input[0]


def _with(**attrs: int) -> Callable[[onnx.NodeProto, onnx.ModelProto], None]:
    def change(node: onnx.NodeProto, proto: onnx.ModelProto) -> None:
        for attr in node.attribute:
            attr.i = attrs.get(attr.name, attr.i)

    return change


@pytest.mark.parametrize(
    ("operator", "change", "words"),
    [
        ("SignalFilterBank", _with_starts, "reads outside its input"),
        ("SignalPCAN", _with_few_gains, "its inputs are"),
        ("SignalEnergy", _with(end=1000), "its frequencies are 5 to 1000"),
        ("SignalRfft", _with(length=256), "expected at most 256"),
        ("SignalRfft", _with(length=514), "expected twice a product"),
        ("SignalWindow", _with(shift=32), "its option 'shift' is 32"),
    ],
)
def test_a_damaged_file_is_refused(
    operator: str, change: Callable[[onnx.NodeProto, onnx.ModelProto], None], words: str, tmp_path: Path
) -> None:
    proto = onnx.load(_front(tmp_path, "micro_speech", 1, 40))
    change(next(node for node in proto.graph.node if node.op_type == operator), proto)
    with pytest.raises(ModelError) as caught:
        compiled(proto)
    assert words in str(caught.value)
