"""Boards are data: `boards.yaml`, one entry a board, held against the schema below."""

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from mtool import configuration, resources, spelling
from mtool.errors import BoardError, UsageError
from mtool.option_values import FLASH_RUNNERS

Role = Literal["code", "weights", "data", "arena", "stack"]
ROLES: tuple[Role, ...] = get_args(Role)
_LINES = 6  # of what a parser says
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML was built with it: 10 times as fast
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def _size(text: Any) -> Any:
    """Read a number of bytes: 1024, "640 KiB", "2 MiB"."""
    if isinstance(text, str):
        match = re.fullmatch(r"(\d+)\s*(|B|KiB|MiB)", text.strip())
        if match is None:
            raise ValueError(f'{text!r} is not a size, such as 1024, "640 KiB" or "2 MiB"')
        return int(match[1]) * _UNITS[match[2]]
    return text


def _settings(flash: Any) -> Any:
    """Read flash runners, those without settings as a list too: [west, openocd]."""
    for name in flash if isinstance(flash, list | dict) else ():
        if name not in FLASH_RUNNERS:
            meant = spelling.did_you_mean(str(name), FLASH_RUNNERS, otherwise=f"there are: {', '.join(FLASH_RUNNERS)}")
            raise ValueError(f"there is no flash runner {name!r}; {meant}")
    return {name: {} for name in flash} if isinstance(flash, list) else flash


Size = Annotated[int, BeforeValidator(_size)]
Settings = dict[str, str | int]
Names = Annotated[frozenset[str], PlainSerializer(sorted)]


