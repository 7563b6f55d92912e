"""External data: tensor data in other files, which lie in the model's own folder.

A location is opened component by component and never through a link, so a path can't change after its check. Source:
docs/ExternalData.md of ONNX.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from mtool.base import system
from mtool.base.errors import ModelError
from mtool.compiler.frontend.model_file import BLOCK_BYTES
from mtool.compiler.frontend.tensors import byte_count


@dataclass(frozen=True, slots=True, order=True)
class Extent:
    """A range of bytes in a file; `location` is relative to the model's folder."""

    location: str
    offset: int
    length: int


def is_external(tensor: TensorProto) -> bool:
    """Whether a tensor's bytes are in another file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


class Folder:
    """A model's folder, from which its external data is read."""

    def __init__(self, model: Path) -> None:
        self.title, self.path = model.name, model.parent

    def extent(self, tensor: TensorProto) -> Extent:
        """Return where a tensor's bytes are, checked against its file.

        Raises:
            ModelError: the location is malformed or outside the folder, or the file does not match it.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = "/".join(self.parts(tensor))
        numbers = {key: entries.get(key, "") for key in ("offset", "length")}
        for key, text in numbers.items():
            if text and not (text.isascii() and text.isdecimal() and len(text) < 20):
                raise self._malformed(tensor, f"{key} {text!r}", "expected a number of 0 or more")
        expected = byte_count(tensor)
        with self._open(tensor, location) as file:
            size = os.fstat(file).st_size
        offset = int(numbers["offset"] or 0)
        length = int(numbers["length"]) if numbers["length"] else size - offset
        if length != expected:
            raise self._malformed(tensor, f"length {length:,}", f"expected {expected:,} bytes, by its shape and type")
        if offset + length > size:
            actual = f"offset {offset:,} and length {length:,}"
            raise self._malformed(tensor, actual, f"the file {location} has {size:,} bytes")
        return Extent(location, offset, length)

    def parts(self, tensor: TensorProto) -> list[str]:
        """Return the folders and the file of a tensor's location, without checking that they exist.

        Raises:
            ModelError: it is outside the model's folder, or not a valid path.
        """
        location = next((entry.value for entry in reversed(tensor.external_data) if entry.key == "location"), "")
        parts = str(location).split("/")
        if not location or "\0" in location or "\\" in location:
            expected = "expected a path inside the model's folder, with / as separator"
            raise self._malformed(tensor, f"location {location!r}", expected)
        if "" in parts or ".." in parts:
            raise self._outside(tensor, location)
        return parts

    def blocks(self, tensor: TensorProto, extent: Extent) -> Iterator[bytes]:
        """Read an extent block by block.

        Raises:
            ModelError: it can't be read.
        """
        with self._open(tensor, extent.location) as file:
            position, end = extent.offset, extent.offset + extent.length
            while position < end:
                block = system.read_at(file, min(BLOCK_BYTES, end - position), position)
                if not block:
                    raise self._malformed(tensor, extent.location, "the file was truncated while it was read")
                position += len(block)
                yield block

    @contextmanager
    def _open(self, tensor: TensorProto, location: str) -> Iterator[int]:
        """Open a file below the folder, one component after another, none of them a link."""
        parts = location.split("/")
        try:
            handle = self._handle(tensor, parts) if system.HAS_FOLDER_HANDLES else self._by_path(tensor, parts)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise self._malformed(tensor, location, "expected a file")
                yield handle
            finally:
                os.close(handle)
        except FileNotFoundError:
            raise ModelError(
                f"the external data of {self.title} is missing", details=[f"tensor {tensor.name!r}: {location}"],
                hint=f"put it into the folder {self.path}",
            ) from None  # fmt: skip
        except (OSError, ValueError) as failed:
            raise self._malformed(tensor, location, str(failed)) from None

    def _handle(self, tensor: TensorProto, parts: list[str]) -> int:
        """Open a file by the handles of the folders above it."""
        flags = system.READ | system.NO_WAIT
        handle = os.open(self.path, flags | system.FOLDER)
        try:
            for number, part in enumerate(parts):
                if stat.S_ISLNK(os.stat(part, dir_fd=handle, follow_symlinks=False).st_mode):
                    raise self._through_link(tensor, parts, part)
                kind = 0 if number == len(parts) - 1 else system.FOLDER
                inner = os.open(part, flags | system.NO_LINK | kind, dir_fd=handle)
                os.close(handle)
                handle = inner
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _by_path(self, tensor: TensorProto, parts: list[str]) -> int:
        """Open a file by its path."""
        path = Path(self.path)
        for part in parts:
            path /= part
            if path.is_symlink() or ":" in part:  # C:file is on another drive
                raise self._through_link(tensor, parts, part)
        return os.open(path, system.READ)

    def _through_link(self, tensor: TensorProto, parts: list[str], part: str) -> ModelError:
        return self._outside(tensor, f"{'/'.join(parts)}, where {part} is a link")

    def _outside(self, tensor: TensorProto, location: str) -> ModelError:
        return ModelError(
            f"{self.title} refers to external data outside its folder",
            details=[f"tensor {tensor.name!r}: {location!r}"],
            hint="mtool reads external data only from the model's own folder, not through .. or a link",
        )

    def _malformed(self, tensor: TensorProto, actual: str, expected: str) -> ModelError:
        return ModelError(
            f"external data of {self.title} can't be read", details=[f"tensor {tensor.name!r}: {actual}", expected]
        )


def embed(tensor: onnx.TensorProto, data: bytes) -> None:
    """Store a tensor's external data in the tensor itself."""
    tensor.raw_data = data
    tensor.ClearField("data_location")
    del tensor.external_data[:]
