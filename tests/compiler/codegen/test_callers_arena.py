"""The caller's arena: several instances of a model; and the section of a model's own arena."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sanitized
import stateful
from graphs import FLAGS, reference

import mtool
from mtool.cli import app
from mtool.compiler.codegen import conventions

CRT = Path(__file__).parents[3] / "crt" / "include"
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
START = 0.25  # the initial state: not zeros, so that the model must set it
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, onnx.ModelProto, str, mtool.Options]:
    folder = tmp_path_factory.mktemp("cell")
    proto, ((output, value),) = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, folder / "cell.onnx")
    first = np.full((1, 1, stateful.HIDDEN), START, np.float32)
    options = mtool.Options(
        states=((output, value),), state_values={value: first}, conventions=conventions(context=True), arenas="caller"
    )
    return folder / "cell.onnx", proto, f"{output}:{value}={START}", options


def test_two_instances_keep_their_own_states(
    cell: tuple[Path, onnx.ModelProto, str, mtool.Options], tmp_path: Path
) -> None:
    path, proto, _, options = cell
    model = mtool.compile(path, board="host", options=options)
    for name in model.files:
        (tmp_path / name).write_bytes(model.files[name])
    library = ctypes.CDLL(str(sanitized.library(tmp_path, "cell", FLAGS)))
    assert not hasattr(library, "cell_arena")
    size = model.manifest.arena_bytes
    arenas = [np.full(size // 8 + 2, 0xA5A5A5A5A5A5A5A5, np.uint64) for _ in range(2)]
    places = [one.ctypes.data + -one.ctypes.data % 16 for one in arenas]
    for place in places:
        library.cell_reset(ctypes.c_void_p(place))
    rng = np.random.default_rng(0)
    ((output, value),) = options.states
    kept = [np.full((1, 1, stateful.HIDDEN), START, np.float32) for _ in arenas]
    names = [one.name for one in proto.graph.output]
    for instance in (0, 0, 1, 0, 1, 1, 1, 0):
        x = rng.standard_normal((1, 1, stateful.SIZE)).astype(np.float32)
        made = dict(zip(names, reference(proto, {"x": x, value: kept[instance]}), strict=True))
        kept[instance] = made[output]
        y = np.zeros((1, 1, stateful.CLASSES), np.float32)
        inputs, outputs = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
        assert library.cell_run(ctypes.c_void_p(places[instance]), ctypes.byref(inputs), ctypes.byref(outputs)) == 0
        np.testing.assert_allclose(y.reshape(-1), made["y"].reshape(-1), atol=1e-6)


@pytest.mark.slow
def test_a_firmware_gives_it_an_arena(
    cell: tuple[Path, onnx.ModelProto, str, mtool.Options],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path, _, state, _ = cell
    assert app.invoke(["verify", str(path), "--state", state, "--arena", "caller"]) == 0, capsys.readouterr().err
    assert app.invoke(["build", str(path), "--state", state, "--arena", "caller", "--io", "external"]) == 0
    assert subprocess.run([tmp_path / "build" / "cell-host" / "build" / "standalone"], check=False).returncode == 0
    for wrong, reported in (
        (["--interface-api", "step"], "--arena caller is for --interface-api c"),
        (["--arena-section", ".fast"], "the caller places the arena"),
    ):
        assert app.invoke(["compile", str(path), "--state", state, "--arena", "caller", *wrong]) == 2
        assert reported in capsys.readouterr().err
    assert app.invoke(["compile", str(path), "--state", state, "--arena", "caller", "--emit", "cmake"]) == 2


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils are not installed")
def test_the_arena_lies_in_the_section_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = [str(DIGITS), str(DIGITS), "--name", "a", "--name", "b"]
    for models, source in (([str(DIGITS)], "digits_int8.c"), (both, "a_b.c")):
        folder = tmp_path / source
        assert app.invoke(["compile", *models, "--arena-section", ".bss.fast", "-d", str(folder)]) == 0
        made = tmp_path / "made.o"
        command = ["gcc", "-std=c99", "-c", f"-I{CRT}", '-DMT_ARENA_SECTION=".other"', folder / source, "-o", made]
        subprocess.run(command, check=True)
        shown = subprocess.run(["readelf", "-SW", made], check=True, capture_output=True, text=True).stdout
        assert ".bss.fast" in shown and ".other" not in shown
    for wrong, reported in (('x"', "not a valid section name"), (".text.fast", "which lie in flash")):
        assert app.invoke(["compile", str(DIGITS), "--arena-section", wrong, "-d", str(tmp_path / "no")]) == 2
        assert reported in capsys.readouterr().err
