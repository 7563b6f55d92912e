"""The channel at a port: a serial port, TCP, or SEGGER RTT through a debugger."""

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from mtool.base import spelling
from mtool.base.errors import BuildError, UsageError
from mtool.device.transport import rtt
from mtool.device.transport.base import Transport
from mtool.device.transport.gdb_remote import GdbMemory, TcpTransport
from mtool.device.transport.process import ProcessTransport
from mtool.device.transport.serial import SerialTransport

LOCALHOST = "127.0.0.1"
_SERVERS: dict[str, int | None] = {"gdb": None, "jlink": 19021, "openocd": 9090, "pyocd": None}
_FORMS = (
    "/dev/ttyACM0, COM3       a serial port",
    "tcp://HOST:PORT          a serial port or firmware on a network, raw bytes",
    "rtt:jlink[:HOST:PORT]    SEGGER RTT through a running J-Link program (19021)",
    "rtt:openocd[:HOST:PORT]  SEGGER RTT through OpenOCD's `rtt server start` (9090)",
    "rtt:pyocd[:TARGET]       SEGGER RTT through pyOCD; TARGET is pyOCD's name of the chip",
    "rtt:gdb:HOST:PORT        SEGGER RTT through any gdb server, by memory accesses",
)


@dataclass(frozen=True, slots=True)
class Address:
    """A `--port` other than a serial port.

    Attributes:
        server: the other end: "tcp", or the reader of SEGGER RTT: "gdb", "jlink", "openocd", "pyocd".
        host, port: where it listens.
        target: the chip that pyOCD drives.
        block: the address of RTT's control block; None: from the firmware's symbols.
    """

    server: str
    host: str = LOCALHOST
    port: int = 0
    target: str = ""
    block: int | None = None


def parse(port: str) -> Address | None:
    """Return the address for a port's name, or None for a serial port or one of pyserial's URLs.

    Raises:
        UsageError: it looks like an address, but is malformed; the message lists the forms.
    """
    if port.startswith("tcp:"):
        return Address("tcp", *_host_and_port(port, port.removeprefix("tcp:").removeprefix("//")))
    if not port.startswith("rtt:") and port != "rtt":
        return None
    text, at, address = port.partition("@")
    server, colon, where = text.removeprefix("rtt").removeprefix(":").partition(":")
    if at and re.fullmatch(r"0[xX][0-9A-Fa-f]{1,8}", address) is None:
        raise _wrong(port, f"{address!r} is not an address of a control block", "example: --port rtt:jlink@0x20000400")
    block = int(address, 16) if at else None
    if server not in _SERVERS:
        what = f"{server!r} is not a reader of RTT" if server else "the reader of RTT is missing"
        raise _wrong(port, what, spelling.did_you_mean(server, _SERVERS, otherwise="example: --port rtt:jlink"))
    if server == "pyocd":
        return Address(server, target=where, block=block)
    usual = _SERVERS[server]
    if not colon and usual is not None:
        return Address(server, port=usual, block=block)
    return Address(server, *_host_and_port(port, where), block=block)


def _host_and_port(port: str, text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/\s]+):(\d{1,5})/?", text)
    if match is None:
        raise _wrong(port, "HOST:PORT is missing", "example: --port tcp://192.168.1.7:4000")
    number = int(match[2])
    if not 0 < number < 1 << 16:
        raise _wrong(port, f"{number} is not a TCP port", "use a port from 1 to 65535")
    return match[1].strip("[]"), number


def _wrong(port: str, what: str, hint: str) -> UsageError:
    return UsageError(f"--port {port}: {what}", details=["a port is one of:", *_FORMS], hint=hint)


_BITS_PER_BYTE = 10
_PROBE_BYTES_PER_SECOND = 2e3  # of RTT to the device, through a slow probe
_PYOCD = "pip install pyocd"


def open_port(port: str, *, baud: int, firmware: Path | None = None, probe: str = "") -> Transport:
    """Return the channel to a device.

    Args:
        port: its name or address, as for `--port`.
        baud: bits per second, of a serial port and of one behind TCP.
        firmware: the device's ELF file, whose symbols have the address of RTT's control block; None: it is not here.
        probe: the USB serial number of the probe for pyOCD; empty: the only one.

    Raises:
        UsageError: the address is malformed, or the firmware has no RTT.
        BuildError: pyOCD is not installed.
        BoardError: another mtool has the port open.
        CommunicationError: it can't be opened, or nothing answers there.
    """
    where = parse(port)
    if where is None:
        return SerialTransport(port, baud=baud)
    if where.server == "tcp":
        return TcpTransport(where.host, where.port, bytes_per_second=baud / _BITS_PER_BYTE)
    return _rtt_line(port, where, firmware, probe)


def control_block(firmware: Path) -> int | None:
    """Return the address of RTT's control block in firmware, by its symbol; None: it has none."""
    try:
        with firmware.open("rb") as file:
            tables = [section for section in ELFFile(file).iter_sections() if isinstance(section, SymbolTableSection)]
            symbols = [symbol for table in tables for symbol in table.get_symbol_by_name(rtt.SYMBOL) or ()]
            return int(symbols[0]["st_value"]) if symbols else None
    except (OSError, ELFError):
        return None


def _rtt_line(port: str, where: Address, firmware: Path | None, probe: str) -> Transport:
    block = where.block
    if block is None and firmware is not None:
        block = control_block(firmware)
        if block is None:
            raise UsageError(
                f"--port {port}: the firmware has no RTT",
                details=[f"{firmware.name} has no symbol {rtt.SYMBOL}"],
                hint="build it with --option channel=rtt",
            )
    if where.server == "gdb":
        if block is None:
            what = f"--port {port}: the address of RTT's control block is unknown"
            raise UsageError(what, hint=f"append it: --port {port}@0x20000000")
        return rtt.RttTransport(GdbMemory(where.host, where.port), block)
    if where.server == "pyocd":
        if importlib.util.find_spec("pyocd") is None:
            details = [f"looked for in {sys.prefix}"]
            raise BuildError("pyOCD is not installed beside mtool", details=details, hint=f"install it: {_PYOCD}")
        program = str(Path(__file__).with_name("pyocd_rtt.py"))
        at = "" if block is None else f"{block:x}"
        argv = [sys.executable, program, where.target, probe, at]
        return ProcessTransport(argv, name="RTT through pyocd", bytes_per_second=_PROBE_BYTES_PER_SECOND)
    name = f"RTT through {where.server} at {where.host}:{where.port}"
    if where.server == "jlink":
        # Must be sent within 100 ms; the J-Link software otherwise searches for the block.
        commands = "RTTCh;0" + ("" if block is None else f";SetRTTAddr;0x{block:08X}")
        greeting = f"$$SEGGER_TELNET_ConfigStr={commands}$$".encode()
        hint = "start J-Link's gdb server or Commander, connected to the chip: JLinkGDBServer -device DEVICE -if SWD"
    else:
        greeting = b""
        start = 'rtt setup ADDRESS 64 "SEGGER RTT"; rtt start; rtt server start'
        at = "0x20000000" if block is None else f"0x{block:08x}"
        hint = f"run in OpenOCD: {start.replace('ADDRESS', at)} {where.port} 0"
    rate = _PROBE_BYTES_PER_SECOND
    return TcpTransport(where.host, where.port, name=name, hint=hint, greeting=greeting, bytes_per_second=rate)
