"""Files compiled by Vela: their contents reach the driver; without a backend, the error names a solution."""

import dataclasses
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import models
import numpy as np
import packages
import pytest
from tflite_models import Op, T, model

import mtool
from mtool import boards
from mtool.base import proc
from mtool.base.errors import ModelError, MtoolError
from mtool.compiler import frontend
from mtool.compiler.backends import BackendSpec
from mtool.compiler.backends.ethos_u import vela
from mtool.compiler.backends.ethos_u.vela import COMPILED, precompiled
from mtool.compiler.backends.reading import operations_of
from mtool.compiler.request import Request
from mtool.stages.options import Options
from mtool.verification.oracles import litert

DRIVER = Path(__file__).parent / "ethos_u_driver"
BACKEND = BackendSpec("ethos_u")
BYTES = np.arange(64, dtype=np.uint8)
COMMANDS = np.frombuffer(b"COP1" + bytes(28), np.uint8)


def compiled(path: Path, places: list[int] | None = None, last: str = "y", **change: Any) -> Path:
    """Write a file as Vela does: an operator before and one behind what the NPU computes."""
    tensors = {
        "x": T("x", [1, 8], np.float32),
        "commands": T("commands", [32], np.uint8, data=change.pop("commands", COMMANDS)),
        "constants": T("constants", [64], np.uint8, data=BYTES),
        "scratch": T("scratch", [96], np.uint8),
        "from": T("from", [1, 8], np.int8, 0.5, 1),
        "to": T("to", [1, 16], np.int8, 0.25, 2),
        "y": T("y", [1, 16], np.float32),
    }
    tensors |= {
        name: dataclasses.replace(tensors[name], **fields) for name, fields in change.pop("tensors", {}).items()
    }
    inputs = change.pop("inputs", ["commands", "constants", "scratch", "scratch", "from"])
    ops = [
        Op("QUANTIZE", ["x"], ["from"]),
        Op("CUSTOM ethos-u", inputs, ["to"], custom=b"\1\4\1"),
        *([] if last == "to" else [Op("DEQUANTIZE", ["to"], ["y"])]),
    ]
    numbers = [-1, -1, -1, 0, 16, 48, -1] if places is None else places
    metadata = {"OfflineMemoryAllocation": np.asarray([0, 1, len(numbers), *numbers], np.int32)} if numbers else {}
    path.write_bytes(model([*tensors.values()], ops, ["x"], [last], metadata=metadata))
    return path


def test_what_is_in_the_file(tmp_path: Path) -> None:
    path = compiled(tmp_path / "net.tflite")
    operations = operations_of(frontend.load(path, Request()))
    (own,) = [one for one in operations if one.kind == COMPILED]
    assert own.output.quant is not None and own.output.quant.scale == (0.25,)
    made = precompiled(own)
    assert np.array_equal(made.commands, COMMANDS) and np.array_equal(made.constants, BYTES)
    assert made.bases == (64, 96, 96) and made.same == {2: 1} and made.constant_base == 0
    assert made.inputs == (vela.Place(1, 16, 8),) and made.outputs == (vela.Place(1, 48, 16),)
    built = mtool.compile(path, board="mps3_an547", options=Options(backends=(BACKEND,)))
    assert b"addresses[3] = {(uintptr_t)constants, (uintptr_t)(scratch), (uintptr_t)(scratch)};" in built.files["net.c"]
    kinds = {claim.kind: claim.backend for claim in built.manifest.claims}
    assert kinds == {"QuantizeLinear": "", COMPILED: "ethos_u", "DequantizeLinear": ""}
    (fit,) = mtool.check(path, [boards.get("mps3_an547")], Options(backends=(BACKEND,))).fits
    assert fit.without_estimate == ("ethos_u",) and fit.time is None  # Vela's estimate is not in the file


