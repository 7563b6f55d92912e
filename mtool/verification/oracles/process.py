"""Calls of an oracle in another process: if its native code crashes on a model, that is an error of one line.

onnxruntime divides the smallest integer by -1, say, and is killed by SIGFPE. One process serves all calls of this one;
it starts with the first, and ends with this one.
"""

import functools
import importlib
import json
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from mtool.base import errors
from mtool.base.errors import BuildError, ModelError, MtoolError
from mtool.base.notes import noted, tell
from mtool.base.proc import Answering, last_lines

# A message between two processes: plain values, bytes and arrays. Reading it runs nothing, as reading a pickle would.
#
# A JSON text says what there is; it comes first, then the bytes and arrays that it counts. Each has its length before
# it.


_LENGTH = 8  # bytes
_ARRAY, _BYTES, _TEXTS, _PLAIN = "array", "bytes", "texts", "plain"
assert ml_dtypes  # it gives NumPy the names of the types that NumPy itself does not have


def parts(value: Any) -> Iterator[bytes | memoryview]:
    """Return a message in parts.

    Args:
        value: made of None, numbers, text, bytes, arrays, and lists, tuples and dictionaries with text for keys.
    """
    blobs: list[bytes | memoryview] = []
    text = json.dumps(_described(value, blobs)).encode()
    for part in (text, *blobs):
        yield len(part).to_bytes(_LENGTH, "little")
        yield part


def read(file: IO[bytes]) -> Any:
    """Read a message; tuples have become lists.

    Raises:
        EOFError: the file ends before it does.
    """
    described = json.loads(_part(file))
    return _restored(described, file)


def _part(file: IO[bytes]) -> bytes:
    return _exactly(file, int.from_bytes(_exactly(file, _LENGTH), "little"))


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _described(value: Any, blobs: list[bytes | memoryview]) -> Any:
    """Return a value as JSON has it, each dictionary of which has one key: what its value is."""
    if isinstance(value, bytes):
        blobs.append(value)
        return {_BYTES: None}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return {_TEXTS: [list(array.shape), [str(one) for one in array.reshape(-1)]]}
        blobs.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return {_ARRAY: [array.dtype.name, list(array.shape)]}
    if isinstance(value, dict):
        return {_PLAIN: [[key, _described(inner, blobs)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        return [_described(inner, blobs) for inner in value]
    return value


def _restored(described: Any, file: IO[bytes]) -> Any:
    """Return a value; its bytes and arrays are read in the order in which they were described."""
    if isinstance(described, list):
        return [_restored(inner, file) for inner in described]
    if not isinstance(described, dict):
        return described
    ((kind, what),) = described.items()
    if kind == _BYTES:
        return _part(file)
    if kind == _ARRAY:
        dtype, shape = np.dtype(what[0]), tuple(what[1])
        return np.frombuffer(bytearray(_part(file)), dtype, count=math.prod(shape)).reshape(shape)
    if kind == _TEXTS:
        return np.array(what[1], object).reshape(what[0])
    return {key: _restored(inner, file) for key, inner in what}


HINT = "give a file of expected outputs: --golden G.npz"
_GRACE_S = 10.0  # from the end of its output to its own: a core file may be written
_WORDS = 3  # lines of its standard error that a message shows
# The folder in which mtool is run is on the path of no import before this one's own path is set.
_START = "import sys; sys.path[:] = sys.argv[1:]; from mtool.verification.oracles.process import serve; serve()"


class DiedError(ModelError):
    """An oracle's process died of a model."""


def call(oracle: str, model: Path, function: str, /, **named: Any) -> Any:
    """Call a function in the oracles' process.

    Args:
        oracle: its name, for messages.
        model: the file that it runs, for messages.
        function: one of `FUNCTIONS`.
        named: its arguments, of what a message can hold (mtool.verification.oracles.process).

    Raises:
        DiedError: the process died.
        MtoolError: whatever the function raises.
    """
    answer = of_process(os.getpid()).ask([function, named], oracle, model)
    tell(answer["said"])
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
        self.running: Answering | None = None

    def ask(self, request: Any, oracle: str, model: Path) -> dict[str, Any]:
        """Send a call and return its answer.

        Raises:
            DiedError: the process ended before it.
        """
        with self._lock:
            running = self.running = self.running or _started()
            try:
                for part in parts(request):
                    running.child.write(part)
                return dict(read(running.answers))
            except BaseException as failed:  # Ctrl-C too: an answer to come would be taken for the next call's
                self.running = None
                error = _death(running, oracle, model) if isinstance(failed, EOFError | BrokenPipeError) else failed
                running.end()
                raise error from None


def _started() -> Answering:
    try:
        return Answering([sys.executable, "-c", _START, *map(os.path.abspath, sys.path)])
    except OSError as failed:
        raise BuildError(
            "no process for the reference can be started", details=[failed.strerror or str(failed)]
        ) from None


def _death(running: Answering, oracle: str, model: Path) -> DiedError:
    """Return the error that tells how a process ended."""
    status = running.child.wait(_GRACE_S)
    if status is None:
        how = "closed its output"
    elif status < 0:
        how = f"was killed by {signal.Signals(-status).name} ({(signal.strsignal(-status) or '').lower()})"
    else:
        how = f"ended with exit code {status}"
    return DiedError(f"{oracle} {how} when it ran {model}", details=last_lines(running.errors, _WORDS), hint=HINT)


# The process in which oracles run: it takes calls from its standard input and answers on its standard output.


FUNCTIONS = (
    "evaluator.outputs",
    "quantizer.of_layers",
    "litert.lacking",
    "litert.outputs",
    "ort.outputs",
    "quantizer.prepare",
    "quantizer.quantize",
)
"""The functions that can be called."""


def serve() -> None:
    """Answer calls until the input ends. What a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while True:
            try:
                name, named = read(sys.stdin.buffer)
            except EOFError:
                return
            with noted() as said:
                answer = _answer(function_of(name), named)
            for part in parts({**answer, "said": said}):
                answers.write(part)
            answers.flush()


def function_of(name: str) -> Callable[..., Any]:
    """Return a function by its module and its own name ("ort.outputs")."""
    assert name in FUNCTIONS
    module, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"mtool.verification.oracles.{module}"), function)
    return found


def _answer(function: Callable[..., Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what a call comes to: its value, an error of mtool's, or the traceback of any other."""
    try:
        return {"value": function(**named)}
    except MtoolError as refused:
        kind = type(refused).__name__
        return {"refused": [kind, refused.what, list(refused.details), refused.hint]}
    except Exception:
        return {"failed": traceback.format_exc()}
