"""Boards are data: `boards.yaml`, a user's own files, and any board of a Zephyr tree. Unknown keys are refused."""

import difflib
import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, model_validator
from pydantic_core import ErrorDetails

from mtool.base import configuration, escaping, files, flash_runners, records, resources, spelling
from mtool.base.errors import BoardError, UsageError
from mtool.base.option_values import PoolUse
from mtool.base.records import Strict
from mtool.boards import zephyr
from mtool.boards.zephyr.describing import PREFIX, describe

# The schema of a board's entry.


Role = Literal["code", "weights", "data", "arena", "stack"]
ROLES: tuple[Role, ...] = get_args(Role)
FEATURES = ("fpu", "dsp", "mve", "rvv", "simd")
_TEMPLATES = ("host", "baremetal", "zephyr", "arduino")  # mtool's own; a user's may have any other name
PORT = (
    "startup", "clint", "mtime_hz", "overlay", "conf", "core", "variant", "define", "platform", "platformio",
    "zephyr_32", "at_end",
)  # fmt: skip
_CLOSE = 0.8  # a name that no list has, and that comes as near as this to one that it has, is that one misspelt
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
        if not isinstance(name, str) or name not in flash_runners.records():
            raise ValueError(f"there is no flash runner {name!r}; {_meant(str(name), flash_runners.records())}")
    for name, settings in flash.items() if isinstance(flash, dict) else ():
        known = flash_runners.settings_of(name)
        for key in settings if isinstance(settings, dict) else ():
            if key not in known:
                raise ValueError(f"{name} has no setting {key!r}; {_meant(str(key), known)}")
    return {name: {} for name in flash} if isinstance(flash, list) else flash


def _features(features: Any) -> Any:
    for name in features if isinstance(features, list | frozenset) else ():
        if name not in FEATURES:
            raise ValueError(f"there is no feature {name!r}; {_meant(str(name), FEATURES)}")
    return features


def _meant(name: str, known: Iterable[str]) -> str:
    return spelling.did_you_mean(name, known, otherwise=f"there are: {', '.join(known) or 'none'}")


def _not_misspelt(known: tuple[str, ...]) -> BeforeValidator:
    """Return what refuses keys of a mapping that are open to names of others, but are one of `known` misspelt."""

    def check(mapping: Any) -> Any:
        for key in mapping if isinstance(mapping, dict) else ():
            is_fine = any(name in str(key) for name in known)  # "zephyr_of_mine" is none misspelt
            near = [] if is_fine else difflib.get_close_matches(str(key), known, n=1, cutoff=_CLOSE)
            if near:
                raise ValueError(f"{key!r} is unknown; did you mean {near[0]}?")
        return mapping

    return BeforeValidator(check)


Size = Annotated[int, BeforeValidator(_size)]
Settings = dict[str, str | int]
Features = Annotated[frozenset[str], BeforeValidator(_features), PlainSerializer(sorted)]


class Cache(Strict):
    """A cache: how many lines, and how many of them an address may lie in; 0: all."""

    lines: int = Field(gt=0, le=2048)
    ways: int = Field(default=0, ge=0)


class Reads(Strict):
    """How a memory answers that is slower than the core, for estimates of cycles.

    Attributes:
        source: where the figures come from.
        wait_states: cycles that a read waits, by the highest clock in MHz that they are enough for; the lowest first.
        width: bytes of a read.
        line: bytes of a line in the caches, which is filled by reads as they are needed.
        code: the cache of instructions.
        data: that of data; None: one for both.
        prefetch: the read that follows is begun while the one before it is executed.
        is_sure: the figures were looked up in the source; else they are likely.
    """

    source: str
    is_sure: bool = True
    wait_states: dict[int, int] = Field(min_length=1)
    width: int = Field(gt=0)
    line: int = Field(gt=0)
    code: Cache
    data: Cache | None = None
    prefetch: bool = False

    def waits(self, hz: int) -> int:
        """Return the cycles that a read waits at a clock; above the highest of the table, as there."""
        counts = [count for mhz, count in self.wait_states.items() if hz <= mhz * 1_000_000]
        return (*counts, *[*self.wait_states.values()][-1:])[0]


class Lending(Strict):
    """That a memory may have tensors of models, or copies of their constants, beside what it holds.

    Attributes:
        source: where the figures come from.
        waits: cycles that an access of the core waits, about; they order the memories.
        use: who may use it: "tensors", "weights", or "all" for both.
    """

    source: str
    waits: float = Field(ge=0, le=1000)
    use: PoolUse = "all"


