"""mtool quantize: what it prints, its JSON, and the errors that lead to it."""

import json
import re
from pathlib import Path

import models
import numpy as np
import onnx
import pytest

from mtool import boards, commands
from mtool.cli import app
from mtool.device.build import fit

pytest.importorskip("onnxruntime")

Captured = pytest.CaptureFixture[str]
KWS = models.path("kws/kws_float32")
VWW = models.path("vww/vww_float32")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@models.needed
def test_it_reports_the_loss_the_worst_layers_and_the_saving(tmp_path: Path, capsys: Captured) -> None:
    golden = models.golden("kws/kws_float32")
    with np.load(golden) as data:
        classes = data["y0"].reshape(4, -1).argmax(axis=1)
        np.savez(tmp_path / "data.npz", x0=data["x0"], labels=classes)
    arguments = ["quantize", str(KWS), "--data", "data.npz", "-o", "out.onnx"]
    assert app.invoke(arguments) == 0
    captured = capsys.readouterr()
    assert (
        re.search(r"top-1 +100.0% \(51.0% to 100.0%\)  100.0%", captured.out)
        and "top-1 the same for 4 of 4" in captured.out
    )
    assert "worst of 14 layers" in captured.out and "output SQNR" in captured.out and "Conv" in captured.out
    assert "add --evaluate" in captured.err and "flash" not in captured.out.partition("RAM: arena")[0]
    sizes = re.search(r"weights in the file +([\d.]+) KB +([\d.]+) KB", captured.out)
    assert sizes and float(sizes[2]) < 0.4 * float(sizes[1])
    assert "RAM: arena" in captured.out and "wrote out.onnx" in captured.out
    assert "4 samples, minmax; activations int8 asymmetric; weights int8 per channel" in captured.err
    assert app.invoke([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "quantize" and document["path"] == "out.onnx"
    assert document["classes"] == {"samples": 4, "same": 4}
    assert [one["top1"] for one in document["accuracy"]] == [1, 1]
    assert document["outputs"][0]["sqnr_db"] > 20
    assert len(document["layers"]) == 14 and document["layers"][0]["sqnr_db"] < document["layers"][-1]["sqnr_db"]
    assert document["after"]["file_bytes"] == (tmp_path / "out.onnx").stat().st_size
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)


@models.needed
def test_a_wrong_option_ends_with_2(tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke(["quantize", str(KWS)]) == 2
    assert "--data" in capsys.readouterr().err
    assert app.invoke(["quantize", str(KWS), "--data", "gone.npz"]) == 2
    assert "error: gone.npz does not exist" in capsys.readouterr().err
    assert app.invoke(["quantize", str(KWS), "--data", "gone.npz", "--method", "magic"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@models.needed
def test_a_float_model_that_does_not_fit_is_sent_here(capsys: Captured) -> None:
    assert app.invoke(["check", str(VWW), "--board", "microbit_v2"]) == 4
    *_, hint, code = capsys.readouterr().err.splitlines()
    assert hint.startswith("an int8 version would need about ") and code == "exit 4"
    assert " of flash" in hint and hint.endswith(": mtool quantize vww_float32.onnx --data DIR")
    assert app.invoke(["check", str(VWW), "--board", "arduino_uno"]) == 4
    assert "even an int8 version would need about " in capsys.readouterr().err
    assert app.invoke(["check", str(models.path("vww/vww_int8_qdq")), "--board", "arduino_uno"]) == 4
    assert "try a smaller model" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.product(3)
@models.needed
@pytest.mark.parametrize("name", ["kws", "ic", "ad"])
def test_the_estimate_is_near_the_real_int8_model(name: str) -> None:
    """The same function handles linker overflows; only memories that are too small are reported."""
    board = boards.get("arduino_uno")
    plain = commands.compile(models.path(f"{name}/{name}_float32"), board="microbit_v2").manifest
    as_small = commands.Options(optimize="size")  # flash may be spent on larger constants, where there is room
    small = commands.compile(models.path(f"{name}/{name}_int8_qdq"), board="microbit_v2", options=as_small).manifest
    hint = fit.advice(plain, board, {"flash": plain.constant_bytes})
    reported = int(hint.split("about ")[1].split(" KB")[0].replace(",", "")) * 1024
    assert 0.9 * small.constant_bytes < reported < 1.3 * small.constant_bytes
    assert "sram" not in hint
