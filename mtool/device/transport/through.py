"""A channel to a program that mtool started: if the channel breaks because the program ended, that is the error."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from mtool.base.errors import CommunicationError
from mtool.base.locks import Lock
from mtool.device.transport.base import Transport, Wrapper
from mtool.device.transport.process import ProcessTransport

_ENDING_S = 1.0


class Through(Wrapper):
    """Use another channel to a program than its standard input and output; closing it ends the program.

    Args:
        process: the program.
        open: opens the channel.

    Raises:
        CommunicationError: the channel can't be opened, or the program has ended.
    """

    def __init__(self, process: ProcessTransport, open: Callable[[], Transport]) -> None:
        self._process = process
        try:
            channel = open()
        except CommunicationError:
            try:
                self._raise_if_ended()
            finally:
                process.close()
            raise
        except BaseException:
            process.close()
            raise
        super().__init__(channel)
        self.name, self.baud = process.name, None

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`."""
        try:
            self._inner.write(data, timeout_s=timeout_s)
        except CommunicationError:
            self._raise_if_ended()
            raise

    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte."""
        try:
            return self._inner.read(timeout_s=timeout_s)
        except CommunicationError:
            self._raise_if_ended()
            raise

    def close(self) -> None:
        """Close the channel and end the program."""
        self._inner.close()
        self._process.close()

    def _raise_if_ended(self) -> None:
        """Raise the error for the program's end, if it has ended: the channel breaks a moment before."""
        while self._process.read(timeout_s=_ENDING_S):
            pass


class WithFlash(Wrapper):
    """Use an emulator that keeps its flash in a file, and lock that file until the emulator has ended.

    The emulator reads the file when it starts and then writes changes to it: a second emulator would overwrite
    what the first one stored. So there is one at a time, also in this process.

    Args:
        flash: the file, which may not exist yet.
        open: starts the emulator.

    Raises:
        BoardError: another session uses an emulator with this file; the message names the process.
        MtoolError: as for `open`.
    """

    def __init__(self, flash: Path, open: Callable[[], Transport]) -> None:
        self._lock = Lock(str(flash), only=True)
        try:
            super().__init__(open())
        except BaseException:
            self._lock.release()
            raise
        self.flash: Path = flash

    def close(self) -> None:
        """End the emulator, then release the file; an empty file from a full disk is removed."""
        try:
            super().close()
        finally:
            with contextlib.suppress(OSError):
                if self._lock.is_held and self.flash.is_file() and not self.flash.stat().st_size:
                    self.flash.unlink()
            self._lock.release()
