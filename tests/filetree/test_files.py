"""One file: whole or not at all, with the rights that the umask gives."""

import os
import resource
from pathlib import Path

import pytest

from mtool import files
from mtool.errors import UsageError


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


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.check_writable(pipe)
    files.write(pipe, b"sent", follow=True)
    assert os.read(reader, 10) == b"sent"
    os.close(reader)
    files.write(Path(os.devnull), b"gone", follow=True)
    assert Path(os.devnull).is_char_device()


def refused(path: Path, *words: str) -> None:
    """Check that a file can't be written, that this is told before the work and after it, and that nothing is left."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    for attempt in (lambda: files.check_writable(path), lambda: files.write(path, bytes(100_000), follow=True)):
        with pytest.raises(UsageError, match="can't be written") as caught:
            attempt()
        assert all(word in str(caught.value).lower() for word in words)
        assert caught.value.what.startswith(str(path))
    assert before == (sorted(path.parent.iterdir()) if path.parent.is_dir() else [])


def test_what_can_not_be_written_is_told_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
