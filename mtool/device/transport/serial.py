"""A serial port: a board's UART, through its USB probe or an adapter."""

import sys
import time
from pathlib import Path

import serial

from mtool.base.errors import CommunicationError
from mtool.base.locks import Lock
from mtool.device.transport.base import Transport
from mtool.device.transport.process import ProcessTransport
from mtool.device.transport.through import Through

_CHUNK = 512  # bytes written between two reads of received bytes
_BITS_PER_BYTE = 10  # 8 data bits, a start and a stop bit


class SerialTransport(Transport):
    """Open a serial port for exclusive use: 8 data bits, no parity, no flow control.

    Bytes may be lost (a buffer overflow, a reset board) or damaged; the RPC's window prevents overflows of the device's
    buffer.

    Args:
        port: its name ("/dev/ttyACM0", "COM3", "/dev/pts/5"), or one of pyserial's URLs ("socket://host:port").
        baud: bits per second.

    Raises:
        BoardError: another mtool on this computer uses it; the message names the process.
        CommunicationError: the port does not exist, is in use, or needs permissions.
    """

    is_lossless = False

    def __init__(self, port: str, *, baud: int) -> None:
        self.name = f"the port {port}"
        self.baud = baud
        self.bytes_per_second = baud / _BITS_PER_BYTE
        self.is_exclusive = "://" not in port  # over a network, another computer may use it too
        self._arrived = bytearray()
        options = {"exclusive": True} if self.is_exclusive else {}
        self._lock = Lock(port)
        try:
            self._port = serial.serial_for_url(port, baudrate=baud, timeout=0, write_timeout=0, **options)
            self._port.reset_input_buffer()
        except (OSError, ValueError) as failed:  # serial.SerialException is an OSError
            self._lock.release()
            raise CommunicationError(
                f"can't open {self.name}", details=[_reason(failed)], hint=_hint(failed, port)
            ) from None

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`; bytes that arrive meanwhile are kept, so that the system's buffer never overflows."""
        deadline = time.monotonic() + timeout_s
        for begin in range(0, len(data), _CHUNK):
            try:
                self._keep_what_arrived()
                self._port.write_timeout = max(deadline - time.monotonic(), 1e-3)
                self._port.write(data[begin : begin + _CHUNK])
            except serial.SerialTimeoutException:
                raise CommunicationError(f"{self.name} did not accept all bytes within {timeout_s:.3g} s") from None
            except (OSError, TypeError) as failed:
                raise self._gone(failed) from None

    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte."""
        try:
            self._keep_what_arrived()
            if not self._arrived:
                self._port.timeout = max(timeout_s, 0.0)
                self._arrived += self._port.read(1)
                self._keep_what_arrived()
        except (OSError, TypeError) as failed:  # pyserial raises TypeError if the port was closed meanwhile
            raise self._gone(failed) from None
        return self._drain()

    def set_baud(self, baud: int) -> None:
        """Continue at another rate; bytes that have arrived are discarded."""
        try:
            self._port.baudrate = baud
            self._port.reset_input_buffer()
        except (OSError, ValueError, TypeError) as failed:
            raise self._gone(failed) from None
        self._arrived.clear()
        self.baud = baud
        self.bytes_per_second = baud / _BITS_PER_BYTE

    def close(self) -> None:
        """Close the port."""
        self._port.close()
        self._lock.release()

    def _keep_what_arrived(self) -> None:
        while waiting := self._port.in_waiting:
            self._arrived += self._port.read(waiting)

    def _gone(self, failed: Exception) -> CommunicationError:
        return self._lost(_reason(failed), is_open=self._port.is_open, hint="check that the board is still plugged in")


def _reason(failed: Exception) -> str:
    """Return the system's own message, without pyserial's text around it."""
    cause = failed.__context__ if isinstance(failed.__context__, OSError) else failed
    if "(25, " in str(failed):  # ENOTTY
        return "it is not a serial port"
    return getattr(cause, "strerror", None) or str(failed)


def _hint(failed: Exception, port: str) -> str:
    number = getattr(failed, "errno", None)
    if number == 13 and sys.platform == "win32":
        return "close the other program that uses it, such as a terminal or another mtool"
    if number == 13:  # EACCES
        return "add yourself to the port's group, then log in again: sudo usermod -aG dialout $USER"
    if number in (11, 16):  # EAGAIN from the lock, EBUSY
        return "close the other program that uses it, such as a terminal or another mtool"
    return "list the ports: mtool boards --attached" if sys.platform == "win32" or not Path(port).exists() else ""


def through_terminal(process: ProcessTransport, *, announces: str, baud: int, timeout_s: float = 10.0) -> Through:
    """Return the channel to a program through the pseudo-terminal that it names; it is opened as a serial port.

    Args:
        process: the program.
        announces: the text on its standard output before the terminal's name, which ends at a blank.
        baud: bits per second.
        timeout_s: how long the program may take to print it.

    Raises:
        CommunicationError: it ends, or prints no name.
    """
    return Through(process, lambda: SerialTransport(_announced(process, announces, timeout_s), baud=baud))


def _announced(process: ProcessTransport, announces: str, timeout_s: float) -> str:
    """Return the name that the program prints after `announces`."""
    deadline = time.monotonic() + timeout_s
    printed = ""
    while (rest_s := deadline - time.monotonic()) > 0:
        printed += process.read(timeout_s=rest_s).decode(errors="replace")
        _, mark, name = printed.partition(announces)
        if mark and any(blank in name for blank in " \r\n"):
            return name.split()[0]
    what = f"{process.name} printed no terminal name within {timeout_s:.3g} s"
    raise CommunicationError(what, details=[f"expected: {announces!r} and a name", *printed.splitlines()[-5:]])
