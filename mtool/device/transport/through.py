"""A channel to a program that mtool has started: when the channel breaks, the program's own end is the error."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from mtool.base.errors import CommunicationError
from mtool.base.locks import Lock
from mtool.device.transport.base import Transport
from mtool.device.transport.process import ProcessTransport

_ENDING_S = 1.0


class Through(Transport):
    """Speak to a program by another channel than its standard input and output; it ends with the channel.

    Args:
        process: the program.
        open: opens the channel.

    Raises:
        CommunicationError: the channel can't be opened, or the program has ended.
    """

    def __init__(self, process: ProcessTransport, open: Callable[[], Transport]) -> None:
        self.name = process.name
        self._process = process
        try:
            self._channel = open()
        except CommunicationError:
            self._end()
            raise
        except BaseException:
            process.close()
            raise
        self.bytes_per_second = self._channel.bytes_per_second
        self.is_lossless = self._channel.is_lossless

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`."""
        try:
            self._channel.write(data, timeout_s=timeout_s)
        except CommunicationError:
            self._raise_if_ended()
            raise

    def read(self, *, timeout_s: float) -> bytes:
        """Return what has arrived, once there is something; empty after `timeout_s` without a byte."""
        try:
            return self._channel.read(timeout_s=timeout_s)
        except CommunicationError:
            self._raise_if_ended()
            raise

    def close(self) -> None:
        """Close the channel and end the program."""
        self._channel.close()
        self._process.close()

    def _raise_if_ended(self) -> None:
        """Let the program's own end be the error, if it has ended: the channel goes a moment before it."""
        while self._process.read(timeout_s=_ENDING_S):
            pass

    def _end(self) -> None:
        try:
            self._raise_if_ended()
        finally:
            self._process.close()


class WithFlash(Transport):
    """Speak to an emulator that keeps its flash in a file, and lock that file until the emulator has ended.

    The emulator reads the file at its start and then writes what it changes: of two emulators, one would overwrite what
    the other has stored. So there is one at a time, also in this process.

    Args:
        flash: the file, which need not be there yet.
        open: starts the emulator.

    Raises:
        BoardError: another session has an emulator open with the file; the message names the process.
        MtoolError: as `open`.
    """

    flash: Path

    def __init__(self, flash: Path, open: Callable[[], Transport]) -> None:
        self.flash = flash
        self._lock = Lock(str(flash), only=True)
        try:
            self._emulator = open()
        except BaseException:
            self._lock.release()
            raise
        self.name = self._emulator.name
        self.bytes_per_second = self._emulator.bytes_per_second
        self.is_lossless = self._emulator.is_lossless
        self.is_exclusive = self._emulator.is_exclusive
        self.baud = self._emulator.baud

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`."""
        self._emulator.write(data, timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        """Return what has arrived, once there is something; empty after `timeout_s` without a byte."""
        return self._emulator.read(timeout_s=timeout_s)

    def set_baud(self, baud: int) -> None:
        """Set the emulator's rate."""
        self._emulator.set_baud(baud)
        self.baud = self._emulator.baud

    def close(self) -> None:
        """End the emulator, then let go of the file; one that a full disk has left empty is removed."""
        try:
            self._emulator.close()
        finally:
            with contextlib.suppress(OSError):
                if self._lock.is_held and self.flash.is_file() and not self.flash.stat().st_size:
                    self.flash.unlink()
            self._lock.release()
