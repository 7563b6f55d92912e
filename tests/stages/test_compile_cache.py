"""The same model, options and tools are compiled and built once, in any folder."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool import commands
from mtool.base import cache
from mtool.cli import app
from mtool.commands import Options
from mtool.device import session


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MTOOL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.onnx"
    save(path, "Relu")
    return path


def save(path: Path, operator: str) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], name="one")], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def entries() -> int:
    kept = cache.of_user()
    assert kept is not None
    return kept.content().entries


def test_c_is_compiled_once(model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commands.compile(model, board="host")
    assert entries() == 1
    with monkeypatch.context() as closed:
        closed.setattr("mtool.compiler.compilation.compile_models", None)  # whoever calls it fails
        again = commands.compile(model, board="host")
    assert (again.files, again.manifest) == (first.files, first.manifest)
    other = commands.compile(model, board="host", options=Options(io="external"))
    assert other.files != first.files and entries() == 2
    save(model, "Sigmoid")
    assert commands.compile(model, board="host").files != first.files and entries() == 3


@pytest.mark.parametrize("spoilt", [b"[]", b"{", b'{"notes": [[1]], "apart_bytes": 0}', b'{"notes": []}'])
def test_a_malformed_entry_is_compiled_again(model: Path, spoilt: bytes) -> None:
    first = commands.compile(model, board="host")
    kept = cache.of_user()
    assert kept is not None
    (path,) = (each for each in kept.folder.rglob("*") if each.is_file())
    content = kept.get(path.name)
    assert content is not None
    for name in [each for each in content if content[each].data.startswith(b'{"')]:
        kept.put(path.name, {**content, name: cache.File(spoilt)})
        assert commands.compile(model, board="host").files == first.files
        assert kept.get(path.name) == content


def test_several_are_compiled_once_together(
    model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = model.with_name("other.onnx")
    save(other, "Sigmoid")
    caplog.set_level("INFO")
    first = commands.compile_models([model, other], board="host")
    reported = [one.getMessage() for one in caplog.records if "together" in one.getMessage()]
    assert entries() == 1
    caplog.clear()
    with monkeypatch.context() as closed:
        closed.setattr("mtool.compiler.compilation.compile_models", None)
        again = commands.compile_models([model, other], board="host")
    assert [(one.files, one.manifest, one.manifest.firmware) for one in again] == [
        (one.files, one.manifest, one.manifest.firmware) for one in first
    ]
    assert [one.getMessage() for one in caplog.records if "together" in one.getMessage()] == reported
    own = commands.compile_models([model, other], board="host", options=Options(arenas="own"))
    assert own[0].files != first[0].files and entries() == 2
    turned = commands.compile_models([other, model], board="host")
    assert [one.manifest.model for one in turned] == ["other", "m"] and entries() == 3
    save(other, "Relu")
    commands.compile_models([model, other], board="host")
    assert entries() == 4


def test_what_was_warned_of_is_reported_again(
    model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtool.compiler import compilation
    from mtool.compiler.request import Compilation

    compile_models = compilation.compile_models

    def warns(*given: object) -> Compilation:
        compilation.log.warning("100 %% of %s", "x")
        return compile_models(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(compilation, "compile_models", warns)
    for _ in range(2):
        caplog.clear()
        commands.compile(model, board="host")
        assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == ["100 % of x"]


def test_firmware_is_built_once_in_a_folder(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "p"
    built = commands.build_model(commands.compile(model, board="host"), folder).built
    firmware = built.firmware["host_driven"].read_bytes()
    shutil.rmtree(folder)
    monkeypatch.setattr("mtool.device.build.host.commands", None)
    again = commands.build_model(commands.compile(model, board="host"), folder).built
    assert (again.restored, again.rebuilt) == (("host_driven",), ())
    assert again.firmware["host_driven"].read_bytes() == firmware
    with session.open(folder) as device:
        assert device.run({"x": np.array([[-1, 0, 1, 2]], np.float32)})["y"].tolist() == [[0, 0, 1, 2]]
    assert commands.build_model(commands.compile(model, board="host"), folder).built.restored == ()


def test_the_command_shows_and_clears(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands.compile(model, board="host")
    assert app.invoke(["cache"]) == 0 and "kept: 1 entry" in capsys.readouterr().out
    assert app.invoke(["cache", "--clear"]) == 0 and entries() == 0


def test_a_single_file_of_the_cache_is_the_same(model: Path) -> None:
    """What the C files consist of is kept beside them."""
    options = Options(single_file=True)
    first, again = (commands.compile(model, board="host", options=options) for _ in range(2))
    assert entries() == 1
    assert again.sources().files == first.sources().files
    assert "static MT_ALONE void m_" in again.sources().text("m.c")
