"""Boards are data: `boards.yaml`, the user's own files, and any board of a Zephyr tree. Unknown keys are refused."""

import difflib
import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from mtool.base import configuration, escaping, files, flash_runners, records, resources, spelling
from mtool.base.errors import BoardError, UsageError
from mtool.base.frozen import frozen
from mtool.base.option_values import PoolUse
from mtool.base.records import Strict
from mtool.boards import drivers, zephyr
from mtool.boards.zephyr import PREFIX

# The schema of a board's entry.


Role = Literal["code", "weights", "data", "arena", "stack", "hot_code"]
ROLES: tuple[Role, ...] = get_args(Role)
_OPTIONAL: tuple[Role, ...] = ("hot_code",)  # RAM for code that the core would wait for in the memory of other code
FEATURES = ("fpu", "dsp", "mve", "rvv", "simd")
_TEMPLATES = ("host", "baremetal", "zephyr", "arduino")  # mtool's own; a user's template may have any other name
PORT = (
    "startup", "clint", "mtime_hz", "overlay", "conf", "core", "variant", "define", "platform", "platformio",
    "zephyr_32", "at_end",
)  # fmt: skip
_CLOSE = 0.8  # an unknown name that is at least this similar to a known one is taken for a misspelling of it
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def _size(text: Any) -> Any:
    """Parse a size in bytes: 1024, "640 KiB", "2 MiB"."""
    if isinstance(text, str):
        match = re.fullmatch(r"(\d+)\s*(|B|KiB|MiB)", text.strip())
        if match is None:
            raise ValueError(f'{text!r} is not a size; write 1024, "640 KiB" or "2 MiB"')
        return int(match[1]) * _UNITS[match[2]]
    return text


def _settings(flash: Any) -> Any:
    """Parse the flash runners; runners without settings may be a list: [west, openocd]."""
    for name in flash if isinstance(flash, list | dict) else ():
        if not isinstance(name, str) or name not in flash_runners.records():
            raise ValueError(f"unknown flash runner {name!r}; {_suggestion(str(name), flash_runners.records())}")
    for name, settings in flash.items() if isinstance(flash, dict) else ():
        available = flash_runners.settings_of(name)
        for key in settings if isinstance(settings, dict) else ():
            if key not in available:
                raise ValueError(f"unknown setting {key!r} for {name}; {_suggestion(str(key), available)}")
    return {name: {} for name in flash} if isinstance(flash, list) else flash


def _features(features: Any) -> Any:
    for name in features if isinstance(features, list | frozenset) else ():
        if name not in FEATURES:
            raise ValueError(f"unknown feature {name!r}; {_suggestion(str(name), FEATURES)}")
    return features


def _suggestion(name: str, names: Iterable[str]) -> str:
    return spelling.did_you_mean(name, names, otherwise=f"available: {', '.join(names) or 'none'}")


def _not_misspelt(names: tuple[str, ...]) -> BeforeValidator:
    """Return a validator for a mapping with free keys that refuses misspellings of `names`."""

    def check(mapping: Any) -> Any:
        for key in mapping if isinstance(mapping, dict) else ():
            is_fine = any(name in str(key) for name in names)  # "zephyr_of_mine" is not a misspelling
            near = [] if is_fine else difflib.get_close_matches(str(key), names, n=1, cutoff=_CLOSE)
            if near:
                raise ValueError(f"unknown key {key!r}; did you mean {near[0]}?")
        return mapping

    return BeforeValidator(check)


Size = Annotated[int, BeforeValidator(_size)]
Settings = dict[str, str | int]
Features = Annotated[frozenset[str], BeforeValidator(_features), PlainSerializer(sorted)]


class Cache(Strict):
    """A cache: the number of lines, and its associativity; 0: fully associative."""

    lines: int = Field(gt=0, le=2048)
    ways: int = Field(default=0, ge=0)


