"""Flash a built project: choose a runner, run its commands, explain what fails; or let its tool serve gdb."""

import functools
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mtool.base import files, proc, spelling
from mtool.base.errors import FlashError, UsageError
from mtool.base.flash_runners import records
from mtool.boards import Board
from mtool.device.flash.by_command import ByCommand
from mtool.device.flash.runner import NEWEST, Job, Runner, Version
from mtool.device.transport import unicorn
from mtool.manifest import Project, firmware_of

# west flash: the probe is named in the way that the runner beneath understands.


_OPENOCD = "openocd"
# OpenOCD's --serial is heeded by few of Zephyr's openocd.cfg files.
_PROBE_OPTIONS = {
    _OPENOCD: ("--cmd-pre-init", "adapter serial "),
    "stm32cubeprogrammer": ("--conn-modifiers", "sn="),
}


class West(Runner):
    """Flash the build folder of a Zephyr project."""

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Flash without building."""
        named = job.setting("runner", "")
        argv = super().argv(job, version) + ["--verify"] * self.reads_back(job)
        option, prefix = _PROBE_OPTIONS.get(named or _default_runner(job), ("--dev-id", ""))
        return [*argv, option, prefix + job.probe] if job.probe else argv

    def reads_back(self, job: Job) -> bool:
        """With OpenOCD alone."""
        return job.setting("runner", "") == _OPENOCD


def _default_runner(job: Job) -> str:
    """Return the runner that the build says Zephyr takes; "" before it is built."""
    try:
        found = re.search(r"^flash-runner: *(\S+)", (job.firmware.parent / "runners.yaml").read_text(), re.MULTILINE)
    except FileNotFoundError:
        return ""
    return found[1] if found else ""


log = logging.getLogger(__name__)


_CLASSES: Mapping[str, type[Runner]] = {"west": West, "command": ByCommand}


@functools.cache
def all_runners() -> Mapping[str, Runner]:
    """Return all flash runners by their names, as their records say."""
    return {name: _CLASSES.get(name, Runner)(name=name, **record) for name, record in records().items()}


# What a builder leaves beside the ELF file.
_MADE: Mapping[str, frozenset[str]] = {
    "west": frozenset({".hex", ".bin"}),
    "arduino": frozenset({".hex", ".bin", ".uf2"}),
}


@dataclass(frozen=True, slots=True)
class Flashed:
    """A finished flash: the runner, the seconds, and whether it read the flash back."""

    runner: str
    seconds: float
    verified: bool


def runners_of(board: Board, template: str = "") -> list[str]:
    """Return the names of the runners that work with a board, the default first.

    A board without any that has an emulator is flashed through its gdb stub, if that has one. `template` leaves out
    the runners that flash another framework's build folder.
    """
    emulator = board.emulator
    has_stub = emulator is not None and not emulator.is_the_firmware and emulator.program != unicorn.PROGRAM
    named = list(board.flash) or (["gdb"] if has_stub else [])
    return [name for name in named if not template or all_runners()[name].template in ("", template)]


def choose(board: Board, name: str = "", *, template: str = "", has_build_folder: bool = True) -> Runner:
    """Return a runner of a board: by its name, else the first that is installed, else the first.

    Args:
        board: the board.
        name: the runner's; empty: any.
        template: the project's.
        has_build_folder: the project was built here; else there is a firmware file alone.

    Raises:
        UsageError: there is no such runner, or it does not work with the board.
        FlashError: the board has none, or none that takes a file.
    """
    known = runners_of(board, template)
    if board.emulator is not None and board.emulator.is_the_firmware and not known:
        what = f"{board.name} is a program of this computer, and nothing flashes it"
        raise FlashError(what, hint=f"run it: mtool flash --board {board.name}, without --runner and --flash-command")
    if not has_build_folder:
        of_files = [one for one in known if all_runners()[one].takes != "project"]
        if known and not of_files:
            raise FlashError(
                f"{board.name} can't be flashed without the folder of a build",
                details=[f"its runners: {', '.join(known)}, which want one"],
                hint="name one that takes a file in the board's entry in boards.yaml (flash: [openocd]), or give "
                "--flash-command",
            )
        known = of_files
    if name:
        if name not in all_runners() or (name not in known and name != "gdb"):
            details = [f"its runners: {', '.join(known) or 'none'}", f"all: {', '.join(all_runners())}"]
            hint = spelling.did_you_mean(name, known) if name not in all_runners() else ""
            raise UsageError(f"{board.name} can't be flashed with {name!r}", details=details, hint=hint)
        return all_runners()[name]
    if not known:
        details = ["its entry in boards.yaml names none" + (f" for the template {template}" if template else "")]
        hint = f"name one there (flash: [openocd]), or run it without: mtool run --board {board.name}"
        raise FlashError(f"{board.name} has no flash runner", details=details, hint=hint)
    installed = (name for name in known if _is_installed(all_runners()[name], template))
    return all_runners()[next(installed, known[0])]


def _is_installed(runner: Runner, template: str) -> bool:
    program = runner.program()
    return (runner.builds and runner.template == template) or not program or shutil.which(program) is not None


def job_of(folder: Path, project: Project, runner: Runner, *, kind: str, port: str = "", probe: str = "") -> Job:
    """Return what a runner is to do with a project.

    Raises:
        UsageError: the project has no firmware of that kind.
    """
    return Job(
        folder=folder,
        firmware=firmware_of(folder, project, kind),
        board=project.board,
        framework_board=project.board.templates.get(project.template, ""),
        settings=project.board.flash.get(runner.name, {}),
        port=port,
        probe=probe,
        made=_MADE.get(project.builder, frozenset()),
    )


def plan(runner: Runner, job: Job) -> list[str]:
    """Return the lines that a shell would need to do the same, with the newest version of the tool."""
    placed = job if job.port or runner.selects != "port" else replace(job, port="PORT")
    try:
        files = runner.files(placed)
    except FileNotFoundError:  # they are made of a firmware that is not built yet
        files = {runner.image(placed): b""}
    lines = [f"# {path.as_posix()} holds: {_contents(data)}" for path, data in files.items()]
    for command in runner.commands(placed):
        lines.append(shlex.join(command.argv) + (f" && sleep {command.settle_s:g}" if command.settle_s else ""))
    return lines


def _contents(data: bytes) -> str:
    try:
        return "; ".join(data.decode("ascii").split("\n")).strip("; ") or "the firmware"
    except UnicodeDecodeError:
        return "the firmware"


def flash(runner: Runner, job: Job) -> Flashed:
    """Flash a firmware.

    Args:
        runner: what `choose` returned.
        job: what `job_of` returned.

    Raises:
        FlashError: the tool is missing or too old, or it failed; the message says why, and what to do.
        BoardError: it found no board, or needs a port and has none.
    """
    start = time.monotonic()
    version = runner.probe_version()
    if not job.firmware.is_file():
        raise UsageError(f"{job.firmware} is not there", hint="build it first: mtool build")
    if job.port.startswith("/dev/") and Path(job.port).exists() and not os.access(job.port, os.R_OK | os.W_OK):
        raise runner.explain(proc.Completed((runner.program(), job.port), 1, "permission denied", 0.0), job)
    for path, data in runner.files(job).items():
        files.write(path, data)
    for command in runner.commands(job, version):
        what, limit_s = f"flashing {job.board.name} with {runner.name}", runner.timeout_s
        done = proc.run(command.argv, what=what, timeout_s=limit_s, cwd=job.folder, error=FlashError, check=False)
        is_tool = command.argv[0] == runner.program()
        if not (runner.succeeded(done) if is_tool else done.returncode == 0):
            raise runner.explain(done, job)
        time.sleep(command.settle_s)
    flashed = Flashed(runner.name, time.monotonic() - start, runner.reads_back(job))
    log.info("flash: %.2f s, %s", flashed.seconds, runner.name)
    return flashed


def choose_gdb_server(board: Board, name: str = "", *, template: str = "") -> str:
    """Return the name of the runner whose tool serves gdb for a board: the one that is named, else the board's first.

    Raises:
        UsageError: none of the board's runners does, or the named one is none of them.
    """
    able = [runner for runner in runners_of(board, template) if all_runners()[runner].gdb_server]
    if name and name in able:
        return name
    if name or not able:
        what = f"{name} serves no gdb for {board.name}" if name else f"no tool of {board.name} serves gdb"
        hint = "start a gdb server yourself, and give its address: --server HOST:PORT"
        raise UsageError(what, details=[f"of its runners these do: {', '.join(able) or 'none'}"], hint=hint)
    return able[0]


def gdb_server(runner: str, job: Job, port: int) -> list[str]:
    """Return the arguments of the gdb server that listens at a port of this computer, its program first.

    Raises:
        UsageError: the board's entry lacks a setting of the runner.
    """
    words = all_runners()[runner].words(job, all_runners()[runner].gdb_server)
    return [word.replace("{gdb_port}", str(port)) for word in words]
