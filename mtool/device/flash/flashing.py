"""Flash a built project: choose a runner, run its commands, explain failures; or start a tool's gdb server."""

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

# west flash: the probe's option depends on the underlying runner.


_OPENOCD = "openocd"
# Few of Zephyr's openocd.cfg files honour OpenOCD's --serial.
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
        """Only with OpenOCD."""
        return job.setting("runner", "") == _OPENOCD


def _default_runner(job: Job) -> str:
    """Return Zephyr's default runner for the build; "" before it is built."""
    try:
        match = re.search(r"^flash-runner: *(\S+)", (job.firmware.parent / "runners.yaml").read_text(), re.MULTILINE)
    except FileNotFoundError:
        return ""
    return match[1] if match else ""


log = logging.getLogger(__name__)


_CLASSES: Mapping[str, type[Runner]] = {"west": West, "command": ByCommand}


@functools.cache
def all_runners() -> Mapping[str, Runner]:
    """Return all flash runners by name, from their records."""
    return {name: _CLASSES.get(name, Runner)(name=name, **record) for name, record in records().items()}


# Files that a builder writes beside the ELF file.
_BUILT_FORMATS: Mapping[str, frozenset[str]] = {
    "west": frozenset({".hex", ".bin"}),
    "arduino": frozenset({".hex", ".bin", ".uf2"}),
}


@dataclass(frozen=True, slots=True)
class FlashResult:
    """A finished flash: the runner, the seconds, and whether the flash was read back."""

    runner: str
    seconds: float
    verified: bool


def runners_of(board: Board, template: str = "") -> list[str]:
    """Return the names of a board's runners, the default first.

    A board without runners is flashed through its emulator's gdb stub, if it has one. `template` excludes
    the runners that flash another framework's build folder.
    """
    emulator = board.emulator
    has_stub = emulator is not None and not emulator.is_the_firmware and emulator.program != unicorn.PROGRAM
    named = list(board.flash) or (["gdb"] if has_stub else [])
    return [name for name in named if not template or all_runners()[name].template in ("", template)]


def choose(board: Board, name: str = "", *, template: str = "", has_build_folder: bool = True) -> Runner:
    """Return a runner for a board: by name, else the first installed one, else the first.

    Args:
        board: the board.
        name: the runner's; empty: any.
        template: the project's.
        has_build_folder: the project was built here; otherwise there is only a firmware file.

    Raises:
        UsageError: the runner is unknown, or does not work with the board.
        FlashError: the board has no runner, or none that takes a file.
    """
    runners = runners_of(board, template)
    if board.emulator is not None and board.emulator.is_the_firmware and not runners:
        what = f"{board.name} is a program on this computer and can't be flashed"
        raise FlashError(what, hint=f"run it: mtool flash --board {board.name}, without --runner and --flash-command")
    if not has_build_folder:
        of_files = [runner for runner in runners if all_runners()[runner].takes != "project"]
        if runners and not of_files:
            raise FlashError(
                f"{board.name} can't be flashed without a build folder",
                details=[f"its runners: {', '.join(runners)}, which need one"],
                hint="add a runner that takes a file to the board's entry in boards.yaml (flash: [openocd]), or use "
                "--flash-command",
            )
        runners = of_files
    if name:
        if name not in all_runners() or (name not in runners and name != "gdb"):
            details = [f"its runners: {', '.join(runners) or 'none'}", f"all: {', '.join(all_runners())}"]
            hint = spelling.did_you_mean(name, runners) if name not in all_runners() else ""
            raise UsageError(f"{board.name} can't be flashed with {name!r}", details=details, hint=hint)
        return all_runners()[name]
    if not runners:
        details = ["its entry in boards.yaml lists none" + (f" for the template {template}" if template else "")]
        hint = f"add one there (flash: [openocd]), or run without flashing: mtool run --board {board.name}"
        raise FlashError(f"{board.name} has no flash runner", details=details, hint=hint)
    installed = (name for name in runners if _is_installed(all_runners()[name], template))
    return all_runners()[next(installed, runners[0])]


def _is_installed(runner: Runner, template: str) -> bool:
    program = runner.program()
    return (runner.builds and runner.template == template) or not program or shutil.which(program) is not None


def job_of(folder: Path, project: Project, runner: Runner, *, kind: str, port: str = "", probe: str = "") -> Job:
    """Return a runner's job for a project.

    Raises:
        UsageError: the project has no such firmware kind.
    """
    return Job(
        folder=folder,
        firmware=firmware_of(folder, project, kind),
        board=project.board,
        framework_board=project.board.templates.get(project.template, ""),
        settings=project.board.flash.get(runner.name, {}),
        port=port,
        probe=probe,
        built_formats=_BUILT_FORMATS.get(project.builder, frozenset()),
    )


def plan(runner: Runner, job: Job) -> list[str]:
    """Return equivalent shell commands, for the newest version of the tool."""
    placed = job if job.port or runner.selects != "port" else replace(job, port="PORT")
    try:
        files = runner.files(placed)
    except FileNotFoundError:  # they are made from firmware that is not built yet
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


def flash(runner: Runner, job: Job) -> FlashResult:
    """Flash a firmware.

    Args:
        runner: what `choose` returned.
        job: what `job_of` returned.

    Raises:
        FlashError: the tool is missing, too old, or failed; the message says why, and what to do.
        BoardError: no board was found, or the tool needs a port and has none.
    """
    start = time.monotonic()
    version = runner.probe_version()
    if not job.firmware.is_file():
        raise UsageError(f"{job.firmware} does not exist", hint="build it first: mtool build")
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
    flashed = FlashResult(runner.name, time.monotonic() - start, runner.reads_back(job))
    log.info("flash: %.2f s, %s", flashed.seconds, runner.name)
    return flashed


def choose_gdb_server(board: Board, name: str = "", *, template: str = "") -> str:
    """Return the name of a board's runner whose tool is a gdb server: the named one, else the board's first.

    Raises:
        UsageError: none of the board's runners has a gdb server, or the named one has none.
    """
    runners = [runner for runner in runners_of(board, template) if all_runners()[runner].gdb_server]
    if name and name in runners:
        return name
    if name or not runners:
        what = f"{name} has no gdb server for {board.name}" if name else f"{board.name} has no gdb server"
        hint = "start a gdb server yourself, and pass its address: --server HOST:PORT"
        raise UsageError(what, details=[f"runners with a gdb server: {', '.join(runners) or 'none'}"], hint=hint)
    return runners[0]


def gdb_server(runner: str, job: Job, port: int) -> list[str]:
    """Return the command of a gdb server that listens at a port of this computer, its program first.

    Raises:
        UsageError: the board's entry lacks a setting of the runner.
    """
    words = all_runners()[runner].words(job, all_runners()[runner].gdb_server)
    return [word.replace("{gdb_port}", str(port)) for word in words]
