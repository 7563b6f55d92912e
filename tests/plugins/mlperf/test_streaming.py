"""MLPerf Tiny's streaming wake word: the firmware's commands, and MLCommons' own runner (MTOOL_MLPERF_RUNNER)."""

import json
import os
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from own import begin

from mtool.cli import app
from mtool.commands import flashing, user_project
from mtool.plugins.mlperf import DeviceUnderTest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
RUNNER = Path(os.environ.get("MTOOL_MLPERF_RUNNER", ""))
SWW = models.FOLDER / "sww"
HOP, WINDOW, ROWS, FEATURES, THRESHOLD = 512, 1024, 30, 40, 115


def counting(path: Path) -> Path:
    """Write a model that adds the first three samples of each hop of four to its state."""
    nodes = [
        helper.make_node("Slice", ["pcm", "zero", "three"], ["first"]),
        helper.make_node("Cast", ["first"], ["small"], to=TensorProto.INT8),
        helper.make_node("Add", ["small", "front_rows"], ["sum"]),
        helper.make_node("Identity", ["sum"], ["next"]),
        helper.make_node("Reshape", ["sum", "form"], ["score"]),
    ]
    constants = [
        numpy_helper.from_array(np.int64(value), name)
        for name, value in (("zero", [0]), ("three", [3]), ("form", [1, 3]))
    ]
    inputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (("pcm", TensorProto.INT16, [4]), ("front_rows", TensorProto.INT8, [3]))
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.INT8, shape)
        for name, shape in (("score", [1, 3]), ("next", [3]))
    ]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    helper.set_model_props(proto, {"mtool.states": '[["next", "front_rows"]]'})
    onnx.save(proto, path)
    return path


