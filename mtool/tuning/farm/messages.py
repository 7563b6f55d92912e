"""Messages besides slices: a board's answers, and firmware. Plain data, without weights."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from mtool import manifest
from mtool.base import files
from mtool.base.errors import UsageError
from mtool.device.build import Built
from mtool.manifest import link_key
from mtool.stages.building import HOST_DRIVEN, BuiltProject
from mtool.tuning.measuring import Outcome

ANY = "mtool"
"""The resource that every mtool worker has in plenty, so that other workers in the cluster get no tasks."""
PLENTY = 1_000_000
BUILD = "mtool-build"
"""The resource of workers that compile."""
_BOARD = "mtool-board-"


def resource(board: str) -> str:
    """Return the resource for boards with a name."""
    return f"{_BOARD}{board}"


def board_of(name: str) -> str:
    """Return the board name of a resource; "" if it is not a board's."""
    return name.removeprefix(_BOARD) if name.startswith(_BOARD) else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one measurement, and the label of its board: "nucleo_l4r5zi 066AFF at rack-3"."""

    ident: str
    outcome: Outcome
    board: str

    def as_message(self) -> list[Any]:
        """Return the answer as a message for a topic."""
        return [self.ident, self.board, *astuple(self.outcome)]

    @classmethod
    def of_message(cls, message: Sequence[Any]) -> "Answer":
        """Return the answer in a message."""
        ident, board, status, times, number, reason = message
        return cls(ident, Outcome(status, tuple(times), number, reason), board)


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """The end of a slice.

    Attributes:
        answers: all of its answers.
        board: the label of its board; "": none was free.
        failed: why the board could not continue; "": it did not fail.
        measurement: the id of the measurement that failed; "": the board failed between two, or during flashing.
        is_quarantined: the board reached the failure limit and gets no more work.
        is_stopped: the worker or the requesting process has ended.
    """

    answers: tuple[Answer, ...]
    board: str
    failed: str = ""
    measurement: str = ""
    is_quarantined: bool = False
    is_stopped: bool = False


# A bundle: the files of a built project that a worker needs to flash it and to communicate with it.


_SUFFIXES = (".hex", ".bin", ".uf2")
_MOST_BYTES = 1 << 28  # of one file


@dataclass(frozen=True, slots=True)
class Bundle:
    """A firmware with its mtool.json: files by their paths in the project, compressed; and the compiler."""

    files: Mapping[str, bytes]
    toolchain: str

    @property
    def size(self) -> int:
        """The number of bytes to transfer."""
        return sum(map(len, self.files.values()))


def pack(prepared: BuiltProject) -> Bundle:
    """Return the bundle of a built project."""
    firmware = prepared.built.firmware[HOST_DRIVEN]
    beside = (firmware.with_suffix(suffix) for suffix in _SUFFIXES)
    key = prepared.folder / link_key.FILE_NAME
    paths = [prepared.folder / manifest.FILE_NAME, firmware, *(path for path in (*beside, key) if path.is_file())]
    packed = {path.relative_to(prepared.folder).as_posix(): zlib.compress(path.read_bytes(), 1) for path in paths}
    return Bundle(packed, prepared.built.toolchain)


def unpack(bundle: Bundle, folder: Path) -> BuiltProject:
    """Write a bundle into a folder and return its project.

    Raises:
        UsageError: it has no project, or a path that leads outside the folder.
    """
    for name, data in bundle.files.items():
        path = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise UsageError(f"the firmware bundle has a path outside its folder: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, zlib.decompressobj().decompress(data, _MOST_BYTES))
    read = manifest.load(folder)
    if read.project is None:
        raise UsageError("the firmware bundle has no project")
    firmware = manifest.firmware_of(folder, read.project, HOST_DRIVEN)
    firmware.chmod(0o700)  # it is run as a program if the board is this computer
    built = Built(read, folder, {HOST_DRIVEN: firmware}, bundle.toolchain, 0.0, ())
    return BuiltProject(folder, read.project.board, read, built)
