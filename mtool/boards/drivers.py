"""The drivers of a board without an operating system (crt/ports): their records, and a board's settings."""

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from pydantic import Field

from mtool.base import records, resources, spelling

FOLDER = "ports"
"""Where the drivers are, below crt/."""

Role = Literal["boot", "clock", "cache", "pins", "uart", "timer", "flash", "random"]
ROLES: tuple[Role, ...] = get_args(Role)
Setting = int | str | tuple[int, int]
"""A number, a pin ("PA9"), or a register and a bit in it."""

_PIN = re.compile(r"P([A-Z])(\d{1,2})|P(\d)\.(\d{1,2})|GPIO(\d{1,2})")
_PINS_PER_PORT = 32
_OF_PINS = ("tx", "rx")
_OF_BITS = ("enable", "reset", "supply", "supply_enable", "oscillator")
_OF_ADDRESSES = ("base", "flash", "start")
_RANGES = {"irq": (0, 479), "clock_hz": (1, 2**32 - 1), "source_hz": (1, 2**32 - 1)}  # an NVIC has 480 interrupts


class Driver(records.Strict):
    """A driver's record in crt/ports/drivers.yaml.

    Attributes:
        role: what it drives.
        chips: the chips that it is for.
        manual: the documents that describe its registers.
        seen: where it has run; empty: nowhere, it was only tested against a model of its registers.
        keys: the settings that it needs, and what each means.
        optional: settings that it may have.
        pins: of a driver that connects pins (a UART's may do so itself): the first and the last one, "PA0 to PK15".
    """

    role: Role
    chips: str
    manual: str
    seen: str = ""
    keys: dict[str, str]
    optional: dict[str, str] = Field(default={})
    pins: str = ""


@functools.cache
def load_all() -> Mapping[str, Driver]:
    """Return the drivers' records by name."""
    entries = resources.read_yaml(resources.path("crt") / FOLDER / "drivers.yaml")
    return {name: Driver.model_validate(record) for name, record in entries.items()}


def pin_number(text: str) -> int:
    """Return a pin's number, port * 32 + pin: 9 for "PA9", 38 for "P1.06", 0 for "GPIO0".

    Raises:
        ValueError: it is not a pin's name.
    """
    port, number = _place(text)
    return port * _PINS_PER_PORT + number


def _place(text: str) -> tuple[int, int]:
    """Return a pin's port and its number in the port.

    Raises:
        ValueError: it is not a pin's name.
    """
    match = _PIN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a pin; write PA9, P0.06 or GPIO0")
    port = ord(match[1]) - ord("A") if match[1] else int(match[3] or 0)
    return port, int(match[2] or match[4] or match[5])


def check(role: str, name: str, settings: Mapping[str, Setting]) -> None:
    """Check the settings of one driver.

    Raises:
        ValueError: the driver is unknown or has another role, a setting is unknown, missing or not what it should be.
    """
    of_role = [key for key, driver in load_all().items() if driver.role == role]
    if name not in of_role:
        raise ValueError(f"ports.{role}: unknown driver {name!r}; {_suggestion(name, of_role)}")
    driver = load_all()[name]
    allowed = {**driver.keys, **driver.optional}
    for key, value in settings.items():
        if key not in allowed:
            raise ValueError(f"ports.{role}: unknown setting {key!r} for {name}; {_suggestion(key, allowed)}")
        try:
            _check(key, value)
        except ValueError as wrong:
            raise ValueError(f"ports.{role}.{key}: {wrong} ({allowed[key]})") from None
    missing = [f"{key} ({driver.keys[key]})" for key in driver.keys if key not in settings]
    if missing:
        raise ValueError(f"ports.{role}: {name} also needs {', '.join(missing)}")


def _check(key: str, value: Setting) -> None:
    """Check a setting.

    Raises:
        ValueError: it is not of its kind, or out of range.
    """
    if key in _OF_PINS:
        pin_number(str(value))
        return
    if key in _OF_BITS:
        if not isinstance(value, tuple):
            raise ValueError(f"{value!r} is not a register and a bit in it")
        number, bit = value
        if bit not in range(32):
            raise ValueError(f"a register has no bit {bit}")
    elif isinstance(value, int):
        number = value
    else:
        raise ValueError(f"{value!r} is not a number")
    least, most = _RANGES.get(key, (0, 2**32 - 1))
    if not least <= number <= most:
        raise ValueError(f"{number} is out of range: {least} to {most}")
    if key in (*_OF_ADDRESSES, *_OF_BITS) and number % 4:
        raise ValueError(f"0x{number:08x} is not the address of a word")


def check_pins(ports: Mapping[Role, Mapping[str, Setting]]) -> None:
    """Check that a board's UART has two pins, and that its driver for pins has them.

    Raises:
        ValueError: no driver connects them, they are the same, or the chip has no such pin.
    """
    uart = ports.get("uart")
    if uart is None:
        return
    wires = {key: str(uart[key]) for key in _OF_PINS}
    name = str(ports.get("pins", uart)["driver"])
    pins = load_all()[name].pins
    if not pins:
        of_pins = {key: driver.pins for key, driver in load_all().items() if driver.role == "pins"}
        fitting = [driver for driver, names in of_pins.items() if all(_is_among(pin, names) for pin in wires.values())]
        available = f"available: {', '.join(fitting or of_pins)}"
        raise ValueError(f"ports.uart: tx and rx need ports.pins, a driver that connects them; {available}")
    for key, pin in wires.items():
        if not _is_among(pin, pins):
            raise ValueError(f"ports.uart.{key}: {pin!r} is not a pin of {name}: {pins}")
    if pin_number(wires["tx"]) == pin_number(wires["rx"]):
        raise ValueError(f"ports.uart: tx and rx are the same pin, {wires['tx']}")


def addresses(settings: Mapping[str, Setting]) -> dict[str, int]:
    """Return a driver's settings that are addresses, of registers or of an area in flash."""
    plain = {key: value[0] if isinstance(value, tuple) else value for key, value in settings.items()}
    return {key: value for key, value in plain.items() if isinstance(value, int) and key in (*_OF_ADDRESSES, *_OF_BITS)}


def _is_among(pin: str, pins: str) -> bool:
    """Return whether a pin is in a range of ports and in a port's range, with a name of the same form."""
    first, _, last = pins.partition(" to ")
    forms = [re.sub(r"\d+$", "", re.sub(r"^P[A-Z]", "PA", re.sub(r"^P\d\.", "P0.", text))) for text in (pin, first)]
    port, number = _place(pin)
    last_port, last_number = _place(last)
    return forms[0] == forms[1] and port <= last_port and number <= last_number


def _suggestion(name: str, among: Iterable[str]) -> str:
    names = [*among]
    return spelling.did_you_mean(name, names, otherwise=f"available: {', '.join(names) or 'none'}")


def macros(role: str, settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the C macros of a driver's settings: MT_UART_BASE for `base` of the role uart."""
    result: dict[str, str] = {}
    for key, value in settings.items():
        name = f"MT_{role}_{key}".upper()
        if isinstance(value, tuple):
            result |= {name: f"0x{value[0]:08X}u", f"{name}_BIT": f"{value[1]}u"}
        else:
            number = pin_number(value) if isinstance(value, str) else value
            result[name] = f"0x{number:08X}u" if key == "base" else f"{number}u"
    return result
