"""New board entries for users: the facts that describe a board, and the file that holds them."""

import re
from collections.abc import Mapping
from typing import Any, cast

import yaml

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.boards import Board, drivers

FACTS: Mapping[str, str] = {
    "description": "a description, one line",
    "cpu": "GCC's name of the core (cortex-m4)",
    "features": "the core's features: fpu, dsp, mve (fpu,dsp)",
    "clock": "the clock rate (168MHz)",
    "flash": "the flash's address and size (0x08000000:1MiB)",
    "ram": "the RAM's address and size (0x20000000:128KiB)",
    "zephyr": "Zephyr's name for the board",
    "arduino": "Arduino's name for the board (arduino:samd:mkrzero)",
    "ports.uart": "without a framework: the UART's driver and its settings, or another board's that has them "
    "(stm32_usart_v1:base=0x40011000,irq=37,clock_hz=84000000,enable=0x40023844.4,tx=PA9,rx=PA10; or nucleo_f446re)",
    "ports.pins": "the pins' driver, likewise; none: an nRF's UART connects its pins itself",
    "ports.clock": "the clock's driver, likewise; none: the chip runs at its rate after a reset, which `clock` gives",
    "ports.timer": "the timer's driver, likewise; default: the core's cycle counter, or SysTick",
    "ports.cache": "the driver of the caches",
    "ports.boot": "the driver of a second boot stage",
    "ports.flash": "the driver of the flash, for modules",
    "usb": "the USB id (0483:374b)",
    "runner": "the tool that flashes it (openocd)",
    "source": "the source of these facts",
}
"""The facts that make up an entry, and what each means."""

NEEDED = ("cpu", "flash", "ram")
"""Facts that every entry needs; it also needs a Zephyr or an Arduino name, or a UART of its own."""

_FRAMEWORKS = ("zephyr", "arduino")
_PORTS = "ports."
_UART = "ports.uart"
_COUNTING = ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "cortex-m85")  # have a cycle counter
_SETTING = re.compile(r"(\w+)=([\w.-]+)")
_BIT = re.compile(r"(0x[0-9a-fA-F]+)\.(\d+)")
_MEMORY = re.compile(r"(0x[0-9a-fA-F]+|\d+):(\d+ ?(?:B|KiB|MiB)?)")
_CLOCK = re.compile(r"(\d+(?:\.\d+)?) ?(MHz|kHz|Hz|GHz)?", re.IGNORECASE)
_HZ = {"hz": 1, "": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}


def check(key: str, value: str, boards: Mapping[str, Board]) -> None:
    """Check a fact's name and value.

    Raises:
        UsageError: the fact is unknown, its value can't be parsed, or the core is unknown.
    """
    if key in ("flash", "ram"):
        _memory(key, value)
    elif key == "clock":
        _clock(value)
    elif key == "cpu":
        _core(value, "", boards)
    elif key in FACTS and key.startswith(_PORTS):
        _port(key, value, boards)
    if key not in FACTS:
        meant = spelling.did_you_mean(key, FACTS, otherwise=f"available: {', '.join(FACTS)}")
        raise UsageError(f"--set {key}: unknown fact", hint=meant)


def is_asked(key: str, answers: Mapping[str, str]) -> bool:
    """Return whether a fact is asked for, after earlier answers: one framework, and drivers only without one."""
    if key in (*_FRAMEWORKS, _UART):
        return not any(answers.get(key) for key in _FRAMEWORKS)
    return not key.startswith(_PORTS) or bool(answers.get(_UART))


