"""The channel at a port: a serial port, TCP, or SEGGER RTT through whoever reads it."""

import importlib.util
import sys
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from mtool.base.errors import BuildError, UsageError
from mtool.device.transport import address, rtt
from mtool.device.transport.address import Rtt, Tcp
from mtool.device.transport.base import Transport
from mtool.device.transport.gdb_remote import GdbMemory
from mtool.device.transport.process import ProcessTransport
from mtool.device.transport.serial import SerialTransport
from mtool.device.transport.tcp import TcpTransport

_BITS_PER_BYTE = 10
_PROBE_BYTES_PER_SECOND = 2e3  # of RTT's way down through a slow probe
_PYOCD = "pip install pyocd"


def open_port(port: str, *, baud: int, firmware: Path | None = None, probe: str = "") -> Transport:
    """Return the channel to a device.

    Args:
        port: its name or address, as `--port` takes it.
        baud: bits per second, of a serial port and of what lies behind TCP.
        firmware: the ELF file that runs there, whose symbols say where RTT's control block is; None: it is not here.
        probe: the USB serial number of the probe that pyOCD takes; empty: the only one.

    Raises:
        UsageError: the address is malformed, or the firmware has no RTT.
        BuildError: pyOCD is not installed.
        BoardError: another mtool has the port open.
        CommunicationError: it can't be opened, or nothing is there.
    """
    where = address.parse(port)
    if isinstance(where, Tcp):
        return TcpTransport(where.host, where.port, bytes_per_second=baud / _BITS_PER_BYTE)
    if isinstance(where, Rtt):
        return _rtt(port, where, firmware, probe)
    return SerialTransport(port, baud=baud)


def control_block(firmware: Path) -> int | None:
    """Return the address of RTT's control block in a firmware, by its symbol; None: it has none."""
    try:
        with firmware.open("rb") as file:
            tables = [one for one in ELFFile(file).iter_sections() if isinstance(one, SymbolTableSection)]
            found = [symbol for table in tables for symbol in table.get_symbol_by_name(rtt.SYMBOL) or ()]
            return int(found[0]["st_value"]) if found else None
    except (OSError, ELFError):
        return None


def _rtt(port: str, where: Rtt, firmware: Path | None, probe: str) -> Transport:
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
            raise UsageError(
                f"--port {port}: where the control block is, is not known",
                hint=f"give its address: --port {port}@0x20000000",
            )
        return rtt.RttTransport(GdbMemory(where.host, where.port), block)
    if where.server == "pyocd":
        return _pyocd(where, block, probe)
    listens = f"{where.host}:{where.port}"
    if where.server == "jlink":
        # To be sent within 100 ms; the J-Link software finds the block by a search otherwise.
        commands = "RTTCh;0" + ("" if block is None else f";SetRTTAddr;0x{block:08X}")
        greeting = f"$$SEGGER_TELNET_ConfigStr={commands}$$".encode()
        hint = "start J-Link's gdb server or Commander, connected to the chip: JLinkGDBServer -device DEVICE -if SWD"
    else:
        greeting = b""
        start = 'rtt setup ADDRESS 64 "SEGGER RTT"; rtt start; rtt server start'
        at = "0x20000000" if block is None else f"0x{block:08x}"
        hint = f"tell OpenOCD: {start.replace('ADDRESS', at)} {where.port} 0"
    return TcpTransport(
        where.host,
        where.port,
        name=f"RTT through {where.server} at {listens}",
        hint=hint,
        greeting=greeting,
        bytes_per_second=_PROBE_BYTES_PER_SECOND,
    )


def _pyocd(where: Rtt, block: int | None, probe: str) -> Transport:
    if importlib.util.find_spec("pyocd") is None:
        raise BuildError(
            "pyOCD is not installed where mtool is",
            details=[f"looked for in {sys.prefix}"],
            hint=f"install it: {_PYOCD}",
        )
    program = str(Path(__file__).with_name("pyocd_rtt.py"))
    at = "" if block is None else f"{block:x}"
    argv = [sys.executable, program, where.target, probe, at]
    return ProcessTransport(argv, name="RTT through pyocd", bytes_per_second=_PROBE_BYTES_PER_SECOND)
