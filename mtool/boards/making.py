"""A new entry of a user's own: facts as a person tells them, and the file that holds them."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.boards import Board

FACTS: Mapping[str, str] = {
    "description": "what it is, in a line",
    "cpu": "GCC's name of the core (cortex-m4)",
    "features": "what the core has, of fpu, dsp, mve (fpu,dsp)",
    "clock": "its clock (168MHz)",
    "flash": "where its flash begins, and its size (0x08000000:1MiB)",
    "ram": "where its RAM begins, and its size (0x20000000:128KiB)",
    "zephyr": "Zephyr's name of it",
    "arduino": "Arduino's name of it (arduino:samd:mkrzero)",
    "usb": "its USB id (0483:374b)",
    "runner": "the tool that flashes it (openocd)",
    "source": "where these facts are from",
}
"""The facts that make an entry, and what each means."""

NEEDED = ("cpu", "flash", "ram")
"""Without these there is no entry; and it needs a name in Zephyr or in Arduino."""

_FRAMEWORKS = ("zephyr", "arduino")
_MEMORY = re.compile(r"(0x[0-9a-fA-F]+|\d+):(\d+ ?(?:B|KiB|MiB)?)")
_CLOCK = re.compile(r"(\d+(?:\.\d+)?) ?(MHz|kHz|Hz|GHz)?", re.IGNORECASE)
_HZ = {"hz": 1, "": 1, "khz": 10**3, "mhz": 10**6, "ghz": 10**9}


def check(key: str, value: str, known: Mapping[str, Board]) -> None:
    """Refuse a fact that is none, or that can't be read.

    Raises:
        UsageError: there is no such fact, or it is not as the others are, or nothing is known of the core.
    """
    if key in ("flash", "ram"):
        _memory(key, value)
    elif key == "clock":
        _clock(value)
    elif key == "cpu":
        _core(value, "", known)
    if key not in FACTS:
        meant = spelling.did_you_mean(key, FACTS, otherwise=f"there are: {', '.join(FACTS)}")
        raise UsageError(f"--set {key}: there is no such fact", hint=meant)


def lacking(facts: Mapping[str, str], entry: Mapping[str, Any]) -> list[str]:
    """Return the facts that have still to be told, for an entry to begin with and those that are told."""
    there = {"flash", "ram"} if entry.get("memories") else set()
    there |= {key for key in ("cpu",) if entry.get(key)} | {key for key in facts if facts[key]}
    missing = [key for key in NEEDED if key not in there]
    named = entry.get("templates") or any(facts.get(key) for key in _FRAMEWORKS)
    return missing if named else [*missing, "zephyr"]


def entry_of(facts: Mapping[str, str], start: Mapping[str, Any], known: Mapping[str, Board]) -> dict[str, Any]:
    """Return an entry, without the board's name.

    Args:
        facts: keys of FACTS, and what a person says of each.
        start: the entry to begin with; empty: none.
        known: the boards that are known: the compiler and its flags are those of one with the same core.

    Raises:
        UsageError: a fact can't be read, or nothing is known of the core.
    """
    entry: dict[str, Any] = {"description": "a board of my own", "source": "told by hand", **start}
    entry |= {key: facts[key] for key in ("description", "source") if facts.get(key)}
    if facts.get("cpu") or facts.get("features"):
        entry |= _core(facts.get("cpu") or str(entry.get("cpu", "")), facts.get("features", ""), known)
    if facts.get("clock"):
        entry["clock_hz"] = _clock(facts["clock"])
    if facts.get("flash") or facts.get("ram"):
        entry["memories"] = _memories(facts, entry.get("memories", {}))
    named = {key: facts[key] for key in _FRAMEWORKS if facts.get(key)}
    if named:
        entry["templates"] = {**entry.get("templates", {}), **named}
    if facts.get("usb"):
        entry["usb"] = {"ids": [each.strip().lower() for each in facts["usb"].split(",")]}
    if facts.get("runner"):
        entry["flash"] = {facts["runner"]: entry.get("flash", {}).get(facts["runner"], {})}
    return entry


def text_of(name: str, entry: Mapping[str, Any]) -> str:
    """Return the file of one entry."""
    empty: tuple[Any, ...] = ({}, [], "", 0, None)
    written = {key: _plain(key, value) for key, value in entry.items() if key != "name" and value not in empty}
    head = f"# A board of your own, by mtool boards --new {name}. What each key means: mtool's docs/add-a-board.md\n"
    return head + yaml.dump(
        {name: written}, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110
    )


def _core(cpu: str, features: str, known: Mapping[str, Board]) -> dict[str, Any]:
    alike = [board for board in known.values() if board.cpu == cpu and board.toolchain]
    if not alike:
        cores = sorted({board.cpu for board in known.values() if board.toolchain})
        hint = spelling.did_you_mean(cpu, cores, otherwise="begin with a board that has it: --from zephyr:NAME")
        raise UsageError(f"nothing is known of the core {cpu!r}", details=[f"known: {', '.join(cores)}"], hint=hint)
    wanted = {each.strip() for each in features.split(",") if each.strip()} if features else set(alike[0].features)
    same = next((board for board in alike if board.features == wanted), None)
    if same is None:
        found = [",".join(sorted(board.features)) or "none" for board in alike]
        what = f"no {cpu} with {', '.join(sorted(wanted)) or 'no features'} is known"
        details = [f"known: {'; '.join(dict.fromkeys(found))}"]
        raise UsageError(what, details=details, hint="choose one of these, and edit features and cflags in the file")
    return {"cpu": cpu, "features": sorted(wanted), "toolchain": same.toolchain, "cflags": list(same.cflags)}


def _memories(facts: Mapping[str, str], start: Mapping[str, Any]) -> dict[str, Any]:
    held = {"flash": ["code", "weights"], "ram": ["arena", "data", "stack"]}
    found = {}
    for key, roles in held.items():
        if facts.get(key):
            found[key] = {**_memory(key, facts[key]), "holds": roles}
        else:
            before = {name: each for name, each in start.items() if set(each["holds"]) & set(roles)}
            found |= before
    return found


def _memory(key: str, text: str) -> dict[str, Any]:
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{key}={text} is no memory", hint=f"an example: {key}=0x20000000:64KiB")
    return {"base": int(match[1], 0), "size": re.sub(r"(\d) ?([KM]?i?B)", r"\1 \2", match[2])}


def _clock(text: str) -> int:
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"clock={text} is no clock", hint="an example: clock=168MHz")
    return round(float(match[1]) * _HZ[(match[2] or "").lower()])


class _Address(int):
    """A number that is written in hexadecimal."""


class _Dumper(yaml.SafeDumper):
    """YAML as boards.yaml has it."""


_Dumper.add_representer(
    _Address, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:int", f"0x{int(value):08x}")
)


def _plain(key: str, value: Any) -> Any:
    if key != "memories":
        return value
    return {name: {**each, "base": _Address(each["base"]), "size": _size(each["size"])} for name, each in value.items()}


def _size(size: int | str) -> int | str:
    if isinstance(size, str):
        return size
    for unit, one in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % one == 0:
            return f"{size // one} {unit}"
    return size
