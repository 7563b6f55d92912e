"""Write a tree into a folder where a user also has files, which are never touched.

The folder's record (record.py) lists what mtool wrote. A file that differs from what mtool wrote is the user's: it is
overwritten or removed only on request. All files are first written below `.mtool/new` and then moved into place, so
that a full disk, or a file that can't be written, leaves the folder as it was.
"""

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from mtool.base import files, locks, plural
from mtool.base.errors import UsageError, of_os_error
from mtool.base.filetree import record
from mtool.base.filetree.open_folder import FileState, OpenFolder, open_folder
from mtool.base.filetree.record import FILE, FOLDER, Record
from mtool.base.filetree.tree import IGNORED, SECRETS, FileTree
from mtool.base.frozen import frozen

Edits = Literal["stop", "force", "keep"]
"""What to do with a user's files where mtool would write or remove its own: stop, overwrite them, or keep them."""

_NEW = f"{FOLDER}/new"
_LIST = f"{FOLDER}/{FILE}"
_LINK = "a link"

log = logging.getLogger(__name__)


def write(tree: FileTree, folder: Path, *, edits: Edits = "stop") -> bool:
    """Write a tree into a folder, and remove files of an earlier tree; nothing else in it is touched.

    Unchanged files keep their times, so that build systems see only what changed.

    Args:
        tree: the files to write.
        folder: the folder; created with its parents if missing.
        edits: what to do with existing files that differ from what mtool wrote. "keep" leaves them as they are, and
            does not write the files that they replace.

    Returns:
        Whether anything changed.

    Raises:
        UsageError: files that are not mtool's are in the way (all are named), another process has locked the folder, or
            the operating system refuses; the folder is as it was, unless the message says that it is half-written.
    """
    with locks.folder(folder), _os_errors(folder), _created(folder), open_folder(folder) as root:
        old_record = record.load(folder)
        _check_own(folder, root.names(), old_record, edits)
        plan = _plan(tree, root, old_record or Record(), edits)
        _log_left(plan.after, folder)
        if not plan.write and not plan.remove and plan.after == old_record:
            return False
        _replace_files(plan, tree, root, old_record)
        return True


@contextmanager
def written_once(tree: FileTree, folder: Path, *, edits: Edits = "stop") -> Iterator[None]:
    """Write files that belong to the user from then on: mtool keeps no record of them.

    If the block fails, they are removed, and so is the folder if it was created for them.

    Raises:
        UsageError: as `write`.
    """
    is_new = not folder.exists()
    write(tree, folder, edits=edits)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, UsageError):
            write(FileTree(), folder, edits="keep")
            _forget(folder)
            if is_new:
                folder.rmdir()
        raise
    with _os_errors(folder):
        _forget(folder)


def _forget(folder: Path) -> None:
    with open_folder(folder) as opened:
        opened.remove(_LIST)


def check_folder(folder: Path, *, edits: Edits = "stop") -> None:
    """Check, before the work of making a tree, that it can be written into a folder; nothing is written.

    Raises:
        UsageError: it is not a folder, can't be created or written to, or has other contents.
    """
    with _os_errors(folder):
        _check_is_folder(folder)
        files.check_folder(folder)
        if folder.exists():
            _check_own(folder, (path.name for path in folder.iterdir()), record.load(folder), edits)


def log_left(folder: Path) -> None:
    """Repeat the warnings about files that the last `write` left as they are.

    Raises:
        UsageError: the folder's record can't be read.
    """
    last_record = record.load(folder)
    if last_record is not None:
        _log_left(last_record, folder)


def _log_left(last_record: Record, folder: Path) -> None:
    for path, why in sorted(last_record.left.items()):
        log.warning("%s is left as it is: %s", folder / path, why)


def _check_own(folder: Path, names: Iterable[str], old_record: Record | None, edits: Edits) -> None:
    if old_record is None and edits == "stop" and not {*names} <= {FOLDER}:
        hint = "give an empty or a new folder; or --keep, to keep what is there and write beside it"
        raise UsageError(f"{folder} is not empty and was not made by mtool", details=[f"it has no {_LIST}"], hint=hint)


def _check_is_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder", hint="give another folder")
    if folder.is_symlink() and not folder.exists():
        raise UsageError(f"{folder} is a broken link", details=[f"its target is {folder.readlink()}"])


@frozen
class _Plan:
    """The files to write and to remove, and the record while that is done and afterwards."""

    write: Sequence[str]
    remove: Sequence[str]
    until: Record
    after: Record


