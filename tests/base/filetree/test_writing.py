"""Users' files in a folder that mtool writes are never lost; an interrupted write is reported or repaired."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mtool.base import filetree
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree, open_folder

FIRST = FileTree({"mtool.json": b"1", "src/main.c": b"main", "src/old/gone.c": b"gone", "model/kws.c": b"kws"})
SECOND = FileTree({"mtool.json": b"2", "src/main.c": b"main", "src/new.c": b"new", "model/kws.c": b"other kws"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of the first tree."""
    assert filetree.write(FIRST, tmp_path / "project")
    return tmp_path / "project"


def there(folder: Path) -> dict[str, bytes]:
    return dict(filetree.from_folder(folder).files)


def stops(tree: FileTree, folder: Path) -> list[str]:
    """Check that mtool stops before it changes anything, and return what it names."""
    before = {path: (path.lstat().st_mtime_ns, path.is_symlink()) for path in folder.rglob("*")}
    with pytest.raises(UsageError) as caught:
        filetree.write(tree, folder)
    assert "--keep" in caught.value.hint and "--force" in caught.value.hint
    assert before == {path: (path.lstat().st_mtime_ns, path.is_symlink()) for path in folder.rglob("*")}
    return [line.split()[0] for line in caught.value.details]


def test_only_what_changed_is_written_and_only_what_mtool_made_is_removed(folder: Path) -> None:
    for path in (".git/HEAD", "notes.txt", "src/own.c", "src/old/own.c", "build/thesis.txt"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("mine")
    kept = (folder / "src/main.c").stat().st_mtime_ns
    assert filetree.write(SECOND, folder)
    mine = dict.fromkeys((".git/HEAD", "notes.txt", "src/own.c", "src/old/own.c", "build/thesis.txt"), b"mine")
    assert there(folder) == dict(SECOND.files) | mine
    assert (folder / "src/main.c").stat().st_mtime_ns == kept
    assert not filetree.write(SECOND, folder)
    (folder / "src/old/own.c").unlink()
    (folder / "src/own.c").unlink()
    assert filetree.write(FileTree({"mtool.json": b"3"}), folder)
    assert not (folder / "model").exists()
    assert (folder / "src/old").is_dir()  # a person emptied it, so it is theirs


def test_an_edited_file_is_not_overwritten(folder: Path) -> None:
    (folder / "model/kws.c").write_text("edited")
    (folder / "mtool.json").write_text("edited too")
    assert stops(SECOND, folder) == ["model/kws.c", "mtool.json"]
    assert stops(FIRST, folder) == ["model/kws.c", "mtool.json"]
    filetree.write(SECOND, folder, edits="keep")
    assert there(folder) == {**SECOND.files, "model/kws.c": b"edited", "mtool.json": b"edited too"}
    assert stops(SECOND, folder) == ["model/kws.c", "mtool.json"]  # still theirs
    filetree.write(SECOND, folder, edits="force")
    assert there(folder) == SECOND.files
    assert not filetree.write(SECOND, folder)


def test_an_edited_file_is_not_removed(folder: Path) -> None:
    (folder / "src/old/gone.c").write_text("edited")
    assert stops(SECOND, folder) == ["src/old/gone.c"]
    filetree.write(SECOND, folder, edits="keep")
    assert there(folder) == {**SECOND.files, "src/old/gone.c": b"edited"}
    filetree.write(FIRST, folder, edits="force")
    assert there(folder) == FIRST.files
    (folder / "src/old/gone.c").write_text("edited")
    filetree.write(SECOND, folder, edits="force")
    assert there(folder) == SECOND.files


def test_a_deleted_file_is_restored_and_an_equal_one_adopted(folder: Path) -> None:
    (folder / "src/main.c").unlink()
    (folder / "src/new.c").write_bytes(b"new")
    filetree.write(SECOND, folder)
    assert there(folder) == SECOND.files
    filetree.write(FIRST, folder)
    assert there(folder) == FIRST.files


def test_a_persons_file_where_mtool_would_write_is_left(folder: Path) -> None:
    (folder / "src/new.c").write_text("mine")
    assert stops(SECOND, folder) == ["src/new.c"]
    filetree.write(SECOND, folder, edits="keep")
    filetree.write(FIRST, folder)
    assert there(folder) == {**FIRST.files, "src/new.c": b"mine"}  # never mtool's, so never removed


def test_a_folder_without_a_record_is_someone_elses(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "mtool.json").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and was not made by mtool"):
        filetree.write(FIRST, tmp_path)
    assert len([*tmp_path.iterdir()]) == 2
    filetree.write(FIRST, tmp_path, edits="keep")
    assert there(tmp_path) == {**FIRST.files, "thesis.txt": b"years of work", "mtool.json": b"mine"}
    (tmp_path / ".mtool/files.json").write_text("{")
    with pytest.raises(UsageError, match=r"files\.json is not a list of the files"):
        filetree.write(FIRST, tmp_path)


@pytest.mark.parametrize("path", ["../theirs", "/theirs", "a/../../theirs", ".mtool/files.json"])
def test_a_record_that_names_files_elsewhere_is_refused(path: str, folder: Path) -> None:
    list_ = folder / ".mtool/files.json"
    list_.write_text(f'{{"schema_version": 1, "files": {{"{path}": "00"}}}}')
    with pytest.raises(UsageError, match="is not a list of the files"):
        filetree.write(SECOND, folder)
    with pytest.raises(ValueError, match="not a plain relative path"):
        FileTree({path: b""})


def test_no_link_is_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kws.c").write_bytes(FIRST["model/kws.c"])
    (folder / "model/kws.c").unlink()
    (folder / "model/kws.c").symlink_to(outside / "kws.c")
    assert stops(SECOND, folder) == ["model/kws.c"]
    filetree.write(SECOND, folder, edits="keep")
    assert (folder / "model/kws.c").is_symlink()
    filetree.write(SECOND, folder, edits="force")
    assert not (folder / "model/kws.c").is_symlink() and there(folder) == SECOND.files
    shutil.rmtree(folder / "model")
    (folder / "model").symlink_to(outside)
    assert stops(FIRST, folder) == ["model/kws.c"]
    with pytest.raises(UsageError, match="can't be overwritten"):
        filetree.write(FIRST, folder, edits="force")
    filetree.write(FIRST, folder, edits="keep")
    (folder / "model").unlink()
    filetree.write(FIRST, folder)
    shutil.rmtree(folder / ".mtool")
    (folder / ".mtool").symlink_to(outside)
    with pytest.raises(UsageError):
        filetree.write(SECOND, folder, edits="force")
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"kws.c": FIRST["model/kws.c"]}


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_not_a_file_is_never_replaced(kind: str, folder: Path) -> None:
    (folder / "model/kws.c").unlink()
    (os.mkdir if kind == "folder" else os.mkfifo)(folder / "model/kws.c")
    assert stops(SECOND, folder) == ["model/kws.c"]
    with pytest.raises(UsageError, match="can't be overwritten"):
        filetree.write(SECOND, folder, edits="force")
    filetree.write(SECOND, folder, edits="keep")
    assert (folder / "src/new.c").read_bytes() == b"new" and not (folder / "model/kws.c").is_file()


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_the_umask_sets_the_permissions(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        filetree.write(FIRST, tmp_path / "a/project")
    finally:
        os.umask(before)
    for path in (tmp_path / "a").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path


class Killed(BaseException):
    """The process is gone: nothing that comes after it is done either."""


def interfering(
    monkeypatch: pytest.MonkeyPatch, at: int, act: Callable[[open_folder.OpenFolder, str, tuple[object, ...]], None]
) -> Callable[[], int]:
    """Let something happen at one step of those that change a folder; return what counts the steps."""
    steps = 0

    def wrapped(name: str) -> Callable[..., object]:
        real = getattr(open_folder.OpenFolder, name)

        def step(self: open_folder.OpenFolder, *arguments: object) -> object:
            nonlocal steps
            steps += 1
            if steps == at or (steps > at and act is die):
                act(self, name, arguments)
            return real(self, *arguments)

        return step

    for name in ("create", "move", "remove", "prune"):
        monkeypatch.setattr(open_folder.OpenFolder, name, wrapped(name))
    return lambda: steps


def die(self: open_folder.OpenFolder, name: str, arguments: tuple[object, ...]) -> None:
    if name == "create":  # in the middle of a file
        target = self.path / str(arguments[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"hal")
    raise Killed


def refuse(self: open_folder.OpenFolder, name: str, arguments: tuple[object, ...]) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path / str(arguments[0])))


