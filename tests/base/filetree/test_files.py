"""A file is written as a whole or not at all, with the umask's permissions."""

import os
import resource
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from mtool.base import files
from mtool.base.errors import UsageError


def test_a_file_is_replaced_and_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    files.write(path, b"one")
    before = os.umask(0)
    os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~before
    path.chmod(0o640)
    files.write(path, b"two")
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o640
    assert [*path.parent.iterdir()] == [path]


def test_a_link_is_followed_only_where_a_person_named_it(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.write_text("mine")
    link.symlink_to(theirs)
    files.write(link, b"new", follow=True)
    assert link.is_symlink() and theirs.read_bytes() == b"new"
    files.write(link, b"newer")
    assert not link.is_symlink() and theirs.read_bytes() == b"new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    files.check_writable(Path(os.devnull))
    files.write(Path(os.devnull), b"gone", follow=True)
    assert Path(os.devnull).is_char_device()


def test_a_pipe_that_is_open_here_is_written_to() -> None:
    """As /dev/stdout is before another program's input, or a shell's `>(program)`."""
    reader, writer = os.pipe()
    path = Path(f"/dev/fd/{writer}")
    try:
        files.check_writable(path)
        files.write(path, b"sent", follow=True)
        assert os.read(reader, 10) == b"sent"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.timeout(20)
def test_nothing_waits_for_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    os.mkfifo("pipe.onnx")
    refused(Path("pipe.onnx"), "a pipe, not a file", "/dev/stdout")
    Path("link.onnx").symlink_to("pipe.onnx")
    refused(Path("link.onnx"), "a pipe, not a file")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.npz")
        refused(Path("socket.npz"), "a socket, not a file")
    monkeypatch.setattr(Path, "is_char_device", lambda self: False)
    monkeypatch.setattr(Path, "is_block_device", lambda self: True)
    refused(Path("/dev/zero"), "a disk, not a file")


def refused(path: Path, *words: str) -> None:
    """Check that a file can't be written, that this is reported before and after the work, and that nothing is left."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    for attempt in (lambda: files.check_writable(path), lambda: files.write(path, bytes(100_000), follow=True)):
        with pytest.raises(UsageError, match="can't be written") as caught:
            attempt()
        assert all(word in str(caught.value).lower() for word in words)
        assert caught.value.what.startswith(str(path))
    assert before == (sorted(path.parent.iterdir()) if path.parent.is_dir() else [])


def test_a_file_that_can_not_be_written_is_reported_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(tmp_path, "is a directory")
    refused(tmp_path / ("n" * 300), "file name too long", "shorter")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "links")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "y")
    (tmp_path / "protected").write_text("mine")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "protected")  # who is root may do all
    refused(tmp_path / "protected", "permission denied")
    assert (tmp_path / "protected").read_text() == "mine"


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(UsageError, match="can't be written") as caught:
            files.write(path, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "ulimit -f" in caught.value.hint
    assert path.read_bytes() == b"old" and [*tmp_path.iterdir()] == [path]


def test_a_read_only_file_system_is_no_matter_of_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="permission denied"):
        files.check_folder(tmp_path / "new")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    for check, path in ((files.check_folder, tmp_path / "new"), (files.check_writable, file)):
        with pytest.raises(UsageError, match="read-only file system") as refused:
            check(path)
        assert refused.value.hint == "the file system is read-only: choose another folder"