class Reads(Strict):
    """Timing of a memory that is slower than the core, for cycle estimates.

    Attributes:
        source: where the figures come from.
        wait_states: wait cycles of a read, by the highest clock in MHz for which they suffice; lowest first.
        width: bytes per read.
        line: bytes per cache line.
        code: the instruction cache.
        data: the data cache; None: one cache for both.
        prefetch: whether the next read starts while the current one is executed.
        is_sure: whether the figures come from the source; otherwise they are likely values.
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
        """Return the wait cycles of a read at a clock; above the table's highest clock, those of the highest."""
        counts = [count for mhz, count in self.wait_states.items() if hz <= mhz * 1_000_000]
        return (*counts, *[*self.wait_states.values()][-1:])[0]


class PoolSettings(Strict):
    """How a memory may hold models' tensors, or copies of their constants, in addition to its own roles.

    Attributes:
        source: where the figures come from.
        waits: approximate wait cycles of an access by the core; memories are ordered by them.
        use: what it may hold: "tensors", "weights", or "all" for both.
    """

    source: str
    waits: float = Field(ge=0, le=1000)
    use: PoolUse = "all"


class Memory(Strict):
    """One memory: its base address, its size in bytes, what it holds, and its timing if the core waits for it.

    A memory without `reads` is assumed to have no wait states. One with `pool` is available to models whose arena
    does not fit elsewhere (docs/memories.md).
    """

    base: int
    size: Size
    holds: tuple[Role, ...]
    reads: Reads | None = Field(default=None, exclude=True)
    pool: PoolSettings | None = Field(default=None, exclude=True)

    @property
    def is_always_used(self) -> bool:
        """Whether every firmware puts something there."""
        return bool({*self.holds} - {*_OPTIONAL})

    @property
    def is_written(self) -> bool:
        """Whether it can be written while firmware runs: it holds more than code and constants, or nothing yet."""
        return self.pool is not None or not self.holds or bool({"arena", "data", "stack"} & {*self.holds})


class Draw(Strict):
    """The power that the chip draws while it computes.

    Attributes:
        source: where it was measured.
        mhz: its clock.
        volts: its supply.
        milliwatts: the lowest and the highest figure.
    """

    source: str
    mhz: int = Field(gt=0)
    volts: float = Field(gt=0)
    milliwatts: tuple[float, float]

    @model_validator(mode="after")
    def _least_is_first(self) -> Self:
        if not 0 < self.milliwatts[0] <= self.milliwatts[1]:
            raise ValueError("milliwatts: the lower figure comes first")
        return self


class FrameworkMemory(Strict):
    """The most memory that a framework needs in addition to the model: bytes of code, and of data."""

    code: Size
    data: Size


