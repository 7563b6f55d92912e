"""Revival: what brings an attached board back that does not answer, that can't be flashed, or whose port has gone."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mtool.errors import BoardError, CommunicationError, FlashError
from mtool.flash.power import Power
from mtool.session import Device

log = logging.getLogger(__name__)

LOST = (CommunicationError, BoardError, FlashError)
"""What a board that is gone for a while makes of an attempt to open it."""

_TRIES = 3
_RETURNS_S = 30.0  # a board that was unplugged may take so long to come back
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Revival:
    """Brings a board back.

    Attributes:
        port: its serial port; empty: not known.
        power: the command that cycles its power; None: there is none.
        returns_s: how long to wait for its port.
    """

    port: str = ""
    power: Power | None = None
    returns_s: float = _RETURNS_S

    def bring_back(self) -> None:
        """Cycle the power, if there is a command for it, and wait until the port is there, or long enough.

        Raises:
            BoardError: the command failed.
        """
        if self.power is not None:
            self.power.cycle()
        self.wait()

    def wait(self) -> None:
        """Wait until the port is there, or long enough."""
        if not self.port.startswith("/") or Path(self.port).exists():
            return
        log.warning("%s has gone: waiting %.0f s for it", self.port, self.returns_s)
        deadline = time.monotonic() + self.returns_s
        while not Path(self.port).exists() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def until_back(self, attempt: Callable[[], Device]) -> Device:
        """Return what an attempt opens, and bring the board back between one that fails and the next.

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