class Memory(Strict):
    """One memory: its base address, its size in bytes, what lives there, and how it is read if it lets the core wait.

    A memory without `reads` is taken for one that answers at once. One with `pool` is lent to a model whose arena does
    not fit another (docs/memories.md).
    """

    base: int
    size: Size
    holds: tuple[Role, ...]
    reads: Reads | None = Field(default=None, exclude=True)
    pool: Lending | None = Field(default=None, exclude=True)

    @property
    def is_written(self) -> bool:
        """Whether it can be written to while a firmware runs: it holds more than code and constants, or nothing yet."""
        return self.pool is not None or not self.holds or bool({"arena", "data", "stack"} & {*self.holds})


class Draw(Strict):
    """The power that the chip draws while it computes.

    Attributes:
        source: where it was measured.
        mhz: its clock.
        volts: its supply.
        milliwatts: the least and the most.
    """

    source: str
    mhz: int = Field(gt=0)
    volts: float = Field(gt=0)
    milliwatts: tuple[float, float]

    @model_validator(mode="after")
    def _least_is_first(self) -> Self:
        if not 0 < self.milliwatts[0] <= self.milliwatts[1]:
            raise ValueError("milliwatts: the least and the most")
        return self


class FrameworkMemory(Strict):
    """The most memory that a framework takes besides the model: bytes of code, and of data."""

    code: Size
    data: Size


class Emulator(Strict):
    """An emulated machine that stands for the board: the program and its arguments.

    The program's standard input and output carry the bytes between the host and the firmware:
    `semihosting` and `uart` are the arguments that connect them to the one or the other. In the program and its
    arguments, `{elf}` stands for the firmware's path.
    Where the UART is a pseudo-terminal instead, `announces` is the text after which the program prints its name.
    An emulator that is a library has a `source`, a C file in mtool/device/transport that is compiled with the
    `libraries` of the Debian `package` when it is first needed; `program` is then its name.
    """

    program: str
    arguments: tuple[str, ...]
    semihosting: tuple[str, ...] = ()
    uart: tuple[str, ...] = ()
    announces: str = ""
    source: Annotated[str, Field(pattern=r"^(|[a-z0-9_]+\.c)$")] = ""
    libraries: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_+.-]+$")], ...] = ()
    package: str = ""

    @property
    def is_the_firmware(self) -> bool:
        """Whether the firmware is a program of this computer, which nothing emulates and nobody flashes."""
        return self.program == "{elf}"


class Timer(Strict):
    """The timer that the port uses, and what its nanoseconds mean.

    `kind` names the driver in the template, `base` is the address of its registers, `hz` the rate
    at which it counts.
    """

    kind: str
    base: int = 0
    hz: int = Field(gt=0)
    unit: Literal["instructions", "ns"] = "ns"


class Usb(Strict):
    """How the board shows up on USB: its ids ("0483:374b", vendor and product), and the baud rate of its UART there.

    The first id is that of the board as it is sold; others are those of its boot loader or of older ones.
    """

    ids: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")], ...] = ()
    uart: int = Field(default=115200, gt=0)