class Emulator(Strict):
    """The emulated machine for the board: the program and its arguments.

    The program's standard input and output carry the bytes between the host and the firmware:
    `semihosting` and `uart` are the arguments that connect them to the one or the other. In the program and its
    arguments, `{elf}` stands for the firmware's path.
    Where the UART is a pseudo-terminal instead, `announces` is the text that precedes its name in the program's output.
    An emulator that is a library has a `source`, a C file in mtool/device/transport that is compiled with the
    `libraries` of the Debian `package` on first use; `program` is then its name.
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
        """Whether the firmware is a program of this computer, which needs neither an emulator nor flashing."""
        return self.program == "{elf}"


class Timer(Strict):
    """The timer that the port uses, and what its nanoseconds mean.

    `kind` names the driver in crt/ports, or the framework's timer; `base` is the address of its registers, `enable` its
    bit in the chip's clock enable register, `hz` the rate at which it counts.
    """

    kind: str
    base: int = 0
    enable: tuple[int, int] | None = None
    hz: int = Field(gt=0)
    unit: Literal["instructions", "ns"] = "ns"


class Usb(Strict):
    """How the board appears on USB: its ids ("0483:374b", vendor and product), and the baud rate of its UART there.

    The first id is that of the board as sold; others belong to its boot loader or to older versions.
    """

    ids: tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")], ...] = ()
    uart: int = Field(default=115200, gt=0)


class Board(Strict):
    """One entry of boards.yaml. The code never names a board; it uses these facts.

    `cpu` is GCC's name of the core ("cortex-m4"), or "host". `features` are what the compile half
    requires: `fpu` (float32 in hardware), `dsp` (SIMD32: SMLAD), `mve` (Helium), `rvv` (RISC-V vectors), `simd` (a
    computer whose compiler vectorizes float code). `templates` maps a template's name to the framework's own name of
    the board; the first is the default. `status` says how far each of them was tested: the firmware has `run`, on
    the board or in its emulator; it was `built`; or a project was `generated`.
    `toolchain` is the C compiler's program, `cflags` are its flags for the core. `memories` is empty
    where an operating system places things; `ports` are the drivers of the chip's peripherals, with their addresses,
    rates and pins (crt/ports/drivers.yaml); `options` are the defaults of a template's options on this board. `placed`
    lists the roles that a template puts into another memory than `holds` says; `takes` is the memory that a template
    needs, where it needs more than usual. Only the template uses `port`. `flash` maps the flash runners that work with
    the board to their settings (mtool/base/flash_runners.yaml); the first is the default. `power` is the command that
    cycles the board's power (mtool/device/flash/power.py); `draws` is the chip's power consumption, from which energy
    is estimated.
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
    ports: dict[drivers.Role, dict[str, drivers.Setting]] = Field(default={})
    options: dict[str, dict[str, str | int]] = Field(default={})
    port: Annotated[dict[str, str | int], _not_misspelt(PORT)] = Field(default={})

    @model_validator(mode="after")
    def _memories_are_whole(self) -> Self:
        by_base = sorted(self.memories.items(), key=lambda item: item[1].base)
        for (low, memory), (high, above) in itertools.pairwise(by_base):
            if memory.base + memory.size > above.base:
                raise ValueError(f"the memories {low} and {high} overlap")
        needed = [role for role in ROLES if self.memories and role not in _OPTIONAL]
        missing = [role for role in needed if self.region_for(role) is None]
        if missing:
            raise ValueError(f"no memory holds {', '.join(missing)}")
        for key in ("placed", "takes", "status", "options"):
            of_templates: Mapping[str, object] = getattr(self, key)
            for template in of_templates:
                if template not in self.templates:
                    available = ", ".join(self.templates)
                    raise ValueError(f"{key}: unknown template {template}; available: {available}")
        if self.port.get("at_end", "idle") not in ("idle", "reset"):
            raise ValueError(f"port.at_end: expected idle or reset, found {self.port['at_end']}")
        for driven, settings in self.ports.items():
            driver_settings = {key: value for key, value in settings.items() if key != "driver"}
            drivers.check(driven, str(settings.get("driver", "")), driver_settings)
        if self.timer is not None and self.timer.kind in drivers.load_all():
            drivers.check("timer", self.timer.kind, self.timer_settings())
        drivers.check_pins(self.ports)
        self._check_places_and_rates()
        for template, roles in self.placed.items():
            for role, name in roles.items():
                if name not in self.memories:
                    raise ValueError(f"placed.{template}.{role}: unknown memory {name}")
        return self

    def _check_places_and_rates(self) -> None:
        """Check that no driver's registers are in a memory, and that no peripheral's clock is faster than the core's.

        Drivers leave a peripheral on its bus, whose clock is the core's or divided from it.

        Raises:
            ValueError: the registers are in one, or a clock is faster.
        """
        ports: dict[str, Mapping[str, drivers.Setting]] = {f"ports.{role}": port for role, port in self.ports.items()}
        for where, settings in {**ports, "timer": self.timer_settings()}.items():
            for key, address in drivers.addresses(settings).items():
                for name, memory in self.memories.items():
                    if memory.base <= address < memory.base + memory.size:
                        place = f"0x{memory.base:08x} to 0x{memory.base + memory.size - 1:08x}"
                        raise ValueError(f"{where}.{key}: 0x{address:08x} is in the memory {name} ({place})")
        rates = {"ports.uart.clock_hz": self.ports.get("uart", {}).get("clock_hz", 0)}
        if self.timer is not None and self.timer.unit == "ns" and self.timer.kind in drivers.load_all():
            rates["timer.hz"] = self.timer.hz
        for where, hz in rates.items():
            if isinstance(hz, int) and hz > self.clock_hz > 0:
                slower = f"at most clock_hz, the core's {self.clock_hz:,} Hz"
                raise ValueError(f"{where}: expected {slower}, found {hz:,}; a faster core needs ports.clock")

    def timer_settings(self) -> dict[str, drivers.Setting]:
        """Return the settings of the timer's driver."""
        timer = self.timer
        if timer is None:
            return {}
        return {key: value for key, value in (("base", timer.base), ("enable", timer.enable)) if value}

    @property
    def is_emulator(self) -> bool:
        """Whether it only runs in an emulator: mtool flashes no such board."""
        return self.emulator is not None and not self.emulator.is_the_firmware and not self.flash

    @property
    def folder_name(self) -> str:
        """The board's name as part of a folder name: "zephyr-mps2-an386" for "zephyr:mps2/an386"."""
        return re.sub(r"[^\w.+-]+", "-", self.name)

    def placed_by(self, template: str) -> Self:
        """Return the board with its memories' roles as a template places them."""
        moved, memories = self.placed.get(template, {}), {}
        for name, memory in self.memories.items():
            unmoved = (role for role in memory.holds if role not in moved)
            holds = (*unmoved, *(role for role, other in moved.items() if other == name))
            memories[name] = memory.model_copy(update={"holds": holds})
        return self.model_copy(update={"memories": memories, "placed": {}}) if moved else self

    def region_for(self, role: str) -> str | None:
        """Return the name of the memory that holds `role`, one of ROLES; the first if several do."""
        return next((name for name, memory in self.memories.items() if role in memory.holds), None)

    def memory_for(self, role: str) -> Memory | None:
        """Return the memory that holds `role`, one of ROLES; the first if several do."""
        return self.memories.get(self.region_for(role) or "")