class Record(BaseModel):
    """A record that refuses unknown keys and can't be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Cache(Record):
    """A cache: how many lines, and how many of them an address may lie in; 0: all."""

    lines: int = Field(gt=0, le=2048)
    ways: int = Field(default=0, ge=0)


class Reads(Record):
    """How a memory answers that is slower than the core, for estimates of cycles.

    Attributes:
        source: where the figures come from.
        wait_states: cycles that a read waits, by the highest clock in MHz that they are enough for; the lowest first.
        width: bytes of a read.
        line: bytes of a line in the caches, which is filled by reads as they are needed.
        code: the cache of instructions.
        data: that of data; None: one for both.
        prefetch: the read that follows is begun while the one before it is executed.
    """

    source: str
    wait_states: dict[int, int] = Field(min_length=1)
    width: int = Field(gt=0)
    line: int = Field(gt=0)
    code: Cache
    data: Cache | None = None
    prefetch: bool = False

    def waits(self, hz: int) -> int:
        """Return the cycles that a read waits at a clock; above the highest of the table, as there."""
        return next(
            (count for mhz, count in self.wait_states.items() if hz <= mhz * 1_000_000),
            [*self.wait_states.values()][-1],
        )


class Memory(Record):
    """One memory: its base address, its size in bytes, what lives there, and how it is read if it lets the core wait.

    A memory without `reads` is taken for one that answers at once.
    """

    base: int
    size: Size
    holds: tuple[Role, ...]
    reads: Reads | None = Field(default=None, exclude=True)


class FrameworkMemory(Record):
    """The most memory that a framework takes besides the model: bytes of code, and of data."""

    code: Size
    data: Size


class Emulator(Record):
    """An emulated machine that stands for the board: the program and its arguments.

    The program's standard input and output carry the bytes between the host and the firmware:
    `semihosting` and `uart` are the arguments that connect them to the one or the other. In the program and its
    arguments, `{elf}` stands for the firmware's path.
    Where the UART is a pseudo-terminal instead, `announces` is the text after which the program prints its name.
    """

    program: str
    arguments: tuple[str, ...]
    semihosting: tuple[str, ...] = ()
    uart: tuple[str, ...] = ()
    announces: str = ""


class Timer(Record):
    """The timer that the port uses, and what its nanoseconds mean.

    `kind` names the driver in the template, `base` is the address of its registers, `hz` the rate
    at which it counts.
    """

    kind: str
    base: int = 0
    hz: int = Field(gt=0)
    unit: Literal["instructions", "ns"] = "ns"


class Usb(Record):
    """How the board shows up on USB: its ids ("0483:374b", vendor and product), and the baud rate of its UART there.

    The first id is that of the board as it is sold; others are those of its boot loader or of older ones.
    """

    ids: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")], ...] = ()
    uart: int = Field(default=115200, gt=0)


class Board(Record):
    """One entry of boards.yaml. A board's name never stands in the code; these facts do.

    `cpu` is GCC's name of the core ("cortex-m4"), or "host". `features` are what the compile half
    asks for: `fpu` (float32 in hardware), `dsp` (SIMD32: SMLAD), `mve` (Helium). `templates`
    maps a template's name to the framework's own name of the board; the first is the default. `status` says of each
    of them what was done with it: the firmware has `run`, on the board or in its emulator; it was `built`; or a
    project was `generated`.
    `toolchain` is the C compiler's program, `cflags` are its flags for the core. `memories` is empty
    where an operating system places things; `placed` says of a template that puts a role into another memory than
    `holds` does, which; `takes` says of one that takes more of the board than is usual, how much. `port` is for the
    template alone. `flash` maps the flash runners that
    work with the board to their settings (mtool/flash has a file for each); the first is the default. `power` is the
    command that cycles the board's power (mtool/flash/power.py).
    """

    name: str
    description: str
    source: str
    cpu: str
    features: Names = frozenset()
    clock_hz: int = 0
    memories: dict[str, Memory] = {}
    placed: dict[str, dict[Role, str]] = {}
    takes: dict[str, FrameworkMemory] = {}
    templates: dict[str, str]
    status: dict[str, Literal["run", "built", "generated"]] = {}
    usb: Usb | None = None
    flash: Annotated[dict[str, Settings], BeforeValidator(_settings)] = {}
    power: str = ""
    toolchain: str = ""
    cflags: tuple[str, ...] = ()
    emulator: Emulator | None = None
    timer: Timer | None = None
    port: dict[str, str | int] = {}

    @model_validator(mode="after")
    def _memories_are_whole(self) -> Self:
        by_base = sorted(self.memories.items(), key=lambda item: item[1].base)
        for (low, memory), (high, above) in itertools.pairwise(by_base):
            if memory.base + memory.size > above.base:
                raise ValueError(f"the memories {low} and {high} overlap")
        missing = [role for role in ROLES if self.memories and self.region_for(role) is None]
        if missing:
            raise ValueError(f"no memory holds {', '.join(missing)}")
        for template, roles in self.placed.items():
            if template not in self.templates:
                raise ValueError(f"placed: there is no template {template}")
            for role, name in roles.items():
                if name not in self.memories:
                    raise ValueError(f"placed.{template}.{role}: there is no memory {name}")
        return self

    def placed_by(self, template: str) -> Self:
        """Return the board with what its memories hold under a template."""
        moved = self.placed.get(template, {})
        memories = {
            name: memory.model_copy(
                update={
                    "holds": (
                        *(role for role in memory.holds if role not in moved),
                        *(role for role, other in moved.items() if other == name),
                    )
                }
            )
            for name, memory in self.memories.items()
        }
        return self.model_copy(update={"memories": memories, "placed": {}}) if moved else self

    def region_for(self, role: str) -> str | None:
        """Return the name of the memory that holds `role`, one of ROLES; the first, if several do."""
        return next((name for name, memory in self.memories.items() if role in memory.holds), None)

    def memory_for(self, role: str) -> Memory | None:
        """Return the memory that holds `role`, one of ROLES; the first, if several do."""
        name = self.region_for(role)
        return None if name is None else self.memories[name]


def load_all() -> dict[str, Board]:
    """Read boards.yaml, and the files of boards that mtool.toml names; the boards by name, in the files' order.

    An entry of mtool.toml's files takes the place of one of the same name.

    Raises:
        UsageError: a file can't be read or is not YAML; or an entry breaks the schema: the message names the board and
            the key.
    """
    return _read((resources.path("boards.yaml"), *configuration.load().boards))


@functools.cache
def _read(paths: tuple[Path, ...]) -> dict[str, Board]:
    return {name: board for path in paths for name, board in _boards(path)}


def _boards(path: Path) -> Iterator[tuple[str, Board]]:
    try:
        entries = yaml.load(path.read_bytes(), Loader=_LOADER)
    except (OSError, yaml.YAMLError, RecursionError) as wrong:
        raise UsageError(f"{path} can't be read", details=str(wrong).splitlines()[:_LINES]) from None
    if not isinstance(entries, dict):
        raise UsageError(f"{path} holds no boards", details=["expected  a mapping: each board's name, and its entry"])
    for name, entry in entries.items():
        yield name, _board(path, name, entry)


def _board(path: Path, name: str, entry: object) -> Board:
    try:
        return Board.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry)
    except ValidationError as invalid:
        details = [": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in invalid.errors()]
        raise UsageError(f"{path.name}: the entry of {name} breaks the schema", details=details) from None


def get(name: str) -> Board:
    """Return a board by its name.

    Raises:
        BoardError: there is none of that name; the message has the names that come near.
    """
    boards = load_all()
    if name not in boards:
        near = spelling.near(name, boards)
        raise BoardError(
            f"there is no board named {name!r}",
            details=[f"near: {', '.join(near)}"] if near else [],
            hint="see the list: mtool boards",
        )
    return boards[name]
