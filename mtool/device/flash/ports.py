"""Choose a device: find attached boards by VID:PID and USB serial number, and select one.

A USB serial number identifies a probe and its UART, so the port that is read belongs to the board that is
flashed. The order: `--port` and `--probe`, then MTOOL_PORT and MTOOL_PROBE, then mtool.toml, then the only match.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serial.tools import list_ports

from mtool.base import configuration, plural
from mtool.base.errors import BoardError, UsageError
from mtool.boards import Board
from mtool.device.flash.runner import no_device_hint
from mtool.device.transport import opening

EMULATOR = "emulator"
"""The value of --port for the board's emulator, even if a board is attached."""

_SHORTEST_PREFIX = 8  # characters of a serial number in a hint
_POLL_S = 1.0
_USB = Path("/sys/bus/usb/devices")
_HUBS = "1d6b"  # the Linux Foundation: the host's own hubs


@dataclass(frozen=True, slots=True)
class Attached:
    """A USB device: a board, or its probe.

    Attributes:
        port: the port's device file; the first if it has several; "" if it has none.
        usb_id: "VID:PID" in hex; "" for a port that is not USB.
        probe: the USB serial number; "" if it has none.
        description: its own product name ("ST-LINK").
        more_ports: its other ports.
    """

    port: str
    usb_id: str
    probe: str
    description: str
    more_ports: tuple[str, ...] = ()

    @property
    def lock(self) -> str:
        """What to lock while the board may be unplugged and come back at a port that was another board's before."""
        return self.probe or f"the board at {self.port}"

    def __str__(self) -> str:
        more = f"   also {', '.join(self.more_ports)}" if self.more_ports else ""
        return f"{self.port or 'no port'}   {self.description} {self.probe or self.usb_id}".rstrip() + more


@dataclass(frozen=True, slots=True)
class DeviceSelector:
    """The requested device, and where the request comes from ("--probe", "MTOOL_PROBE", "mtool.toml"); empty: any."""

    port: str = ""
    probe: str = ""
    origin: str = ""


Listing = Callable[[], Iterable[Any]]  # of pyserial's ListPortInfo


def attached(listing: Listing = list_ports.comports, usb: Path = _USB) -> list[Attached]:
    """Return the USB devices with a serial number or a serial port, in the order of their ports.

    Ports of one USB device (same VID:PID and serial number, or same place on the bus) are one entry.

    Args:
        listing: the source of the ports.
        usb: where Linux lists the USB devices; probes without a port are only found on Linux.
    """
    groups: dict[tuple[str, str], list[Any]] = {}
    for info in listing():
        if info.vid is None:
            continue
        usb_id = f"{info.vid:04x}:{info.pid:04x}"
        where = (info.location or info.device).split(":")[0]  # without the interface: "1-1.2:1.0"
        groups.setdefault((usb_id, info.serial_number or f"at {where}"), []).append(info)
    devices = []
    for (usb_id, _), infos in groups.items():
        first, *others = sorted(infos, key=lambda info: (_natural(info.location or ""), _natural(info.device)))
        text = first.product or first.description or ""
        name = "" if text in ("n/a", first.device) else re.sub(r"\s+", " ", str(text)).strip()
        more = tuple(info.device for info in others)
        devices.append(Attached(first.device, usb_id, first.serial_number or "", name, more))
    devices.sort(key=lambda device: _natural(device.port))
    with_port = {(device.usb_id, device.probe) for device in devices}
    return devices + [device for device in _portless(usb) if (device.usb_id, device.probe) not in with_port]


def _portless(usb: Path) -> list[Attached]:
    """Return the USB devices that have a serial number, with or without a port."""
    devices = []
    for folder in sorted(usb.glob("*")):
        with contextlib.suppress(OSError):
            vendor, product, serial = (
                (folder / file).read_text().strip() for file in ("idVendor", "idProduct", "serial")
            )
            product_file = folder / "product"
            name = product_file.read_text().strip() if product_file.is_file() else ""
            if vendor and product and serial and vendor != _HUBS:
                devices.append(Attached("", f"{vendor}:{product}", serial, name))
    return devices


def matching(board: Board, devices: Sequence[Attached]) -> list[Attached]:
    """Return the devices that may be the board."""
    ids = board.usb.ids if board.usb else ()
    return [device for device in devices if device.usb_id in ids]


