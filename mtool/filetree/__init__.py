"""Sets of files as pure data, and the folders that they are written to."""

from mtool.filetree.record import FOLDER, interrupted
from mtool.filetree.tree import FileTree, digest_of, from_folder, is_plain
from mtool.filetree.writing import Edits, check_folder, tell_left, write, written_once

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
