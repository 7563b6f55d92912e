"""What goes over the network beside slices: what a board answers, and firmware. Plain data, without weights."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from mtool import manifest
from mtool.base import files
from mtool.base.errors import UsageError
from mtool.device.build import Built
from mtool.stages.building import HOST_DRIVEN, BuiltProject
from mtool.tuning.measuring import Outcome

ANY = "mtool"
"""The resource that every worker of mtool has, far more of it than tasks: what else is in the cluster gets none."""
PLENTY = 1_000_000
BUILD = "mtool-build"
"""The resource of workers that compile."""
_BOARD = "mtool-board-"


def resource(board: str) -> str:
    """Return the resource that stands for boards of a name."""
    return f"{_BOARD}{board}"


def board_of(name: str) -> str:
    """Return the board that a resource stands for; "" for another resource."""
    return name.removeprefix(_BOARD) if name.startswith(_BOARD) else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one measurement ended. `board` is the one that made it: "nucleo_l4r5zi 066AFF at rack-3"."""

    ident: str
    outcome: Outcome
    board: str

    def as_message(self) -> list[Any]:
        """Return it as what a topic can carry."""
        return [self.ident, self.board, *astuple(self.outcome)]

    @classmethod
    def of_message(cls, message: Sequence[Any]) -> "Answer":
        """Return what a message says."""
        ident, board, status, times, number, reason = message
        return cls(ident, Outcome(status, tuple(times), number, reason), board)


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """How a slice ended.

    Attributes:
        answers: all that were made.
        board: the board that made them; "": none was free.
        failed: why the board could not go on; "": it could.
        asked: the id of the measurement during which it failed; "": between two, or while it was flashed.
        is_quarantined: it failed so often that it gets no more work.
        is_stopped: the worker or the process that asked has ended meanwhile.
    """

    answers: tuple[Answer, ...]
    board: str
    failed: str = ""
    asked: str = ""
    is_quarantined: bool = False
    is_stopped: bool = False


# A bundle: what a worker needs of a built project to flash it and to talk to it, as bytes.


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


def pack(prepared: BuiltProject) -> Bundle:
    """Return the bundle of a project that is built."""
    firmware = prepared.built.firmware[HOST_DRIVEN]
    beside = (firmware.with_suffix(suffix) for suffix in _SUFFIXES)
    wanted = [prepared.folder / manifest.FILE_NAME, firmware, *(path for path in beside if path.is_file())]
    packed = {path.relative_to(prepared.folder).as_posix(): zlib.compress(path.read_bytes(), 1) for path in wanted}
    return Bundle(packed, prepared.built.toolchain)


def unpack(bundle: Bundle, folder: Path) -> BuiltProject:
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
    return BuiltProject(folder, read.project.board, read, built)
