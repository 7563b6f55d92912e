"""The drivers of a board without an operating system (crt/ports): their records, and a board's settings."""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from pydantic import Field

from mtool.base import records, resources, spelling

FOLDER = "ports"
"""Where the drivers are, below crt/."""

Role = Literal["boot", "clock", "cache", "pins", "uart", "timer", "flash"]
ROLES: tuple[Role, ...] = get_args(Role)
Setting = int | str | tuple[int, int]
"""A number, a pin ("PA9"), or a register and a bit in it."""

_PIN = re.compile(r"P([A-Z])(\d{1,2})|P(\d)\.(\d{1,2})|GPIO(\d{1,2})")
_PINS_PER_PORT = 32


class Driver(records.Strict):
    """A driver's record in crt/ports/drivers.yaml.

    Attributes:
        role: what it drives.
        chips: the chips that it is for.
        manual: the documents that describe its registers.
        seen: where it has run; empty: nowhere, it was only tested against a model of its registers.
        keys: the settings that it needs, and what each means.
        optional: settings that it may have.
    """

    role: Role
    chips: str
    manual: str
    seen: str = ""
    keys: dict[str, str]
    optional: dict[str, str] = Field(default={})


@functools.cache
def known() -> Mapping[str, Driver]:
    """Return the drivers' records by name."""
    found = resources.read_yaml(resources.path("crt") / FOLDER / "drivers.yaml")
    return {name: Driver.model_validate(record) for name, record in found.items()}


def pin_number(text: str) -> int:
    """Return a pin's number, port * 32 + pin: 9 for "PA9", 38 for "P1.06", 0 for "GPIO0".

    Raises:
        ValueError: it is not a pin.
    """
    found = _PIN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a pin; write PA9, P0.06 or GPIO0")
    port = ord(found[1]) - ord("A") if found[1] else int(found[3] or 0)
    number = int(found[2] or found[4] or found[5])
    if number >= _PINS_PER_PORT:
        raise ValueError(f"{text!r} is not a pin; a port has {_PINS_PER_PORT}")
    return port * _PINS_PER_PORT + number


def check(role: str, name: str, settings: Mapping[str, Setting]) -> None:
    """Check the settings of one driver.

    Raises:
        ValueError: the driver is unknown or has another role, a setting is unknown, missing or not a pin.
    """
    of_role = [one for one, driver in known().items() if driver.role == role]
    if name not in of_role:
        raise ValueError(f"ports.{role}: unknown driver {name!r}; {_meant(name, of_role)}")
    driver = known()[name]
    allowed = {**driver.keys, **driver.optional}
    for key, value in settings.items():
        if key not in allowed:
            raise ValueError(f"ports.{role}: unknown setting {key!r} for {name}; {_meant(key, allowed)}")
        if isinstance(value, str):
            try:
                pin_number(value)
            except ValueError as wrong:
                raise ValueError(f"ports.{role}.{key}: {wrong}") from None
    missing = [f"{key} ({driver.keys[key]})" for key in driver.keys if key not in settings]
    if missing:
        raise ValueError(f"ports.{role}: {name} also needs {', '.join(missing)}")


def _meant(name: str, among: Iterable[str]) -> str:
    names = [*among]
    return spelling.did_you_mean(name, names, otherwise=f"available: {', '.join(names) or 'none'}")


def macros(role: str, settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the C macros of a driver's settings: MT_UART_BASE for `base` of the role uart."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        name = f"MT_{role}_{key}".upper()
        if isinstance(value, tuple):
            found |= {name: f"0x{value[0]:08X}u", f"{name}_BIT": f"{value[1]}u"}
        else:
            number = pin_number(value) if isinstance(value, str) else value
            found[name] = f"0x{number:08X}u" if key == "base" else f"{number}u"
    return found
