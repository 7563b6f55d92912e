"""mtool without POSIX features: no such import, no folder handles, no process groups."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mtool.base import locks, resources, system
from mtool.base.errors import ModelError
from mtool.base.filetree import FileTree, write
from mtool.base.locks import HeldLock, take

HIDING = Path(__file__).parent / "hiding.py"
DIGITS = str(resources.path("examples/digits") / "digits_int8.onnx")


@pytest.mark.slow
def test_a_model_is_checked_compiled_and_run_on_the_host(tmp_path: Path) -> None:
    commands = [
        ["check", DIGITS, "--board", "sim_m4", "--board", "host"],
        ["compile", DIGITS, "-d", str(tmp_path / "c")],
        ["compile", DIGITS, "-d", str(tmp_path / "c")],
        ["run", DIGITS, "--board", "host", "-d", str(tmp_path / "host"), "--option", "opt=-O2"],
    ]
    done = subprocess.run(
        [sys.executable, str(HIDING)],
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "argmax" in done.stdout
    assert (tmp_path / "c" / "digits_int8.c").is_file()


@pytest.fixture
def paths_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "HAS_FOLDER_HANDLES", False)


@pytest.mark.usefixtures("paths_alone")
def test_a_tree_is_written_by_paths_and_never_through_a_link(tmp_path: Path) -> None:
    folder, other = tmp_path / "p", tmp_path / "other"
    assert write(FileTree({"a/b.c": b"1", "c.h": b"2"}), folder)
    assert not write(FileTree({"a/b.c": b"1", "c.h": b"2"}), folder)
    assert write(FileTree({"c.h": b"3"}), folder)
    assert (folder / "c.h").read_bytes() == b"3" and not (folder / "a").exists()
    other.mkdir()
    (folder / "a").symlink_to(other)
    with pytest.raises(Exception, match="did not write"):
        write(FileTree({"a/b.c": b"1", "c.h": b"3"}), folder)
    assert not [*other.iterdir()]


def test_one_process_holds_a_lock_without_flock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("filelock")
    monkeypatch.setattr(locks, "HAS_FLOCK", False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = take("a.lock")
    assert isinstance(first, HeldLock) and first.handle is None
    assert take("a.lock").isdigit()  # type: ignore[union-attr] - the number of this process
    first.release()
    again = take("a.lock")
    assert isinstance(again, HeldLock)
    again.release()


@pytest.mark.usefixtures("paths_alone")
@pytest.mark.parametrize("location", ["link.bin", "C:other.bin"])
def test_external_data_by_paths_stays_in_its_folder(location: str, tmp_path: Path) -> None:
    from onnx import TensorProto, external_data_helper

    from mtool.compiler.frontend.external import Extent, Folder

    (tmp_path / "real.bin").write_bytes(bytes(8))
    (tmp_path / "link.bin").symlink_to(tmp_path / "real.bin")
    (tmp_path / "C:other.bin").write_bytes(bytes(8))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=bytes(8))
    external_data_helper.set_external_data(tensor, location)
    folder = Folder(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="outside its folder"):
        list(folder.blocks(tensor, Extent(location, 0, 8)))
    assert b"".join(folder.blocks(tensor, Extent("real.bin", 0, 8))) == bytes(8)
