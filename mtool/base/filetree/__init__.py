"""Sets of files as pure data, and the folders that they are written to."""

from mtool.base.filetree.record import FOLDER, interrupted
from mtool.base.filetree.tree import FileTree, digest_of, from_folder, is_plain
from mtool.base.filetree.writing import Edits, check_folder, tell_left, write, written_once

__all__ = [
    "FOLDER",
    "Edits",
    "FileTree",
    "check_folder",
    "digest_of",
    "from_folder",
    "interrupted",
    "is_plain",
    "tell_left",
    "write",
    "written_once",
]