class Board(Strict):
    """One entry of boards.yaml. A board's name never stands in the code; these facts do.

    `cpu` is GCC's name of the core ("cortex-m4"), or "host". `features` are what the compile half
    asks for: `fpu` (float32 in hardware), `dsp` (SIMD32: SMLAD), `mve` (Helium), `rvv` (RISC-V vectors), `simd` (a
    computer whose compiler makes vectors of floats). `templates` maps a template's name to the framework's own name of
    the board; the first is the default. `status` says of each of them what was done with it: the firmware has `run`, on
    the board or in its emulator; it was `built`; or a project was `generated`.
    `toolchain` is the C compiler's program, `cflags` are its flags for the core. `memories` is empty
    where an operating system places things; `placed` says of a template that puts a role into another memory than
    `holds` does, which; `takes` says of one that takes more of the board than is usual, how much. `port` is for the
    template alone. `flash` maps the flash runners that
    work with the board to their settings (mtool/base/flash_runners.yaml); the first is the default. `power`
    is the command that cycles the board's power (mtool/device/flash/power.py); `draws` is what its chip takes, which
    estimates of energy are made of.
    """

    name: str
    description: str
    source: str
    cpu: str
    features: Features = frozenset()
    clock_hz: int = 0
    memories: dict[str, Memory] = Field(default={})
    placed: dict[str, dict[Role, str]] = Field(default={})
    takes: dict[str, FrameworkMemory] = Field(default={})
    templates: Annotated[dict[str, str], _not_misspelt(_TEMPLATES)]
    status: dict[str, Literal["run", "built", "generated"]] = Field(default={})
    usb: Usb | None = None
    flash: Annotated[dict[str, Settings], BeforeValidator(_settings)] = Field(default={})
    power: str = ""
    draws: Draw | None = Field(default=None, exclude=True)
    toolchain: str = ""
    cflags: tuple[str, ...] = ()
    emulator: Emulator | None = None
    timer: Timer | None = None
    port: Annotated[dict[str, str | int], _not_misspelt(PORT)] = Field(default={})

    @model_validator(mode="after")
    def _memories_are_whole(self) -> Self:
        by_base = sorted(self.memories.items(), key=lambda item: item[1].base)
        for (low, memory), (high, above) in itertools.pairwise(by_base):
            if memory.base + memory.size > above.base:
                raise ValueError(f"the memories {low} and {high} overlap")
        missing = [role for role in ROLES if self.memories and self.region_for(role) is None]
        if missing:
            raise ValueError(f"no memory holds {', '.join(missing)}")
        for key, of_templates in (("placed", self.placed), ("takes", self.takes), ("status", self.status)):
            for template in of_templates:
                if template not in self.templates:
                    known = ", ".join(self.templates)
                    raise ValueError(f"{key}: the board has no template {template}; it has: {known}")
        if self.port.get("at_end", "idle") not in ("idle", "reset"):
            raise ValueError(f"port.at_end: expected idle or reset, found {self.port['at_end']}")
        for template, roles in self.placed.items():
            for role, name in roles.items():
                if name not in self.memories:
                    raise ValueError(f"placed.{template}.{role}: there is no memory {name}")
        return self

    @property
    def folder_name(self) -> str:
        """The board's name as a part of a folder's: "zephyr-mps2-an386" of "zephyr:mps2/an386"."""
        return re.sub(r"[^\w.+-]+", "-", self.name)

    def placed_by(self, template: str) -> Self:
        """Return the board with what its memories hold under a template."""
        moved, memories = self.placed.get(template, {}), {}
        for name, memory in self.memories.items():
            kept = (role for role in memory.holds if role not in moved)
            holds = (*kept, *(role for role, other in moved.items() if other == name))
            memories[name] = memory.model_copy(update={"holds": holds})
        return self.model_copy(update={"memories": memories, "placed": {}}) if moved else self

    def region_for(self, role: str) -> str | None:
        """Return the name of the memory that holds `role`, one of ROLES; the first, if several do."""
        return next((name for name, memory in self.memories.items() if role in memory.holds), None)

    def memory_for(self, role: str) -> Memory | None:
        """Return the memory that holds `role`, one of ROLES; the first, if several do."""
        return self.memories.get(self.region_for(role) or "")


def _said(error: ErrorDetails) -> str:
    """Return what is wrong with an entry: what was expected, or which key was meant."""
    record = _record_at(error["loc"][:-1]) if error["type"] == "extra_forbidden" else None
    if record is None:
        return records.said(error)
    known = [name for name in record.model_fields if name != "name"]
    return f"there is no such key; {_meant(str(error['loc'][-1]), known)}"


def _record_at(path: tuple[int | str, ...]) -> type[Strict] | None:
    """Return the record that stands at a path of keys in an entry."""
    record: type[Strict] = Board
    for key in path:
        if isinstance(key, str) and key in record.model_fields:
            found = _record_in(record.model_fields[key].annotation)
            if found is None:
                return None
            record = found
    return record


def _record_in(annotation: Any) -> type[Strict] | None:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next((found for each in get_args(annotation) if (found := _record_in(each)) is not None), None)


# Files of boards: mtool's own boards.yaml, and those of a user, of which one wrong entry does not spoil the others.


VARIABLE = "MTOOL_BOARDS"
FOLDER = "boards"  # beside mtool.toml
_SUFFIXES = (".yaml", ".yml")
_LINES = 6  # of what a parser says


@dataclass(frozen=True, slots=True)
class Broken:
    """An entry of a user's file that breaks the schema: the board's name, its file, and the error."""

    name: str
    path: Path
    error: UsageError


@dataclass(frozen=True, slots=True)
class Read:
    """What files of boards hold: the boards by name, in the files' order, and the entries that are wrong."""

    boards: Mapping[str, Board]
    broken: Mapping[str, Broken]


def read(environment: Mapping[str, str] = os.environ) -> Read:
    """Read boards.yaml, then the user's files: a later entry takes the place of one of the same name.

    Raises:
        UsageError: a file can't be read, is not YAML or might be another user's; or an entry of mtool's own breaks the
            schema.
    """
    return read_files(tuple(files_of(environment)))


