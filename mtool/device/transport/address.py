"""The address of a device's channel: what `--port` takes besides the name of a serial port."""

import re
from dataclasses import dataclass
from typing import Literal

from mtool.base import spelling
from mtool.base.errors import UsageError

Server = Literal["gdb", "jlink", "openocd", "pyocd"]

LOCALHOST = "127.0.0.1"
_SERVERS: dict[str, int | None] = {"gdb": None, "jlink": 19021, "openocd": 9090, "pyocd": None}
_FORMS = (
    "/dev/ttyACM0, COM3       a serial port",
    "tcp://HOST:PORT          a serial port or a firmware behind a network, byte by byte",
    "rtt:jlink[:HOST:PORT]    SEGGER RTT through a running J-Link program (19021)",
    "rtt:openocd[:HOST:PORT]  SEGGER RTT through OpenOCD's `rtt server start` (9090)",
    "rtt:pyocd[:TARGET]       SEGGER RTT through pyOCD, of a chip by pyOCD's name",
    "rtt:gdb:HOST:PORT        SEGGER RTT by the memory commands of any gdb server",
)


@dataclass(frozen=True, slots=True)
class Tcp:
    """A channel over TCP."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Rtt:
    """SEGGER RTT: who reads the rings, where that listens or which chip it drives, and where the control block is.

    `block` is the block's address; None: what the firmware's symbols say.
    """

    server: Server
    host: str = LOCALHOST
    port: int = 0
    target: str = ""
    block: int | None = None


def parse(port: str) -> Tcp | Rtt | None:
    """Return the address that a port's name is, or None for that of a serial port or a URL of pyserial's.

    Raises:
        UsageError: it begins as one, and is none; the message lists the forms.
    """
    if port.startswith("tcp:"):
        return Tcp(*_host_and_port(port, port.removeprefix("tcp:").removeprefix("//")))
    if port.startswith("rtt:") or port == "rtt":
        return _rtt(port)
    return None


def _rtt(port: str) -> Rtt:
    text, at, block = port.partition("@")
    _, _, rest = text.partition(":")
    name, colon, where = rest.partition(":")
    address = _block(port, block) if at else None
    if name not in _SERVERS:
        what = "names nobody who reads RTT" if not name else f"{name!r} is nobody who reads RTT"
        raise _wrong(port, what, spelling.did_you_mean(name, _SERVERS, otherwise="for instance: --port rtt:jlink"))
    server: Server = name  # type: ignore[assignment]
    if server == "pyocd":
        return Rtt(server, target=where, block=address)
    usual = _SERVERS[server]
    if not colon and usual is not None:
        return Rtt(server, port=usual, block=address)
    return Rtt(server, *_host_and_port(port, where), block=address)


def _host_and_port(port: str, text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]+):(\d{1,5})/?", text)
    if found is None:
        raise _wrong(port, "has no HOST:PORT", "for instance: --port tcp://192.168.1.7:4000")
    number = int(found[2])
    if not 0 < number < 1 << 16:
        raise _wrong(port, f"{number} is no TCP port", "1 to 65535 are")
    return found[1].strip("[]"), number


def _block(port: str, text: str) -> int:
    if re.fullmatch(r"0[xX][0-9A-Fa-f]{1,8}", text) is None:
        raise _wrong(port, f"{text!r} is no address of a control block", "for instance: --port rtt:jlink@0x20000400")
    return int(text, 16)


def _wrong(port: str, what: str, hint: str) -> UsageError:
    return UsageError(f"--port {port}: {what}", details=["a port is one of:", *_FORMS], hint=hint)
