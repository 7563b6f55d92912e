"""Power: a command that turns a board's power off and on, for a board that nothing else can recover.

It is set in a board's entry in boards.yaml (`power: uhubctl -l 1-1 -a cycle -p 2`), in mtool.toml, or with `--power` in
commands that open a board. mtool/base/command_line.py describes the syntax.
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
            UsageError: it is empty, or has an unclosed quote.
            BoardError: it needs the port or the probe, which is unknown.
        """
        return by_command.argv(self.text, {"port": self.port, "probe": self.probe}, what="the power command")

    def cycle(self) -> None:
        """Run the command, and wait until it ends.

        Raises:
            BoardError: it can't be run, failed, or took too long.
        """
        start = time.monotonic()
        proc.run(self.argv(), what="the power cycle", timeout_s=_TIMEOUT_S, error=BoardError)
        log.info("power: cycled in %.2f s", time.monotonic() - start)


def of(board: Board, command: str, *, port: str = "", probe: str = "") -> Power | None:
    """Return a board's power, from the given command, else mtool.toml's, else the board's; None: there is none.

    Raises:
        UsageError: mtool.toml or the command is malformed.
    """
    text = command or configuration.load().power or board.power
    if text:
        command_line.words_of(text, by_command.POWER, what="the power command")  # fail now, not when the board hangs
    return Power(text, port, probe) if text else None