@pytest.mark.slow
def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert begin(tmp_path / "sww", counting(tmp_path / "m.onnx"), "--type", "mlperftiny") == 0
    with flashing.open_program(user_project.require(tmp_path / "sww").job_for("host")) as (_, transport):
        device = DeviceUnderTest(transport, lambda who, text: None)
        device.begin()
        assert device.identity()["model"] == "sww01"
        assert device.ask("stop")[1:] == ["I2S is already idle.  Ignoring stop request"]
        for _ in range(2):  # a recording starts from the beginning
            assert device.ask("start") == [
                "Received command: start",
                "Listening for I2S data ...",
                "DMA receive initiated.",
            ]
            for number in range(18):
                device.load(np.int16([7, number, -1, 0]).tobytes())
                *_, first, second = device.ask("extract_uart_stream")
                score = f"{7 * (number + 1)}, {number * (number + 1) // 2 - 256 * (number > 15)}, {-number - 1}"
                assert (first, second) == (f"m-features-[{score}]", f"m-activations-[{score}]")
            assert "I2S Rx currently in progress. Ignoring request" in device.ask("start")
            lines = device.ask("stop")
            assert lines[1:3] == ["Streaming stopped.", "target activations:"]
            assert "".join(lines[3:]).replace(" ", "") == str([7 * (n + 1) for n in range(18)]).replace(" ", "")
        assert device.ask("db load 8")[1:] == ["m-[Expecting 8 bytes]"]
        assert device.ask("db 010203")[1:] == ["3 bytes received"]
        assert device.ask("db setptr 2")[1:] == []
        assert device.ask("db 0304")[1:] == ["4 bytes received"]
    samples = np.tile(np.int16([7, 0, 0, 0]), 18)  # the activation is above 115 after hops 17 and 18
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
    truth = [
        {"wav_file": name, "detection_windows": words} for name, words in (("a.wav", [[0, 1], [5, 6]]), ("b.wav", []))
    ]
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    monkeypatch.chdir(tmp_path / "sww")
    capsys.readouterr()
    assert app.invoke(["mlperf", "--data", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["words"] == {"detected": 1, "missed": 1, "wrong": 0} and found["samples"] == 18
    (tmp_path / "truth.json").write_text('[{"wav_file": "a.wav"}]')
    assert app.invoke(["mlperf", "--data", str(tmp_path)]) == 2
    assert "does not have the format of EEMBC's runner" in capsys.readouterr().err


def expected(path: Path) -> list[int]:
    """Return the wake word's activation after each hop, as the reference firmware computes it, in NumPy and LiteRT."""
    from ai_edge_litert.interpreter import Interpreter

    network = Interpreter(str(SWW / "str_ww_ref_model.tflite"))
    network.allocate_tensors()
    given, answer = network.get_input_details()[0], network.get_output_details()[0]
    with wave.open(str(path), "rb") as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())[:, 0]
    signal = np.concatenate([np.zeros(WINDOW - HOP + 1), samples / 32768.0])
    signal = signal[1:] - 0.96875 * signal[:-1]
    hertz = np.linspace(0, 8000, WINDOW // 2 + 1)[1:]
    mel, edges = 1127 * np.log1p(hertz / 700), np.linspace(0, 1127 * np.log1p(8000 / 700), FEATURES + 2)
    rising = (mel[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - mel[:, None]) / (edges[2:] - edges[1:-1])
    weights = np.vstack([np.zeros(FEATURES), np.maximum(0, np.minimum(rising, falling))])
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    rows = np.zeros((ROWS, FEATURES), np.int8)
    found = []
    for start in range(0, len(samples) - HOP + 1, HOP):
        power = np.abs(np.fft.rfft(signal[start : start + WINDOW] * hamming)) ** 2 / WINDOW
        features = np.clip((10 * np.log10(np.maximum(power @ weights, 1e-30)) + 52) / 64, 0, 1)
        row = np.clip(features / given["quantization"][0] - 128, -128, 127).astype(np.int8)
        rows = np.concatenate([rows[1:], [row]])
        network.set_tensor(given["index"], rows.reshape(given["shape"]))
        network.invoke()
        found.append(int(network.get_tensor(answer["index"])[0, 0]))
    return found


@pytest.mark.slow
@models.needed
@pytest.mark.skipif(
    not (RUNNER / "script.py").is_file(), reason="MTOOL_MLPERF_RUNNER is not benchmark/runner of mlcommons/tiny"
)
@pytest.mark.parametrize(
    ("name", "windows", "right"),
    [
        ("marvin_617de221_0.wav", [[0.0, 1.0]], 1),
        ("short_wav_easy10s.wav", [[1.0, 1.647625], [4.0, 4.76175], [7.0, 7.358625]], 2),
    ],
)
def test_the_runner_of_mlcommons(name: str, windows: list[list[float]], right: int, tmp_path: Path) -> None:
    """Times are those of a NUCLEO-L4R5ZI at 120 MHz: 1.43 cycles an instruction, which takes a nanosecond in QEMU."""
    folder, data = tmp_path / "sww", tmp_path / "data"
    assert begin(folder, SWW / "str_ww_ref_model.tflite", "--type", "mlperftiny", board="mps2_an386") == 0
    data.mkdir()
    shutil.copy(SWW / name, data)
    seconds = 1.0 if name.startswith("marvin") else 10.0
    truth = [{"wav_file": name, "sample_rate": 16000, "length_sec": seconds, "detection_windows": windows}]
    (data / "truth.json").write_text(json.dumps(truth))
    scale = 1000 * 1.43 / 120
    argv = [HERE / "drive_runner.py", RUNNER, data, tmp_path / "result.json", "mps2_an386", str(scale), "truth.json"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, *map(str, argv)], cwd=folder, env=env, check=True, timeout=600)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["model"] == "sww01" and result["period"] == pytest.approx(0.032)
    assert len(result["true_positives"]) == right and not result["false_positives"]
    reference = expected(SWW / name)
    assert len(result["activations"]) == len(reference)
    detected = [[n for n, one in enumerate(each) if one > THRESHOLD] for each in (result["activations"], reference)]
    assert detected[0] == detected[1]
    assert result["duty_cycle"] < 0.1