def _plan(tree: FileTree, root: OpenFolder, old: Record, edits: Edits) -> _Plan:
    """Compare the folder with what mtool wrote and with what it would write.

    Raises:
        UsageError: a user's files are in the way, and `edits` is "stop".
    """
    digests = {path: hashlib.sha256(tree[path]).hexdigest() for path in tree}
    states = {path: root.look(path) for path in {*digests, *old.files, *old.writing}}
    theirs = {
        path: _whose(path, file, old, is_made=path in digests)
        for path, file in sorted(states.items())
        if not (file.missing or old.wrote(path, file.digest) or file.digest == digests.get(path))
    }
    ignores = {path for path in theirs if path in digests and _ignores(root.path / path, tree)}
    theirs = {path: why for path, why in theirs.items() if path not in ignores}
    if edits == "stop" and theirs:
        what = f"{root.path} has {_counted(len(theirs))} that mtool did not write or that you edited"
        hint = "--keep leaves these files as they are, --force overwrites or removes them"
        if IGNORED in theirs and IGNORED in digests:
            hint = f"add these lines to {IGNORED}: {', '.join(tree.text(IGNORED).split())}; {hint}"
        raise UsageError(what, details=[f"{path}   {why}" for path, why in theirs.items()], hint=hint)
    blocked = [path for path in theirs if states[path].other and (states[path].other != _LINK or path not in digests)]
    if edits == "force" and blocked:
        what = f"{root.path} has {_counted(len(blocked))} that can't be overwritten"
        details = [f"{path}   {theirs[path]}" for path in blocked]
        raise UsageError(what, details=details, hint="move these files away")
    skipped = ignores | ({*theirs} if edits == "keep" else set())
    write = [path for path in sorted(digests) if path not in skipped and states[path].digest != digests[path]]
    gone = [path for path in sorted(states) if path not in digests and path not in skipped]
    edited = {path: old.files[path] for path in skipped if path in digests and path in old.files}
    after = {path: digest for path, digest in digests.items() if path not in skipped} | edited
    left_digests = {path: states[path].digest for path in states if states[path].digest and path not in skipped}
    return _Plan(
        write=write,
        remove=[path for path in gone if not states[path].missing],
        until=Record({**after, **left_digests, **edited}, {path: digests[path] for path in write}),
        after=Record(after, left={path: theirs[path] for path in skipped - ignores}),
    )


def _ignores(path: Path, tree: FileTree) -> bool:
    """Return whether a path is a user's .gitignore that has all lines of mtool's, and so takes its place."""
    if path.name != IGNORED or not path.is_file():
        return False
    return {*tree.text(IGNORED).split()} <= {*path.read_text(errors="replace").split()}


def _whose(path: str, file: FileState, old: Record, *, is_made: bool) -> str:
    if file.other:
        return f"it is {file.other}"
    if path not in old.files:
        return "mtool did not write it"
    return "edited" + ("" if is_made else "; mtool no longer writes it")


def _counted(number: int) -> str:
    return "a file" if number == 1 else plural.count(number, "file")


def _replace_files(plan: _Plan, tree: FileTree, root: OpenFolder, old_record: Record | None) -> None:
    """Write everything to new files, then move them to their paths: the deepest first, `mtool.json` among the last."""
    order = sorted(plan.write, key=lambda path: (-path.count("/"), path))
    try:
        _remove_new_files(root)
        if old_record is None:
            _save(root, Record())  # from here on the folder is mtool's, whatever happens
        for number, path in enumerate(order):
            with root.naming(path):  # an error names the file's own path, not the temporary one
                root.create(f"{_NEW}/{number}", tree[path], 0o600 if Path(path).name in SECRETS else 0o666)
        _save(root, plan.until)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove_new_files(root)
            if old_record is None:
                root.remove(_LIST)
        raise
    try:
        for path in plan.remove:
            root.remove(path)
        for number, path in enumerate(order):
            root.move(f"{_NEW}/{number}", path)
        _save(root, plan.after)
    except OSError as failed:
        error = of_os_error(failed, f"{root.path} is half-written")
        hint = "fix that, and run the same command again to complete it"
        raise UsageError(error.what, details=[f"{failed.filename}: {failed.strerror}"], hint=hint) from None
    with contextlib.suppress(OSError):
        _remove_new_files(root)


def _save(root: OpenFolder, what: Record) -> None:
    root.create(f"{_NEW}/list", what.to_json())
    root.move(f"{_NEW}/list", _LIST)


def _remove_new_files(root: OpenFolder) -> None:
    """Remove new files that were not moved to their paths, of this process or of a killed one."""
    for name in root.names(_NEW):
        root.remove(f"{_NEW}/{name}")
    root.prune(f"{_NEW}/name")


@contextmanager
def _created(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; remove what was created if the block fails."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    _check_is_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def _os_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failed:
        raise of_os_error(failed, f"{failed.filename or folder} can't be written") from None
