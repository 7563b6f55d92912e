"""Who may use a session: the process that opened it, one thread at a time."""

import contextlib
import os
import threading
from collections.abc import Iterator

from mtool.base.errors import UsageError


class Owner:
    """The process that makes this, whose threads wait for one another.

    The device tells a repeated request by its number, of which a forked process would have the same.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()

    @property
    def is_here(self) -> bool:
        """Whether this is that process, not a fork of it."""
        return os.getpid() == self._process

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads waiting while the block runs; the same thread may enter again.

        Raises:
            UsageError: this is another process.
        """
        if not self.is_here:
            raise UsageError(
                "the session with the device belongs to another process",
                details=[f"opened by process {self._process}", f"used by process {os.getpid()}, a fork of it"],
                hint="open the device in the process that uses it",
            )
        with self._lock:
            yield
