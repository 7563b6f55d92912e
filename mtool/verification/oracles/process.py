"""Calls of an oracle in another process: if its native code crashes on a model, that is an error of one line.

onnxruntime divides the smallest integer by -1, say, and is killed by SIGFPE. One process serves all calls of this one;
it starts with the first, and ends with this one.
"""

import functools
import logging
import os
import signal
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from mtool.base import errors
from mtool.base.children import Child, last_lines
from mtool.base.errors import BuildError, ModelError
from mtool.verification.oracles import wire

HINT = "give a file of expected outputs: --golden G.npz"

_GRACE_S = 10.0  # from the end of its output to its own: a core file may be written
_WORDS = 3  # lines of its standard error that a message shows
# The folder in which mtool is run is on the path of no import before this one's own path is set.
_START = "import sys; sys.path[:] = sys.argv[1:]; from mtool.verification.oracles.server import serve; serve()"


class DiedError(ModelError):
    """An oracle's process died of a model."""


def call(oracle: str, model: Path, function: str, /, **named: Any) -> Any:
    """Call a function in the oracles' process.

    Args:
        oracle: its name, for messages.
        model: the file that it runs, for messages.
        function: one of `server.FUNCTIONS`.
        named: its arguments, of what a message can hold (mtool.verification.oracles.wire).

    Raises:
        DiedError: the process died.
        MtoolError: whatever the function raises.
    """
    answer = of_process(os.getpid()).ask([function, named], oracle, model)
    for logger, level, text in answer["said"]:
        logging.getLogger(logger).log(level, "%s", text)
    if "refused" in answer:
        kind, what, details, hint = answer["refused"]
        raise getattr(errors, kind)(what, details=details, hint=hint)
    if "failed" in answer:
        raise RuntimeError(answer["failed"])
    return answer["value"]


@functools.cache
def of_process(_: int) -> "OracleProcess":
    """Return the oracles' process of the process of this number; one that is forked off does not share its parent's."""
    return OracleProcess()


class OracleProcess:
    """A process that answers calls one after the other. It is started when there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: _Running | None = None

    def ask(self, request: Any, oracle: str, model: Path) -> dict[str, Any]:
        """Send a call and return its answer.

        Raises:
            DiedError: the process ended before it.
        """
        with self._lock:
            if self.running is None:
                self.running = _Running()
            try:
                return self.running.ask(request)
            except BaseException as failed:  # Ctrl-C too: an answer to come would be taken for the next call's
                running, self.running = self.running, None
                error = running.death(oracle, model) if isinstance(failed, EOFError) else failed
                running.end()
                raise error from None


class _Running:
    """A process that has been started."""

    def __init__(self) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.child = Child([sys.executable, "-c", _START, *map(os.path.abspath, sys.path)], errors=self._errors)
        except OSError as failed:
            self._errors.close()
            raise BuildError(
                "no process for the reference can be started", details=[failed.strerror or str(failed)]
            ) from None
        self._answers = open(self.child.stdout.fileno(), "rb", closefd=False)  # noqa: SIM115 - buffered
        self.end = weakref.finalize(self, _end, self.child, self._answers, self._errors)

    def ask(self, request: Any) -> dict[str, Any]:
        """Send a call and wait for its answer.

        Raises:
            EOFError: the process has ended.
        """
        try:
            for part in wire.parts(request):
                self.child.write(part)
            return dict(wire.read(self._answers))
        except BrokenPipeError:
            raise EOFError from None

    def death(self, oracle: str, model: Path) -> DiedError:
        """Return the error that tells how the process ended."""
        status = self.child.wait(_GRACE_S)
        if status is None:
            how = "closed its output"
        elif status < 0:
            how = f"was killed by {signal.Signals(-status).name} ({(signal.strsignal(-status) or '').lower()})"
        else:
            how = f"ended with exit code {status}"
        return DiedError(f"{oracle} {how} when it ran {model}", details=last_lines(self._errors, _WORDS), hint=HINT)


def _end(child: Child, answers: IO[bytes], errors: IO[bytes]) -> None:
    answers.close()
    child.end()
    errors.close()
