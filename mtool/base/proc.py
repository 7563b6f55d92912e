"""Run an external program: the only place in mtool that starts one to completion."""

import contextlib
import logging
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.base import locks, system
from mtool.base.errors import BuildError, MtoolError, of_os_error

log = logging.getLogger(__name__)

LAST_LINES = 25
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a program: its exit code, its output (stdout and stderr together) and its seconds."""

    argv: tuple[str, ...]
    returncode: int
    output: str
    seconds: float


def find(program: str, *, hint: str) -> str:
    """Return the path of a program.

    Raises:
        BuildError: it is not on PATH; `hint` is the command that installs it.
    """
    path = shutil.which(program)
    if path is None:
        raise BuildError(f"{program} is not installed", details=["it was looked for on PATH"], hint=hint)
    return path


def run(
    argv: Sequence[str],
    *,
    what: str,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    error: type[MtoolError] = BuildError,
    check: bool = True,
) -> Completed:
    """Run a program without a shell and return its output.

    Args:
        argv: the program and its arguments.
        what: what it is run for, for the error message ("build of the firmware").
        timeout_s: seconds until it is killed.
        cwd: its working folder.
        env: its whole environment, or None for this process's.
        error: the class of error to raise.
        check: raise on an exit code other than 0.

    Raises:
        MtoolError: of class `error`, if the program is missing, fails or takes too long; it holds the last lines.
    """
    log.debug("run %s", " ".join(argv))
    start = time.monotonic()
    try:
        returncode, stdout = _finished(argv, cwd, env, timeout_s)
    except FileNotFoundError as failed:
        if cwd is not None and not cwd.is_dir():
            raise error(f"{what} failed: there is no folder {cwd}") from None
        details = [] if failed.filename in (None, argv[0]) else [f"{failed.filename} is not there"]
        raise error(f"{what} failed: {argv[0]} is not installed", details=details, hint="run `mtool doctor`") from None
    except OSError as failed:  # not executable, of another machine, too many processes
        raise error(f"{what} failed: {argv[0]} can't be run", details=[of_os_error(failed).what]) from None
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace")
        raise error(f"{what} took more than {timeout_s:g} s", details=_tail(argv, output)) from None
    seconds = time.monotonic() - start
    completed = Completed(tuple(argv), returncode, stdout.decode(errors="replace"), seconds)
    if check and returncode != 0:
        raise error(f"{what} failed with exit code {returncode}", details=_tail(argv, completed.output))
    return completed


def interactive(argv: Sequence[str], *, output: int | None = None) -> int:
    """Run a program in this terminal, which is its own until it ends, and return its exit code; Ctrl-C is for it alone.

    Args:
        argv: the program and its arguments.
        output: the file descriptor of its standard output; None: this process's.

    Raises:
        BuildError: it can't be started.
    """
    log.debug("run %s", " ".join(argv))
    try:
        process = subprocess.Popen(list(argv), stdout=output)
    except OSError as failed:
        raise BuildError(f"{argv[0]} can't be run", details=[of_os_error(failed).what]) from None
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue
        except BaseException:
            process.kill()
            process.wait()
            raise


def _finished(
    argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, timeout_s: float
) -> tuple[int, bytes]:
    """Run a program to its end; if it takes too long, or this one is stopped, it ends with all that it has started."""
    with system.Interrupts() as interrupts:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=locks.handles(),
            process_group=0,
        )
        try:
            with interrupts.allowed():
                output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            system.kill_group(process)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a program outside its group holds the pipe
                process.communicate(timeout=_GRACE_S)
            raise
    return process.returncode, output


def _tail(argv: Sequence[str], output: str) -> list[str]:
    return ["$ " + " ".join(argv), *output.rstrip().splitlines()[-LAST_LINES:]]