def selector(
    port: str = "", probe: str = "", *, environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> DeviceSelector:
    """Return the requested device: from the arguments, else the environment, else mtool.toml.

    Args:
        port: the value of `--port`.
        probe: the value of `--probe`.
        environment: where MTOOL_PORT and MTOOL_PROBE are looked up.
        folder: the first folder in which mtool.toml is looked for, then its parents; default: the working folder.

    Raises:
        UsageError: mtool.toml can't be read, or has an unknown key.
    """
    config = configuration.load(folder)
    for origin, names in (
        ("the command line", (port, probe)),
        ("the environment", (environment.get("MTOOL_PORT", ""), environment.get("MTOOL_PROBE", ""))),
        (configuration.FILE_NAME, (config.port, config.probe)),
    ):
        if any(names):
            return DeviceSelector(*names, origin)
    return DeviceSelector()


def resolve(board: Board, selector: DeviceSelector, devices: Sequence[Attached] | None = None) -> Attached | None:
    """Return the selected device, or None if no such board is attached and none was requested.

    Args:
        board: the board to look for.
        selector: the result of `selector`.
        devices: the attached devices; default: those of this computer.

    Raises:
        UsageError: the port is a malformed address.
        BoardError: the requested device is missing, or several boards match; the message lists what is attached.
    """
    present = attached() if devices is None else list(devices)
    if selector.port:
        return _by_port(selector, present)
    candidates = matching(board, present)
    if selector.probe:
        # A separate probe (a J-Link on a board without one) has another VID:PID than the board.
        selected = [device for device in present if device.probe.upper().startswith(selector.probe.upper())]
        if not selected:
            origin, hint = f"requested by {selector.origin}", "choose one of these with --probe (a prefix is enough)"
            raise _missing(f"no probe {selector.probe}", origin, present, hint)
        candidates = [device for device in selected if device in candidates] or selected
    if len(candidates) > 1:
        raise _ambiguous(board, candidates)
    return candidates[0] if candidates else None


def require(board: Board, selector: DeviceSelector, devices: Sequence[Attached] | None = None) -> Attached:
    """Return the selected device.

    Raises:
        BoardError: as for `resolve`; or no such board is attached.
    """
    present = attached() if devices is None else list(devices)
    device = resolve(board, selector, present)
    if device is None:
        ids = ", ".join(board.usb.ids) if board.usb else ""
        looked = f"looked for: USB {ids}" if ids else "its entry in boards.yaml has no usb ids"
        raise _missing(f"no {board.name}", looked, present, "if it is one of these, choose it with --port")
    return device


def check_emulator(board: Board) -> None:
    """Refuse `--port emulator` for a board that has none.

    Raises:
        UsageError: the board has no emulator.
    """
    if board.emulator is None:
        raise UsageError(f"{board.name} has no emulator", hint=f"omit --port {EMULATOR}, or use its serial port")


def any_port(selector: DeviceSelector, devices: Sequence[Attached] | None = None) -> Attached:
    """Return the selected device, whatever board it is: the requested one, or the only one with a port.

    Raises:
        UsageError: the port is a malformed address.
        BoardError: the requested device is missing, or no or several devices are attached.
    """
    present = attached() if devices is None else list(devices)
    if selector.port:
        return _by_port(selector, present)
    named = [device for device in present if device.probe.upper().startswith(selector.probe.upper())]
    candidates = [device for device in named if device.port]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        missing = f"no probe {selector.probe} with a serial port" if selector.probe else "nothing with a serial port"
        raise BoardError(
            f"{missing} is attached", details=_listed(present) if selector.probe else (), hint=no_device_hint()
        )
    what = f"{plural.count(len(candidates), 'device')} with a serial port are attached"
    details = [str(device) for device in candidates]
    raise BoardError(what, details=details, hint="choose one with --port, --probe or --board")


def watch(
    listing: Listing = list_ports.comports, *, poll_s: float = _POLL_S, times: int | None = None
) -> Iterator[tuple[str, Attached]]:
    """Yield ("+", device) for each device that is present or appears, ("-", device) for each that disappears.

    Args:
        listing: the source of the ports.
        poll_s: seconds between two polls.
        times: the number of polls; None: forever.
    """
    previous: list[Attached] = []
    looks = 0
    while times is None or looks < times:
        now = [device for device in attached(listing) if device.port]
        yield from (("-", device) for device in previous if device not in now)
        yield from (("+", device) for device in now if device not in previous)
        previous = now
        looks += 1
        if times is None or looks < times:
            time.sleep(poll_s)


def _by_port(selector: DeviceSelector, present: Sequence[Attached]) -> Attached:
    """Return the device at a port; a port that is not USB (a pseudo-terminal, TCP, RTT) is used as it is."""
    opening.parse(selector.port)
    path = (
        str(Path(selector.port).resolve()) if selector.port.startswith("/") else selector.port
    )  # /dev/serial/by-id/...
    device = next((candidate for candidate in present if path in (candidate.port, *candidate.more_ports)), None)
    if device is None:
        if selector.port.startswith("/") and not Path(selector.port).exists():
            what = f"port {selector.port} not found"
            hint = no_device_hint() if not present else "choose one of these with --port"
            raise BoardError(what, details=[f"requested by {selector.origin}", *_listed(present)], hint=hint)
        return Attached(selector.port, "", selector.probe, "")
    if selector.probe and not device.probe.upper().startswith(selector.probe.upper()):
        what = f"{selector.port} is not the port of the probe {selector.probe}"
        details = [f"both were requested by {selector.origin}", *_listed(present)]
        raise BoardError(what, details=details, hint="use one of the two: a probe's serial number identifies its port")
    others = tuple(port for port in (device.port, *device.more_ports) if port != path)
    return Attached(path, device.usb_id, device.probe, device.description, others)


def _ambiguous(board: Board, candidates: Sequence[Attached]) -> BoardError:
    probes = [device.probe for device in candidates]
    if (all(probes) and len(set(probes)) == len(probes)) or not candidates[0].port:
        length = _SHORTEST_PREFIX
        while len({probe[:length] for probe in probes}) < len(probes):
            length += 1
        hint = f"choose one with --probe {probes[0][:length]} (a prefix is enough) or set MTOOL_PROBE"
    else:
        hint = f"choose one with --port {candidates[0].port} or set MTOOL_PORT"
    return BoardError(
        f"{plural.count(len(candidates), 'board')} match {board.name}",
        details=[str(device) for device in candidates],
        hint=hint,
    )


def _missing(what: str, why: str, present: Sequence[Attached], hint: str) -> BoardError:
    hint = hint if present else no_device_hint()
    return BoardError(f"{what} is attached", details=[why, *_listed(present)], hint=hint)


def _listed(devices: Sequence[Attached]) -> list[str]:
    return [str(device) for device in devices if device.port] or ["nothing with a serial port is attached"]


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts ttyACM10 after ttyACM9."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", text) if part]
