"""A gdb server for a board's probe: OpenOCD, pyOCD, J-Link's, or what west starts."""

from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device.flash.flashing import RUNNERS, runners_of
from mtool.device.flash.runner import Job


def choose(board: Board, name: str = "", *, template: str = "") -> str:
    """Return the name of the runner whose tool serves gdb for a board: the one that is named, else the board's first.

    Raises:
        UsageError: none of the board's runners does, or the named one is none of them.
    """
    able = [runner for runner in runners_of(board, template) if RUNNERS[runner].gdb_server]
    if name and name in able:
        return name
    if name or not able:
        what = f"{name} serves no gdb for {board.name}" if name else f"no tool of {board.name} serves gdb"
        raise UsageError(
            what,
            details=[f"of its runners these do: {', '.join(able) or 'none'}"],
            hint="start a gdb server yourself, and give its address: --server HOST:PORT",
        )
    return able[0]


def argv(runner: str, job: Job, port: int) -> list[str]:
    """Return the arguments of the gdb server that listens at a port of this computer, its program first.

    Raises:
        UsageError: the board's entry lacks a setting of the runner.
    """
    words = RUNNERS[runner].words(job, RUNNERS[runner].gdb_server)
    return [word.replace("{gdb_port}", str(port)) for word in words]