def files_of(environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Yield the files of boards in their order: mtool's own, mtool.toml's, those beside it in boards/, MTOOL_BOARDS'.

    A folder stands for its .yaml files.

    Raises:
        UsageError: one that is named is not there.
    """
    yield resources.path("boards.yaml")
    for path in configuration.load().boards:
        yield from _in(path)
    project = configuration.nearest()
    if project is not None and (project.parent / FOLDER).is_dir():
        for path in _in(project.parent / FOLDER):
            configuration.check_owner(path, path.stat())  # nobody named it, and an entry names programs to run
            yield path
    for name in filter(None, environment.get(VARIABLE, "").split(os.pathsep)):
        yield from _in(Path(name))


def file_of(name: str) -> Path | None:
    """Return the user's file that a board is read from; None: it is mtool's own, or none of a file."""
    _, *own = files_of()
    return next((path for path in reversed(own) if name in _entries(path)), None)


def _in(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return [path.absolute()]


@functools.cache
def read_files(paths: tuple[Path, ...]) -> Read:
    """Read files of boards; the first is mtool's own, where a wrong entry is an error."""
    found: dict[str, Board] = {}
    broken: dict[str, Broken] = {}
    for number, path in enumerate(paths):
        for name, entry in _entries(path).items():
            try:
                found[name] = board_of(path, name, entry)
                broken.pop(name, None)
            except UsageError as wrong:
                if number == 0:
                    raise
                found.pop(name, None)
                broken[str(name)] = Broken(str(name), path, wrong)
    return Read(found, broken)


def _entries(path: Path) -> dict[Any, Any]:
    try:
        entries = resources.read_yaml(files.read_named(path))
    except OSError as failed:
        missing = isinstance(failed, FileNotFoundError)
        raise UsageError(
            f"there is no file of boards {path}" if missing else f"{path} can't be read",
            details=[] if missing else [(failed.strerror or str(failed)).lower()],
            hint=f"--boards, {VARIABLE} and mtool.toml name a file of boards, or a folder of them",
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as wrong:
        raise UsageError(f"{path} can't be read", details=str(wrong).splitlines()[:_LINES]) from None
    if not isinstance(entries, dict):
        raise UsageError(f"{path} holds no boards", details=["expected  a mapping: each board's name, and its entry"])
    return entries


def board_of(path: Path, name: str, entry: object) -> Board:
    """Return the board of an entry.

    Raises:
        UsageError: it breaks the schema; the message names the keys.
    """
    try:
        return Board.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry)
    except ValidationError as invalid:
        what = f"{path.name}: the entry of {name} breaks the schema"
        details = records.lines(invalid, said=_said)
        raise UsageError(what, details=details, hint="what each key means: docs/add-a-board.md") from None


# Boards by their names.


def load_all() -> dict[str, Board]:
    """Return the boards of boards.yaml and of the user's files (mtool.toml, boards/, MTOOL_BOARDS) by name.

    An entry of a user's takes the place of one of the same name. His entries that are wrong are not among them:
    `broken` has those.

    Raises:
        UsageError: a file can't be read or is not YAML.
    """
    return dict(read().boards)


def shipped() -> frozenset[str]:
    """Return the names of mtool's own boards."""
    return frozenset(read_files((resources.path("boards.yaml"),)).boards)


def broken() -> list[Broken]:
    """Return the entries of the user's files that break the schema.

    Raises:
        UsageError: as `load_all`.
    """
    return list(read().broken.values())


def get(name: str) -> Board:
    """Return a board by its name, or by Zephyr's: "zephyr:NAME", or NAME alone where a Zephyr tree has it.

    Raises:
        BoardError: there is none of that name; the message has the names that come near.
        UsageError: the entry of that name breaks the schema, or a file of boards can't be read.
        BuildError: the board is Zephyr's, and the tree, a module of a vendor or a tool is missing.
    """
    found = read()
    if name in found.boards:
        return found.boards[name]
    if name in found.broken:
        raise found.broken[name].error
    if name.startswith(PREFIX):
        return of_zephyr(name.removeprefix(PREFIX))
    tree = zephyr.find()
    if tree is not None and zephyr.knows(tree, name, zephyr.roots().get("BOARD_ROOT", ())):
        return of_zephyr(name)
    near = spelling.near(name, [*found.boards, *found.broken])
    unread = Path(FOLDER) / f"{name}.yaml"
    is_there = re.fullmatch(r"[\w.-]+", name) is not None and unread.is_file()
    if is_there and unread.resolve() not in [file.resolve() for file in files_of()]:
        details = [f"{unread} is not read: there is no mtool.toml beside {FOLDER}/, and nothing else names the file"]
        hint = f'name it: --boards {escaping.argument(str(unread))}, or say in mtool.toml: boards = "{unread}"'
        raise BoardError(f"there is no board named {name!r}", details=details, hint=hint)
    raise BoardError(
        f"there is no board named {name!r}",
        details=[f"near: {', '.join(near)}"] if near else [],
        hint=f"see the list: mtool boards; add one: mtool boards --new {name if name.isidentifier() else 'NAME'}; "
        "any of Zephyr's: --board zephyr:NAME",
    )


def of_zephyr(name: str) -> Board:
    """Return a board as a Zephyr tree describes it.

    Raises:
        MtoolError: as `mtool.boards.zephyr.describing.describe`.
    """
    entry = describe(name)
    return board_of(Path(f"Zephyr's {name}"), f"{PREFIX}{name}", entry)