# Board files: mtool's own boards.yaml, and the user's, in which one invalid entry does not affect the others.


VARIABLE = "MTOOL_BOARDS"
FOLDER = "boards"  # beside mtool.toml
_SUFFIXES = (".yaml", ".yml")
_OWN = "boards.yaml"
_TOP = re.compile(r"^(?=\w)", re.MULTILINE)  # before each key of the first level
_LINES = 6  # of a parser's message


@frozen
class Broken:
    """An invalid entry in a user's file: the board's name, its file, and the error."""

    name: str
    path: Path
    error: UsageError


@frozen
class Read:
    """What the board files hold: the boards by name, in the files' order, and the invalid entries."""

    boards: Mapping[str, Board]
    broken: Mapping[str, Broken]


def read(environment: Mapping[str, str] = os.environ) -> Read:
    """Read boards.yaml, then the user's files: a later entry replaces an earlier one of the same name.

    Raises:
        UsageError: a file can't be read, is not YAML or might be another user's; or one of mtool's own entries is
            invalid.
    """
    return read_files(tuple(files_of(environment)))


def files_of(environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Yield the board files in order: mtool's own, mtool.toml's, those next to it in boards/, then MTOOL_BOARDS'.

    A folder stands for its .yaml files.

    Raises:
        UsageError: a named file does not exist.
    """
    yield resources.path(_OWN)
    for path in configuration.load().boards:
        yield from _files_in(path)
    project = configuration.nearest()
    if project is not None and (project.parent / FOLDER).is_dir():
        for path in _files_in(project.parent / FOLDER):
            configuration.check_owner(path, path.stat())  # not named by the user, and entries name programs
            yield path
    for name in filter(None, environment.get(VARIABLE, "").split(os.pathsep)):
        yield from _files_in(Path(name))


def file_of(name: str) -> Path | None:
    """Return the user's file that defines a board; None: it is one of mtool's own, or not from a file."""
    _, *user_files = files_of()
    return next((path for path in reversed(user_files) if name in _entries(path)), None)


def _files_in(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return [path.absolute()]


@functools.cache
def read_files(paths: tuple[Path, ...]) -> Read:
    """Read board files; the first is mtool's own, in which an invalid entry is an error."""
    boards: dict[str, Board] = {}
    broken: dict[str, Broken] = {}
    for number, path in enumerate(paths):
        for name in _entries(path):
            try:
                boards[name] = _board(path, name)
                broken.pop(name, None)
            except UsageError as wrong:
                if number == 0:
                    raise
                boards.pop(name, None)
                broken[str(name)] = Broken(str(name), path, wrong)
    return Read(boards, broken)


@functools.cache
def _board(path: Path, name: str) -> Board:
    entry = _entries(path)[name]
    return board_of(path, name, resources.read_yaml(entry)[name] if path == resources.path(_OWN) else entry)


@functools.cache
def _entries(path: Path) -> dict[Any, Any]:
    """Return the entries of a file by name; those of mtool's own, of which most commands need one, as their text."""
    if path == resources.path(_OWN):
        _, *parts = _TOP.split(path.read_text(encoding="utf-8"))
        return {part.partition(":")[0]: part for part in parts}
    try:
        entries = resources.read_yaml(files.read_named(path))
    except OSError as failed:
        missing = isinstance(failed, FileNotFoundError)
        raise UsageError(
            f"board file not found: {path}" if missing else f"{path} can't be read",
            details=[] if missing else [(failed.strerror or str(failed)).lower()],
            hint=f"--boards, {VARIABLE} and mtool.toml name a board file or a folder of board files",
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as wrong:
        raise UsageError(f"{path} can't be read", details=str(wrong).splitlines()[:_LINES]) from None
    if not isinstance(entries, dict):
        raise UsageError(f"{path} contains no boards", details=["expected  a mapping from board names to entries"])
    return entries


def board_of(path: Path, name: str, entry: object) -> Board:
    """Return the board for an entry.

    Raises:
        UsageError: the entry is invalid; the message names the keys.
    """
    what, hint = f"{path.name}: invalid entry for {name}", "see docs/add-a-board.md for the meaning of each key"
    return records.read(Board, {**entry, "name": name} if isinstance(entry, dict) else entry, what, hint=hint)


# Boards by their names.


def load_all() -> dict[str, Board]:
    """Return the boards of boards.yaml and of the user's files (mtool.toml, boards/, MTOOL_BOARDS) by name.

    A user's entry replaces one of the same name. Invalid entries of the user are left out; `broken` returns them.

    Raises:
        UsageError: a file can't be read or is not YAML.
    """
    return dict(read().boards)


def shipped() -> frozenset[str]:
    """Return the names of mtool's own boards."""
    return frozenset(_entries(resources.path(_OWN)))


def broken() -> list[Broken]:
    """Return the invalid entries of the user's files.

    Raises:
        UsageError: as `load_all`.
    """
    return list(read().broken.values())


def get(name: str) -> Board:
    """Return a board by its name, or by Zephyr's: "zephyr:NAME", or just NAME if a Zephyr tree has it.

    Raises:
        BoardError: the name is unknown; the message lists similar names.
        UsageError: the entry is invalid, or a board file can't be read.
        BuildError: it is a Zephyr board, and the tree, a vendor's module or a tool is missing.
    """
    paths = [path for path in files_of() if name in _entries(path)]
    if paths:  # the other boards are not checked
        return _board(paths[-1], name)
    if name.startswith(PREFIX):
        return of_zephyr(name.removeprefix(PREFIX))
    tree = zephyr.find()
    if tree is not None and zephyr.knows(tree, name, zephyr.roots().get("BOARD_ROOT", ())):
        return of_zephyr(name)
    known_boards = read()
    near = spelling.near(name, [*known_boards.boards, *known_boards.broken])
    unread = Path(FOLDER) / f"{name}.yaml"
    is_there = re.fullmatch(r"[\w.-]+", name) is not None and unread.is_file()
    if is_there and unread.resolve() not in [file.resolve() for file in files_of()]:
        details = [f"{unread} was not read: there is no mtool.toml beside {FOLDER}/, and no option names the file"]
        hint = f'use --boards {escaping.argument(str(unread))}, or set boards = "{unread}" in mtool.toml'
        raise BoardError(f"unknown board {name!r}", details=details, hint=hint)
    raise BoardError(
        f"unknown board {name!r}",
        details=[f"similar: {', '.join(near)}"] if near else [],
        hint=f"list boards: mtool boards; add one: mtool boards --new {name if name.isidentifier() else 'NAME'}; "
        "use a Zephyr board: --board zephyr:NAME",
    )


def of_zephyr(name: str) -> Board:
    """Return a board as the Zephyr tree describes it.

    Raises:
        MtoolError: as `mtool.boards.zephyr.describing.describe`.
    """
    from mtool.boards.zephyr.describing import describe  # most boards are not Zephyr's alone

    entry = describe(name)
    return board_of(Path(f"Zephyr's {name}"), f"{PREFIX}{name}", entry)
