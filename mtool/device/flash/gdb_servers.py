"""A gdb server for a board's probe: OpenOCD, pyOCD, J-Link's, or what west starts."""

from collections.abc import Sequence

from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device.flash import pyocd
from mtool.device.flash.flashing import RUNNERS, runners_of
from mtool.device.flash.runner import Job

KNOWN = ("openocd", "pyocd", "jlink", "west")
_JLINK = "JLinkGDBServer"


def choose(board: Board, name: str = "", *, template: str = "") -> str:
    """Return the name of the runner whose tool serves gdb for a board: the one that is named, else the board's first.

    Raises:
        UsageError: none of the board's runners does, or the named one is none of them.
    """
    able = [runner for runner in runners_of(board, template) if runner in KNOWN]
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
    program = RUNNERS[runner].program()
    if runner == "openocd":
        probe = ["-c", f"adapter serial {job.probe}"] if job.probe else []
        configs = [word for config in job.setting("config").split() for word in ("-f", config)]
        ports = f"gdb_port {port}; tcl_port disabled; telnet_port disabled"
        return [program, *configs, *probe, "-c", ports]
    if runner == "pyocd":
        probe = ["--uid", job.probe] if job.probe else []
        argv = [program, "gdbserver", "--no-wait", *pyocd.chip(job), "--port", str(port)]
        return [*argv, "--telnet-port", "0", *probe]
    if runner == "jlink":
        probe = ["-select", f"USB={job.probe.lstrip('0')}"] if job.probe else []
        settings = ["-device", job.setting("device"), "-if", job.setting("interface", "SWD")]
        speed = ["-speed", job.setting("speed", 4000)]
        return [_JLINK, "-nogui", "-singlerun", *settings, *speed, "-port", str(port), *probe]
    return [*_west(job), "--gdb-port", str(port)]


def _west(job: Job) -> Sequence[str]:
    folder = job.firmware.parents[1]  # build/<kind>/zephyr/zephyr.elf
    own = ["--runner", str(job.settings["runner"])] if "runner" in job.settings else []
    return [RUNNERS["west"].program(), "debugserver", "--skip-rebuild", "-d", str(folder), *own]
