"""NumPy files: the arrays' headers are read first, their data only when needed.

A file is untrusted: its header may claim more than the file holds, and a few kilobytes may unpack to gigabytes.
"""

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from mtool.base import files
from mtool.base.errors import UsageError, of_os_error
from mtool.base.frozen import frozen
from mtool.base.tensors import Array

_ZIP = b"PK"
_SUFFIX = ".npy"  # of each array's name in a .npz file
UNPACKED_BYTES = 1 << 30  # a larger array is refused if it unpacks to more than `_UNPACKED_TIMES` its packed size
_UNPACKED_TIMES = 20
_WITH = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # which NumPy writes
_HINT = "write it with numpy.savez or numpy.save"


@frozen
class StoredArray:
    """An array in a file whose header has been read.

    packed_bytes: its size in the file.
    """

    path: Path
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    packed_bytes: int
    member: str = ""  # of a .npz file

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def load(self) -> Array:
        """Read the array's data.

        Raises:
            UsageError: it is truncated, damaged, or implausibly large for its packed size.
        """
        bytes_ = self.size * self.dtype.itemsize
        if bytes_ > max(UNPACKED_BYTES, _UNPACKED_TIMES * self.packed_bytes):
            raise UsageError(
                f"{self.path}: array {self.name!r} unpacks from {self.packed_bytes:,} to {bytes_:,} bytes",
                hint="if that is intended, write it uncompressed, with numpy.savez",
            )
        with _reading(self.path) as file:
            if not self.member:
                return np.asarray(npy.read_array(file, allow_pickle=False))
            with zipfile.ZipFile(file) as whole, whole.open(self.member) as member:
                return np.asarray(npy.read_array(member, allow_pickle=False))


def check_regular(path: Path) -> None:
    """Refuse anything but a regular file: opening a pipe waits for its writer, and a device may never end.

    Raises:
        UsageError: it is missing, or is not a regular file.
    """
    try:
        if not path.exists():
            raise UsageError(f"{path} does not exist")
        files.check_plain(path)
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None


def stored(path: Path) -> dict[str, StoredArray]:
    """Return the arrays of a .npz file by name; the array of a .npy file is named "x0".

    Raises:
        UsageError: it is missing, or not such a file.
    """
    check_regular(path)
    with _reading(path) as file:
        if file.read(len(_ZIP)) != _ZIP:
            file.seek(0)
            dtype, shape = _header(file)
            remaining = os.fstat(file.fileno()).st_size - file.tell()
            _check_length(dtype, shape, remaining)
            return {"x0": StoredArray(path, "x0", dtype, shape, remaining)}
        with zipfile.ZipFile(file) as whole:
            return {member.name: member for member in (_member(path, whole, info) for info in whole.infolist())}


def _member(path: Path, whole: zipfile.ZipFile, info: zipfile.ZipInfo) -> StoredArray:
    if not info.filename.endswith(_SUFFIX) or info.compress_type not in _WITH:
        raise ValueError(f"not an array: {info.filename}")
    with whole.open(info) as member:
        dtype, shape = _header(member)
        _check_length(dtype, shape, info.file_size - member.tell())
    name = info.filename.removesuffix(_SUFFIX)
    return StoredArray(path, name, dtype, shape, info.compress_size, info.filename)


def _header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    version = npy.read_magic(file)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version}")
    shape, _, dtype = read(file)
    return np.dtype(dtype), tuple(shape)


def _check_length(dtype: np.dtype[Any], shape: tuple[int, ...], there: int) -> None:
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > there:
        raise ValueError("not a plain array, or truncated")


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; whatever reading it raises becomes the error that it is not a file of arrays."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except (OSError, ValueError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error,
            RuntimeError, SyntaxError):  # fmt: skip
        raise UsageError(f"{path} is damaged, or not a NumPy file of plain arrays", hint=_HINT) from None


def read(path: Path) -> dict[str, Array]:
    """Read a .npz file, or a .npy file as its only array, named "x0".

    Raises:
        UsageError: it is missing, or not such a file.
    """
    return {name: array.load() for name, array in stored(path).items()}
