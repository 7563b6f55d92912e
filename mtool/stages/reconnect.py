"""Revival: what brings an attached board back that does not answer, that can't be flashed, or whose port has gone."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mtool.base.errors import BoardError, CommunicationError, FlashError
from mtool.boards import Board
from mtool.device.flash import ports, power
from mtool.device.flash.power import Power

log = logging.getLogger(__name__)

T = TypeVar("T")

LOST = (CommunicationError, BoardError, FlashError)
"""What a board that is gone for a while makes of an attempt to open it."""

_TRIES = 3
_RETURNS_S = 30.0  # a board that was unplugged may take so long to come back
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Revival:
    """Brings a board back.

    Attributes:
        port: its serial port; empty: not known.
        probe: the serial number of it or its probe, or the beginning of it; empty: not known.
        power: the command that cycles its power; None: there is none.
        returns_s: how long to wait for its port.
    """

    port: str = ""
    probe: str = ""
    power: Power | None = None
    returns_s: float = _RETURNS_S

    @classmethod
    def of(cls, board: Board, command: str, port: str, probe: str) -> "Revival":
        """Return what brings a board back; `command` is the one that is given for its power, if any.

        Raises:
            UsageError: mtool.toml is malformed.
        """
        return cls(port, probe, power.of(board, command, port=port, probe=probe))

    def bring_back(self) -> None:
        """Cycle the power, if there is a command for it, and wait until the port is there, or long enough.

        Raises:
            BoardError: the command failed.
        """
        if self.power is not None:
            self.power.cycle()
        self.wait()

    def wait(self) -> None:
        """Wait until the board is plugged in, or long enough."""
        if self._is_there():
            return
        log.warning("%s has gone: waiting %.0f s for it", self.port or self.probe, self.returns_s)
        deadline = time.monotonic() + self.returns_s
        while not self._is_there() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _is_there(self) -> bool:
        """Say whether the board is plugged in, as far as can be told."""
        if self.port:
            return not self.port.startswith("/") or Path(self.port).exists()
        wanted = self.probe.upper()
        return not wanted or any(device.probe.upper().startswith(wanted) for device in ports.attached())

    def until_back(self, attempt: Callable[[], T]) -> T:
        """Return what an attempt returns, and bring the board back between one that fails and the next.

        Raises:
            MtoolError: the last attempt failed, or the power can't be cycled.
        """
        for _ in range(_TRIES - 1):
            try:
                return attempt()
            except LOST as failed:
                log.info("the board is not there: %s", failed.what)
            self.bring_back()
        return attempt()