def lacking(facts: Mapping[str, str], entry: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the facts that are still missing, given an initial entry and the facts set so far: one of each group."""
    present = {"flash", "ram"} if entry.get("memories") else set()
    present |= {key for key in ("cpu",) if entry.get(key)} | {key for key in facts if facts[key]}
    needed = [*NEEDED, *["clock"] * bool(facts.get(_UART) and not entry.get("clock_hz"))]
    missing: list[tuple[str, ...]] = [(key,) for key in needed if key not in present]
    ways = (*_FRAMEWORKS, _UART)
    return missing if entry.get("templates") or any(facts.get(key) for key in ways) else [*missing, ways]


def entry_of(facts: Mapping[str, str], start: Mapping[str, Any], boards: Mapping[str, Board]) -> dict[str, Any]:
    """Return an entry, without the board's name.

    Args:
        facts: values by key, of FACTS.
        start: the entry to start from; empty: none.
        boards: the known boards: the compiler and its flags are copied from one with the same core.

    Raises:
        UsageError: a fact can't be parsed, or the core is unknown.
    """
    entry: dict[str, Any] = {"description": "a board of my own", "source": "entered by hand", **start}
    entry |= {key: facts[key] for key in ("description", "source") if facts.get(key)}
    if facts.get("cpu") or facts.get("features"):
        entry |= _core(facts.get("cpu") or str(entry.get("cpu", "")), facts.get("features", ""), boards)
    if facts.get("clock"):
        entry["clock_hz"] = _clock(facts["clock"])
    if facts.get("flash") or facts.get("ram"):
        entry["memories"] = _memories(facts, entry.get("memories", {}))
    frameworks = {key: facts[key] for key in _FRAMEWORKS if facts.get(key)}
    if frameworks:
        entry["templates"] = {**entry.get("templates", {}), **frameworks}
    ported = {key.removeprefix(_PORTS): _port(key, facts[key], boards) for key in facts if key.startswith(_PORTS)}
    if ported:
        _add_ports(entry, ported)
    if facts.get("usb"):
        entry["usb"] = {"ids": [usb_id.strip().lower() for usb_id in facts["usb"].split(",")]}
    if facts.get("runner"):
        entry["flash"] = {facts["runner"]: entry.get("flash", {}).get(facts["runner"], {})}
    return entry


def _add_ports(entry: dict[str, Any], ported: dict[str, dict[str, Any]]) -> None:
    """Add drivers to an entry, and what its firmware needs besides: a timer, a start, a restart at its end."""
    counting = str(entry["cpu"]).partition("+")[0] in _COUNTING
    before = entry.get("timer") or {}
    timer = ported.pop("timer", {} if before else {"driver": "dwt" if counting else "systick"})
    if timer:
        named = {"kind": timer["driver"], "hz": timer.get("hz", entry.get("clock_hz", 0))}
        of_emulator = {"unit": before["unit"]} if "unit" in before else {}
        entry["timer"] = {**named, **of_emulator, **{key: timer[key] for key in timer if key not in ("driver", "hz")}}
    entry["ports"] = {**entry.get("ports", {}), **ported}
    entry["templates"] = {**entry.get("templates", {}), "baremetal": "baremetal"}
    entry["port"] = {"startup": "cortex_m", "at_end": "reset", **entry.get("port", {})}


def _port(key: str, text: str, boards: Mapping[str, Board]) -> dict[str, Any]:
    """Return a driver and its settings: DRIVER:KEY=VALUE,..., or those of a board.

    Raises:
        UsageError: it can't be parsed, the driver is unknown, or its settings are not what it needs.
    """
    role = key.removeprefix(_PORTS)
    name, _, settings = (part.strip() for part in text.partition(":"))
    if name in boards and not settings:
        board = boards[name]
        of_timer = {"driver": board.timer.kind, **board.timer_settings()} if board.timer else None
        copied = of_timer if role == "timer" else board.ports.get(cast(drivers.Role, role))
        if copied is None:
            raise UsageError(f"{name} has no {key}", details=[f"its ports: {', '.join(board.ports) or 'none'}"])
        return dict(copied)
    values: dict[str, Any] = {}
    for part in filter(None, (item.strip() for item in settings.split(","))):
        match = _SETTING.fullmatch(part)
        if match is None:
            hint = f"example: {key}=DRIVER:base=0x40011000,enable=0x40023844.4,tx=PA9"
            raise UsageError(f"{key}: {part!r} is not KEY=VALUE", hint=hint)
        is_rate = match[1] == "hz" or match[1].endswith("_hz")
        values[match[1]] = _clock(match[2]) if is_rate and _CLOCK.fullmatch(match[2]) else _setting(match[2])
    hz = {"hz": values.pop("hz")} if role == "timer" and "hz" in values else {}
    try:
        drivers.check(role, name, values)
    except ValueError as wrong:
        having = [item for item, board in boards.items() if (board.timer and role == "timer") or role in board.ports]
        details = [] if name in drivers.load_all() else [f"or copy it from a board: {', '.join(having)}"]
        raise UsageError(str(wrong), details=details, hint="see docs/add-a-board.md") from None
    return {"driver": name, **values, **hz}


def _setting(text: str) -> drivers.Setting:
    if (bit := _BIT.fullmatch(text)) is not None:
        return (int(bit[1], 16), int(bit[2]))
    return int(text, 0) if re.fullmatch(r"0x[0-9a-fA-F]+|-?[1-9]\d*|0", text) else text


def text_of(name: str, entry: Mapping[str, Any]) -> str:
    """Return the file for one entry."""
    empty: tuple[Any, ...] = ({}, [], "", 0, None)
    written = {key: _plain(key, value) for key, value in entry.items() if key != "name" and value not in empty}
    head = f"# A board of your own, by mtool boards --new {name}. mtool's docs/add-a-board.md explains each key.\n"
    return head + yaml.dump(
        {name: written}, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
    )


def _core(cpu: str, features: str, boards: Mapping[str, Board]) -> dict[str, Any]:
    alike = [board for board in boards.values() if board.cpu == cpu and board.toolchain]
    if not alike:
        cores = sorted({board.cpu for board in boards.values() if board.toolchain})
        hint = spelling.did_you_mean(cpu, cores, otherwise="start from a board that has it: --from zephyr:NAME")
        raise UsageError(f"unknown core {cpu!r}", details=[f"known: {', '.join(cores)}"], hint=hint)
    required = set(filter(None, map(str.strip, features.split(",")))) if features else set(alike[0].features)
    same = next((board for board in alike if board.features == required), None)
    if same is None:
        available = [",".join(sorted(board.features)) or "none" for board in alike]
        what = f"unknown core: {cpu} with {', '.join(sorted(required)) or 'no features'}"
        details = [f"known: {'; '.join(dict.fromkeys(available))}"]
        raise UsageError(what, details=details, hint="choose one of these, then edit features and cflags in the file")
    return {"cpu": cpu, "features": sorted(required), "toolchain": same.toolchain, "cflags": list(same.cflags)}


def _memories(facts: Mapping[str, str], start: Mapping[str, Any]) -> dict[str, Any]:
    held = {"flash": ["code", "weights"], "ram": ["arena", "data", "stack"]}
    memories = {}
    for key, roles in held.items():
        if facts.get(key):
            memories[key] = {**_memory(key, facts[key]), "holds": roles}
        else:
            memories |= {name: memory for name, memory in start.items() if set(memory["holds"]) & set(roles)}
    return memories | {name: memory for name, memory in start.items() if not memory["holds"]}


def _memory(key: str, text: str) -> dict[str, Any]:
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{key}={text} is not a memory", hint=f"example: {key}=0x20000000:64KiB")
    return {"base": int(match[1], 0), "size": re.sub(r"(\d) ?([KM]?i?B)", r"\1 \2", match[2])}


def _clock(text: str) -> int:
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"clock={text} is not a clock rate", hint="example: clock=168MHz")
    return round(float(match[1]) * _HZ[(match[2] or "").lower()])


_ADDRESSES = ("base", "flash", "start")  # of drivers' settings


class _Address(int):
    """A number that is written in hexadecimal."""


class _Dumper(yaml.SafeDumper):
    """YAML in the style of boards.yaml."""


_Dumper.add_representer(
    _Address, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:int", f"0x{int(value):08x}")
)


def _plain(key: str, value: Any) -> Any:
    if key == "ports":
        return {role: {name: _hex(name, item) for name, item in settings.items()} for role, settings in value.items()}
    if key == "timer":
        return {name: _hex(name, setting) for name, setting in value.items()}
    if key != "memories":
        return value
    return {name: {**each, "base": _Address(each["base"]), "size": _size(each["size"])} for name, each in value.items()}


def _hex(name: str, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_Address(value[0]), value[1]]
    return _Address(value) if isinstance(value, int) and name in _ADDRESSES else value


def _size(size: int | str) -> int | str:
    if isinstance(size, str):
        return size
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return size
