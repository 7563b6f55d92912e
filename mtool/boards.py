"""Boards are data: `boards.yaml`, one entry a board, held against the schema below."""

import difflib
import functools
import re
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError

from mtool import resources
from mtool.errors import BoardError, UsageError

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def _size(text: Any) -> Any:
    """Read a number of bytes: 1024, "640 KiB", "2 MiB"."""
    if isinstance(text, str):
        match = re.fullmatch(r"(\d+)\s*(|B|KiB|MiB)", text.strip())
        if match is None:
            raise ValueError(f'{text!r} is not a size, such as 1024, "640 KiB" or "2 MiB"')
        return int(match[1]) * _UNITS[match[2]]
    return text


Size = Annotated[int, BeforeValidator(_size)]
Names = Annotated[frozenset[str], PlainSerializer(sorted)]


class Record(BaseModel):
    """A record that refuses unknown keys and can't be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Memory(Record):
    """One memory: its base address, its size in bytes and what lives there."""

    base: int
    size: Size
    holds: tuple[Literal["code", "weights", "arena", "data", "stack"], ...]


class Emulator(Record):
    """A QEMU machine that stands for the board: the program and its machine-specific arguments.

    `{elf}` in an argument is replaced by the firmware's path.
    """

    program: str
    arguments: tuple[str, ...]


class Timer(Record):
    """The timer that the bare-metal port uses, and what its nanoseconds mean."""

    kind: str
    base: int = 0
    hz: int = 0
    unit: Literal["instructions", "ns"] = "ns"


class Board(Record):
    """One entry of boards.yaml. A board's name never stands in the code; these facts do.

    `cpu` is GCC's name of the core ("cortex-m4"), or "host". `features` are what the compile half
    asks for: `fpu` (float32 in hardware), `dsp` (SIMD32: SMLAD), `mve` (Helium). `templates`
    maps a template's name to the framework's own name of the board.
    """

    name: str
    description: str
    source: str
    cpu: str
    features: Names = frozenset()
    clock_hz: int = 0
    memories: dict[str, Memory] = {}
    templates: dict[str, str]
    toolchain: str
    cflags: tuple[str, ...] = ()
    emulator: Emulator | None = None
    timer: Timer | None = None
    port: dict[str, str | int] = {}

    def memory_for(self, what: str) -> Memory | None:
        """Return the memory that holds `what` ("code", "weights", "arena", "data", "stack")."""
        return next((memory for memory in self.memories.values() if what in memory.holds), None)


@functools.cache
def load_all() -> dict[str, Board]:
    """Read boards.yaml; the boards by name, in the file's order.

    Raises:
        UsageError: an entry breaks the schema; the message names the board and the key.
    """
    path = resources.path("boards.yaml")
    entries = yaml.safe_load(path.read_text())
    boards = {}
    for name, entry in entries.items():
        try:
            boards[name] = Board.model_validate({"name": name, **entry})
        except ValidationError as invalid:
            details = [".".join(map(str, error["loc"])) + ": " + error["msg"] for error in invalid.errors()]
            raise UsageError(f"boards.yaml: the entry of {name} breaks the schema", details=details) from None
    return boards


def get(name: str) -> Board:
    """Return a board by its name.

    Raises:
        BoardError: there is none of that name; the message has the names that come near.
    """
    boards = load_all()
    if name not in boards:
        near = difflib.get_close_matches(name, boards, n=3, cutoff=0.5)
        raise BoardError(
            f"there is no board named {name!r}",
            details=[f"near: {', '.join(near)}"] if near else [],
            hint="see the list: mtool boards",
        )
    return boards[name]