def test_a_second_memory(tmp_path: Path) -> None:
    inputs = ["commands", "constants", "scratch", "y", "from"]  # any tensor of bytes that nothing makes
    more = {"y": {"dtype": np.uint8, "shape": [40]}}
    data = compiled(tmp_path / "net.tflite", inputs=inputs, tensors=more, last="to")
    (own,) = [one for one in operations_of(frontend.load(data, Request())) if one.kind == COMPILED]
    made = precompiled(own)
    assert made.bases == (64, 96, 40) and made.same == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"places": []}, "no OfflineMemoryAllocation"),
        ({"places": [0, 0]}, "no OfflineMemoryAllocation"),
        ({"places": [-1, -1, -1, 0, 90, 48, -1]}, "'from' is outside its working memory"),
        ({"places": [-1, -1, -1, 32, 16, 48, -1]}, "'from' is outside its working memory"),
        ({"places": [-1, -1, -1, 0, 16, -1, -1]}, "'to' is outside its working memory"),
        ({"inputs": ["commands", "constants", "scratch", "scratch"]}, "runs only on an Arm Ethos-U"),
        ({"inputs": ["commands", "none", "scratch", "scratch", "from"]}, "runs only on an Arm Ethos-U"),
        ({"inputs": ["commands", "scratch", "scratch", "scratch", "from"]}, "are not in the file"),
        ({"tensors": {"scratch": {"dtype": np.int32}}}, "are not int8 or uint8"),
    ],
)
def test_files_that_make_no_sense(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        frontend.load(compiled(tmp_path / "net.tflite", **change), Request())


def test_errors_name_a_solution(tmp_path: Path) -> None:
    path = compiled(tmp_path / "net.tflite")
    with pytest.raises(MtoolError, match=r"ethos_u \(with driver=DIR") as raised:
        mtool.compile(path, board="mps3_an547")
    assert raised.value.exit_code == 3 and "to (CUSTOM ethos-u 1)" in str(raised.value)
    bad = compiled(tmp_path / "bad.tflite", commands=COMMANDS + 1)
    with pytest.raises(MtoolError, match="is not for the Ethos-U core driver") as raised:
        mtool.compile(bad, board="mps3_an547", options=Options(backends=(BACKEND,)))
    assert raised.value.exit_code == 5


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ethosu") is None, reason="Vela is not installed")
@models.needed
@pytest.mark.parametrize("board", ["host", "mps3_an547"])
@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("name", ["kws", "vww", "ic", "ad"])
def test_the_four_models(name: str, config: str, board: str, tmp_path: Path) -> None:
    """The stand-in driver checks every address and size, and computes the model that Vela was given."""
    original = models.FOLDER / f"{name}/{name}_int8.tflite"
    shutil.copy(original, tmp_path / "standin.tflite")
    path = tmp_path / "net.tflite"
    path.write_bytes(by_vela(tmp_path / "standin.tflite", config))
    (own,) = operations_of(frontend.load(path, Request()))
    made = precompiled(own)
    driver = tmp_path / "driver"
    inside = mtool.compile(tmp_path / "standin.tflite", board=board, options=Options(rounding="tflite", weights="text"))
    packages.write(inside, driver)
    for file in DRIVER.iterdir():
        shutil.copy(file, driver)
    expected = {
        "COMMANDS": made.commands.size,
        "SIZES": f"{{{', '.join(map(str, made.bases))}}}",
        "OPERATIONS": 1,
        "MEMORY": made.inputs[0].base,
        "INPUT": made.inputs[0].offset,
        "OUTPUT": made.outputs[0].offset,
        "MACS": config.rsplit("-", 1)[1],
    }
    (driver / "expected.h").write_text("".join(f"#define EXPECTED_{key} {value}\n" for key, value in expected.items()))
    options = Options(backends=(BackendSpec("ethos_u", options={"driver": str(driver)}),))
    operand = own.variables[0]
    sample = {operand.tensor: np.random.default_rng(1).integers(-128, 128, operand.shape).astype(np.int8)}
    (wanted,) = litert.outputs(str(original), [sample], title=name, exact=True)
    project = mtool.Deployment(tmp_path / "project")
    (got,) = mtool.run(path, board=board, inputs=[sample], options=options, deployment=project).outputs
    for key, value in wanted.items():
        np.testing.assert_array_equal(got[key], value)


def by_vela(path: Path, config: str) -> bytes:
    """Return the TFLite file that Vela's command line makes of a model."""
    folder = path.parent / "by_vela"
    argv = ["vela", str(path), f"--accelerator-config={config}", f"--output-dir={folder}"]
    proc.run(argv, what="vela", timeout_s=600)
    return (folder / f"{path.stem}_vela.tflite").read_bytes()
