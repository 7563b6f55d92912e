"""Power: a command that takes the power from a board and gives it back, for a board that nothing else brings back.

Boards have it in boards.yaml (`power: uhubctl -l 1-1 -a cycle -p 2`), folders in mtool.toml, and commands that open a
board as `--power`. How it is read is told in mtool/base/command_line.py.
"""

import logging
import time
from dataclasses import dataclass

from mtool.base import command_line, configuration, proc
from mtool.base.errors import BoardError
from mtool.boards import Board
from mtool.device.flash import by_command

log = logging.getLogger(__name__)

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Power:
    """A board's power.

    Attributes:
        text: the command line that cycles it.
        port, probe: of the board.
    """

    text: str
    port: str = ""
    probe: str = ""

    def argv(self) -> list[str]:
        """Return the command.

        Raises:
            UsageError: it has no words, or a quote that is not closed.
            BoardError: it needs the port or the probe, which is not known.
        """
        return by_command.argv(self.text, {"port": self.port, "probe": self.probe}, what="the power command")

    def cycle(self) -> None:
        """Run the command, and wait until it has ended.

        Raises:
            BoardError: it can't be run, failed, or took too long.
        """
        start = time.monotonic()
        proc.run(self.argv(), what="the power cycle", timeout_s=_TIMEOUT_S, error=BoardError)
        log.info("power: cycled in %.2f s", time.monotonic() - start)


def of(board: Board, given: str, *, port: str = "", probe: str = "") -> Power | None:
    """Return a board's power, by the command that is given, else mtool.toml's, else the board's; None: there is none.

    Raises:
        UsageError: mtool.toml is malformed, or the command can't be read.
    """
    text = given or configuration.load().power or board.power
    if text:
        command_line.words_of(text, by_command.POWER, what="the power command")  # told now, not when the board hangs
    return Power(text, port, probe) if text else None
