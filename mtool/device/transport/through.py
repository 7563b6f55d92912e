"""A channel to a program that mtool has started: when the channel breaks, the program's own end is the error."""

from collections.abc import Callable

from mtool.base.errors import CommunicationError
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
