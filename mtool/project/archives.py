"""Archives that are the same bytes for the same files: tar and zip, with one time for all members."""

import io
import tarfile
import time
import zipfile
from pathlib import PurePosixPath

from mtool.base.filetree import FileTree

_FIRST_OF_ZIP = 315532800  # 1980-01-01: a zip holds no earlier time


def tar(tree: FileTree, seconds: int) -> bytes:
    """Return a tar of a tree whose members begin with "./", folders among them, as TVM writes it.

    Args:
        tree: the files.
        seconds: the time of each member, since 1970.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT) as archive:
        folders = {str(parent) for path in tree for parent in PurePosixPath(path).parents} | {"."}
        for folder in sorted(folders):
            member = tarfile.TarInfo("." if folder == "." else f"./{folder}")
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(_owned(member, seconds))
        for path in tree:
            member = tarfile.TarInfo(f"./{path}")
            member.size, member.mode = len(tree[path]), 0o644
            archive.addfile(_owned(member, seconds), io.BytesIO(tree[path]))
    return data.getvalue()


def zipped(tree: FileTree, seconds: int) -> bytes:
    """Return a zip of a tree; each member's time is that of `seconds` since 1970, or 1980."""
    data = io.BytesIO()
    moment = time.gmtime(max(seconds, _FIRST_OF_ZIP))[:6]
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in tree:
            member = zipfile.ZipInfo(path, moment)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, tree[path])
    return data.getvalue()


def date(seconds: int) -> str:
    """Return the day of a time since 1970, as ISO 8601 has it."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _owned(member: tarfile.TarInfo, seconds: int) -> tarfile.TarInfo:
    member.mtime, member.uname, member.gname = seconds, "root", "root"
    return member
