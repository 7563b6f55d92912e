"""Calls of an oracle in a separate process: a crash of its native code becomes an ordinary error.

For example, onnxruntime divides the smallest integer by -1 and is killed by SIGFPE. One process serves all calls of
this process; it starts with the first call and ends with this process.
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
from mtool.base.notes import noted, replay
from mtool.base.proc import Answering, last_lines

# A message between two processes: plain values, bytes and arrays. Unlike reading a pickle, reading it runs no code.
#
# A JSON text describes the message; the bytes and arrays that it lists follow. Each part is preceded by its length.


_LENGTH = 8  # bytes
_ARRAY, _BYTES, _TEXTS, _PLAIN = "array", "bytes", "texts", "plain"
assert ml_dtypes  # it registers types that NumPy lacks


def parts(value: Any) -> Iterator[bytes | memoryview]:
    """Return a message in parts.

    Args:
        value: None, numbers, text, bytes, arrays, and lists, tuples and dictionaries of them with text keys.
    """
    blobs: list[bytes | memoryview] = []
    text = json.dumps(_described(value, blobs)).encode()
    for part in (text, *blobs):
        yield len(part).to_bytes(_LENGTH, "little")
        yield part


def read(file: IO[bytes]) -> Any:
    """Read a message; tuples become lists.

    Raises:
        EOFError: the file ends before the message.
    """
    header = json.loads(_part(file))
    return _restored(header, file)


def _part(file: IO[bytes]) -> bytes:
    return _exactly(file, int.from_bytes(_exactly(file, _LENGTH), "little"))


def _exactly(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _described(value: Any, blobs: list[bytes | memoryview]) -> Any:
    """Return a value as JSON, in which each dictionary has one key: the value's kind."""
    if isinstance(value, bytes):
        blobs.append(value)
        return {_BYTES: None}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "OUS":
            return {_TEXTS: [list(array.shape), [str(text) for text in array.reshape(-1)]]}
        blobs.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return {_ARRAY: [array.dtype.name, list(array.shape)]}
    if isinstance(value, dict):
        return {_PLAIN: [[key, _described(inner, blobs)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        return [_described(inner, blobs) for inner in value]
    return value


def _restored(value: Any, file: IO[bytes]) -> Any:
    """Return a value; its bytes and arrays are read in the order of the description."""
    if isinstance(value, list):
        return [_restored(inner, file) for inner in value]
    if not isinstance(value, dict):
        return value
    ((kind, what),) = value.items()
    if kind == _BYTES:
        return _part(file)
    if kind == _ARRAY:
        dtype, shape = np.dtype(what[0]), tuple(what[1])
        return np.frombuffer(bytearray(_part(file)), dtype, count=math.prod(shape)).reshape(shape)
    if kind == _TEXTS:
        return np.array(what[1], object).reshape(what[0])
    return {key: _restored(inner, file) for key, inner in what}


HINT = "give a file with the expected outputs: --golden G.npz"
_GRACE_S = 10.0  # from the end of its output to its exit: a core file may be written
_WORDS = 3  # lines of its standard error in a message
# Set sys.path before any import, so that the working folder is not searched.
_START = "import sys; sys.path[:] = sys.argv[1:]; from mtool.verification.oracles.process import serve; serve()"


class DiedError(ModelError):
    """An oracle's process crashed while running a model."""


def call(oracle: str, model: Path, function: str, /, **named: Any) -> Any:
    """Call a function in the oracles' process.

    Args:
        oracle: its name, for messages.
        model: the model's file, for messages.
        function: one of `FUNCTIONS`.
        named: its arguments, as in `parts`.

    Raises:
        DiedError: the process died.
        MtoolError: whatever the function raises.
    """
    answer = of_process(os.getpid()).ask([function, named], oracle, model)
    replay(answer["said"])
    if "refused" in answer:
        kind, what, details, hint = answer["refused"]
        raise getattr(errors, kind)(what, details=details, hint=hint)
    if "failed" in answer:
        raise RuntimeError(answer["failed"])
    return answer["value"]


@functools.cache
def of_process(_: int) -> "OracleProcess":
    """Return the oracles' process for the process with this id; a forked process does not share its parent's."""
    return OracleProcess()


class OracleProcess:
    """A process that answers calls one after another; it is started on demand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: Answering | None = None

    def ask(self, request: Any, oracle: str, model: Path) -> dict[str, Any]:
        """Send a call and return its answer.

        Raises:
            DiedError: the process ended before it answered.
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
        raise BuildError("the reference's process can't be started", details=[failed.strerror or str(failed)]) from None


def _death(running: Answering, oracle: str, model: Path) -> DiedError:
    """Return the error that describes how a process ended."""
    status = running.child.wait(_GRACE_S)
    if status is None:
        how = "closed its output"
    elif status < 0:
        how = f"was killed by {signal.Signals(-status).name} ({(signal.strsignal(-status) or '').lower()})"
    else:
        how = f"ended with exit code {status}"
    return DiedError(f"{oracle} {how} while running {model}", details=last_lines(running.errors, _WORDS), hint=HINT)


# The process in which oracles run: it reads calls from standard input and answers on standard output.


FUNCTIONS = (
    "evaluator.outputs",
    "quantizer.of_layers",
    "litert.lacking",
    "litert.outputs",
    "ort.outputs",
    "qonnx.outputs",
    "quantizer.prepare",
    "quantizer.quantize",
)
"""The functions that can be called."""


def serve() -> None:
    """Answer calls until the input ends. Libraries' output goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while True:
            try:
                name, named = read(sys.stdin.buffer)
            except EOFError:
                return
            with noted() as messages:
                answer = _answer(function_of(name), named)
            for part in parts({**answer, "said": messages}):
                answers.write(part)
            answers.flush()


def function_of(name: str) -> Callable[..., Any]:
    """Return a function by its module and its own name ("ort.outputs")."""
    assert name in FUNCTIONS
    module, _, function = name.partition(".")
    result: Callable[..., Any] = getattr(importlib.import_module(f"mtool.verification.oracles.{module}"), function)
    return result


def _answer(function: Callable[..., Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return a call's answer: its value, mtool's error, or the traceback of any other error."""
    try:
        return {"value": function(**named)}
    except MtoolError as error:
        kind = type(error).__name__
        return {"refused": [kind, error.what, list(error.details), error.hint]}
    except Exception:
        return {"failed": traceback.format_exc()}
