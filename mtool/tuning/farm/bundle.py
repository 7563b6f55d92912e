"""A bundle: what a worker needs of a built project to flash it and to talk to it, as bytes."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mtool import manifest
from mtool.base import files
from mtool.base.errors import UsageError
from mtool.device.build import Built
from mtool.stages.building import HOST_DRIVEN, Prepared

_SUFFIXES = (".hex", ".bin", ".uf2")
_MOST_BYTES = 1 << 28  # of one file


@dataclass(frozen=True, slots=True)
class Bundle:
    """A firmware with its mtool.json: files by their paths in the project, compressed; and the compiler."""

    files: Mapping[str, bytes]
    toolchain: str

    @property
    def size(self) -> int:
        """The bytes that travel."""
        return sum(map(len, self.files.values()))


def pack(prepared: Prepared) -> Bundle:
    """Return the bundle of a project that is built."""
    firmware = prepared.built.firmware[HOST_DRIVEN]
    beside = (firmware.with_suffix(suffix) for suffix in _SUFFIXES)
    wanted = [prepared.folder / manifest.FILE_NAME, firmware, *(path for path in beside if path.is_file())]
    packed = {path.relative_to(prepared.folder).as_posix(): zlib.compress(path.read_bytes(), 1) for path in wanted}
    return Bundle(packed, prepared.built.toolchain)


def unpack(bundle: Bundle, folder: Path) -> Prepared:
    """Write a bundle into a folder and return the project that it is.

    Raises:
        UsageError: it holds no project, or a path that leads elsewhere.
    """
    for name, data in bundle.files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise UsageError(f"the bundle of a firmware names a path outside of it: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, zlib.decompressobj().decompress(data, _MOST_BYTES))
    read = manifest.load(folder)
    if read.project is None:
        raise UsageError("the bundle of a firmware holds no project")
    firmware = manifest.firmware_of(folder, read.project, HOST_DRIVEN)
    firmware.chmod(0o700)  # a process, where the board is this computer
    built = Built(read, folder, {HOST_DRIVEN: firmware}, bundle.toolchain, 0.0, ())
    return Prepared(folder, read.project.board, read, built)
