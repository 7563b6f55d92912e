"""Run an external program: the only place in mtool that starts one to completion."""

import contextlib
import logging
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from mtool.base import locks, system
from mtool.base.errors import BuildError, MtoolError, of_os_error
from mtool.base.frozen import frozen

log = logging.getLogger(__name__)
LAST_LINES = 25
_GRACE_S = 5.0


@frozen
class Completed:
    """The result of a program: its exit code, its output (stdout and stderr together), its seconds, and stdout alone.

    `stdout` alone is only known if the program was given `data`.
    """

    argv: tuple[str, ...]
    returncode: int
    output: str
    seconds: float
    stdout: bytes = b""


def find(program: str, *, hint: str) -> str:
    """Return the path of a program.

    Raises:
        BuildError: it is not on PATH; `hint` is the command that installs it.
    """
    path = shutil.which(program)
    if path is None:
        raise BuildError(f"{program} is not installed", details=["it was not found on PATH"], hint=hint)
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
    has_scratch: bool = False,
    data: bytes | None = None,
) -> Completed:
    """Run a program without a shell and return its output.

    Args:
        argv: the program and its arguments.
        what: the purpose, for the error message ("build of the firmware").
        timeout_s: seconds after which it is killed.
        cwd: its working folder.
        env: its environment; None: this process's.
        error: the class of the error to raise.
        check: raise on an exit code other than 0.
        has_scratch: give it its own temporary folder, which is removed at its end, as a killed compiler leaves files
            there.
        data: its standard input; None: it has none.

    Raises:
        MtoolError: of class `error`, if the program is missing, fails or takes too long; it has its last lines.
    """
    log.debug("run %s", " ".join(argv))
    start = time.monotonic()
    try:
        returncode, stdout, stderr = _finished(argv, cwd, env, timeout_s, has_scratch, data)
    except FileNotFoundError as failed:
        if cwd is not None and not cwd.is_dir():
            raise error(f"{what} failed: there is no folder {cwd}") from None
        details = [] if failed.filename in (None, argv[0]) else [f"{failed.filename} does not exist"]
        raise error(f"{what} failed: {argv[0]} is not installed", details=details, hint="run `mtool doctor`") from None
    except OSError as failed:  # not executable, for another machine, too many processes
        raise error(f"{what} failed: {argv[0]} can't be run", details=[of_os_error(failed).what]) from None
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace")
        raise error(f"{what} took more than {timeout_s:g} s", details=_tail(argv, output)) from None
    seconds = time.monotonic() - start
    completed = Completed(tuple(argv), returncode, (stdout + stderr).decode(errors="replace"), seconds, stdout)
    if check and returncode != 0:
        raise error(f"{what} failed with exit code {returncode}", details=_tail(argv, completed.output))
    return completed


def interactive(argv: Sequence[str], *, output: int | None = None) -> int:
    """Run a program in this terminal and return its exit code; until it ends, Ctrl-C goes only to it.

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
    argv: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    timeout_s: float,
    has_scratch: bool,
    data: bytes | None,
) -> tuple[int, bytes, bytes]:
    """Run a program to its end; kill it and its children if it takes too long or this process is stopped."""
    with system.Interrupts() as interrupts, contextlib.ExitStack() as stack:
        if has_scratch:
            with contextlib.suppress(OSError):  # no folder for temporary files: the program will report that
                scratch = tempfile.TemporaryDirectory(prefix="mtool-", ignore_cleanup_errors=True)
                env = {**(os.environ if env is None else env), "TMPDIR": stack.enter_context(scratch)}
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if data is None else subprocess.PIPE,
            pass_fds=locks.handles(),
            process_group=0,
        )
        try:
            with interrupts.allowed():
                output, errors = process.communicate(data, timeout=timeout_s)
        except BaseException:
            system.kill_tree(process)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a program outside its group still holds the pipe
                process.communicate(timeout=_GRACE_S)
            raise
    return process.returncode, output, errors or b""


def _tail(argv: Sequence[str], output: str) -> list[str]:
    return ["$ " + " ".join(argv), *output.rstrip().splitlines()[-LAST_LINES:]]


# A program that runs alongside mtool and ends, with its children, when mtool does, however that ends.
#
# It has its own process group, which is signalled as a whole: an emulator may be a script that starts the real one.


_END_GRACE_S = 0.5
# Waits for a line, which arrives when the program has ended; if this process dies first, it reads end of input.
_WATCHER = ("sh", "-c", 'read -r _ || kill -KILL "-$1"', "sh")


class Child:
    """A running program whose standard input and output are pipes.

    If this process is killed, a watcher kills the program's group: a program in an endless computation would not notice
    the end of its input.

    Args:
        argv: the program and its arguments.
        errors: the file for its standard error.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, argv: Sequence[str], *, errors: IO[bytes]) -> None:
        with system.Interrupts():  # until its watcher runs
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, process_group=0
            )
            self._watcher = _watch(process)
        assert process.stdin is not None and process.stdout is not None
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.pid = process.pid
        self._starter = os.getpid()
        self._process = process

    def write(self, data: bytes | memoryview) -> None:
        """Write all of the data to its standard input.

        Raises:
            BrokenPipeError: its input is closed, most likely because it has ended.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.stdin.fileno(), rest) :]

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit status, or minus the signal that killed it; None: it still runs after `timeout_s`.

        Its remaining children are killed.
        """
        if self._process.returncode is None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            system.kill_group(self._process)
        return self._process.returncode

    def end(self) -> None:
        """End it: by closing its input, else by a signal, else by force. In a fork of its parent this does nothing."""
        with contextlib.suppress(OSError):
            self.stdin.close()
        if os.getpid() != self._starter:
            self.stdout.close()
            return
        for gently in (True, False):
            if self.wait(_END_GRACE_S) is not None:
                break
            system.kill_group(self._process, gently=gently)
        self.wait()
        if self._watcher is not None:
            with contextlib.suppress(OSError):
                self._watcher.communicate(b"\n")
        self.stdout.close()


class Answering:
    """A program that answers requests over its standard input and output. It ends with this process, however that ends.

    Attributes:
        child: the program.
        answers: its standard output.
        errors: a file with its standard error.
        end: ends it.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.child = Child(argv, errors=self.errors)
        except OSError:
            self.errors.close()
            raise
        self.answers = open(self.child.stdout.fileno(), "rb", closefd=False)  # noqa: SIM115 - buffered
        self.end = weakref.finalize(self, _end, self.child, self.answers, self.errors)


def _end(child: Child, answers: IO[bytes], errors: IO[bytes]) -> None:
    answers.close()
    child.end()
    errors.close()


def _watch(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
    """Start a shell that kills a process group if this process is killed; None if there is no shell."""
    try:
        return subprocess.Popen(
            [*_WATCHER, str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal does not reach it
        )
    except OSError:
        return None


def last_lines(errors: IO[bytes], count: int) -> list[str]:
    """Return the last lines of a child's error file, without moving the child's position in it."""
    chunk = 1 << 16
    size = os.fstat(errors.fileno()).st_size
    last = system.read_at(errors.fileno(), chunk, max(0, size - chunk))
    return last.decode(errors="replace").rstrip().splitlines()[-count:]


# Objects that a `with` statement closes.


class Closing(ABC):
    """Something that a `with` statement closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
