"""The C templates' bytecode: read if valid, compiled again if not, not written where that is impossible."""

import sys
from pathlib import Path

import jinja2
import pytest

from mtool.compiler.kernels.rendering import PycacheBytecode


def render(folder: Path, settings: str = "") -> str:
    cache = PycacheBytecode(settings)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), bytecode_cache=cache, autoescape=False)
    return environment.get_template("a.c.j2").render(x=3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "a.c.j2").write_text("{{ x }}a")
    assert render(tmp_path) == "3a"
    return tmp_path


def bytecode(folder: Path) -> Path:
    (found,) = (folder / "__pycache__").iterdir()
    return found


def test_a_template_is_translated_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *args: pytest.fail("translated again"))
    assert render(folder) == "3a"


def test_a_changed_template_or_setting_is_translated_again(folder: Path) -> None:
    before = bytecode(folder).read_bytes()
    assert render(folder, "other settings") == "3a"
    assert bytecode(folder).read_bytes() != before
    (folder / "a.c.j2").write_text("{{ x }}b")
    assert render(folder) == "3b"


@pytest.mark.parametrize("kept", [0, 5, 20, 60])
def test_damaged_bytecode_is_compiled_again(folder: Path, kept: int) -> None:
    whole = bytecode(folder).read_bytes()
    bytecode(folder).write_bytes(whole[:kept])
    assert render(folder) == "3a"
    assert bytecode(folder).read_bytes() == whole


def test_a_folder_that_can_not_be_written_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.c.j2").write_text("{{ x }}a")
    (tmp_path / "__pycache__").write_text("no folder")
    assert render(tmp_path) == "3a"
    (tmp_path / "__pycache__").unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render(tmp_path) == "3a"
    assert not (tmp_path / "__pycache__").exists()