@pytest.mark.parametrize("is_new", [True, False])
def test_a_killed_process_leaves_what_the_next_one_completes(is_new: bool, tmp_path: Path) -> None:
    for at in range(1, 100):
        folder = tmp_path / str(at)
        if not is_new:
            filetree.write(FIRST, folder)
        with pytest.MonkeyPatch.context() as patched:
            steps = interfering(patched, at, die)
            with contextlib.suppress(Killed):
                filetree.write(SECOND, folder)
            if steps() < at:
                assert at > 8
                return
        half_written = folder.exists() and there(folder) not in ({}, FIRST.files, SECOND.files)
        assert not half_written or filetree.interrupted(folder)
        other = SECOND if at % 2 else FileTree({**SECOND.files, "model/kws.c": b"a third one"})
        filetree.write(other, folder)
        assert there(folder) == other.files and not filetree.interrupted(folder)
        assert [path.name for path in (folder / ".mtool").iterdir()] == ["files.json"]
    raise AssertionError("it never ends")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_full_disk_leaves_the_folder_as_it_was_or_is_reported(is_new: bool, tmp_path: Path) -> None:
    for at in range(1, 100):
        folder = tmp_path / str(at) / "deep"
        if not is_new:
            filetree.write(FIRST, folder)
        with pytest.MonkeyPatch.context() as patched:
            steps = interfering(patched, at, refuse)
            try:
                filetree.write(SECOND, folder)
            except UsageError as reported:
                assert reported.exit_code == 2 and str(folder) in str(reported)
                assert "no space left on device" in str(reported).lower()
                if "half-written" in str(reported):
                    assert filetree.interrupted(folder)
                else:
                    assert folder.parent.exists() != is_new
                    assert is_new or there(folder) == FIRST.files
                    assert is_new or [path.name for path in (folder / ".mtool").iterdir()] == ["files.json"]
            else:
                assert there(folder) == SECOND.files
            if steps() < at:
                assert at > 8
                return
        filetree.write(SECOND, folder)
        assert there(folder) == SECOND.files and not filetree.interrupted(folder)
    raise AssertionError("it never ends")
