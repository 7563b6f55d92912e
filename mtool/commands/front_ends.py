"""The front ends of known models, which a new project prepends: its program passes a sensor's samples."""

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler import frontend
from mtool.compiler.ir import DType
from mtool.preprocessing.prepending import preprocess
from mtool.stages.options import Options

log = logging.getLogger(__name__)

_FRONT_ENDS = {
    (1, 30, 1, 40): "mlperf_wake_word:rows=1",  # MLPerf Tiny's streaming wake word
    (1, 3, 40): "micro_wake_word",  # microWakeWord, with steps of 10 ms
    (1, 1, 40): "micro_speech:rows=1",  # its first version, with steps of 20 ms
    (1, 49, 40, 1): "micro_speech:rows=1",  # TensorFlow Lite Micro's micro_speech
    (1, 1960): "micro_speech:rows=1",
}
"""The front ends of known models, by the shape of the model's input."""

_FIRST = ",first=0.474"  # the middle of the features: the benchmark's reference firmware starts with rows of 0


@contextlib.contextmanager
def with_front_end(model: Path, options: Options, *, needs_one: bool) -> Iterator[Path]:
    """Yield a model that takes samples: itself, or a temporary file with its front end prepended.

    Args:
        model: the model's file.
        options: its options.
        needs_one: the model has to take samples; else it is a benchmark's.

    Raises:
        UsageError: it takes something else, and its front end is unknown.
    """
    graph = frontend.load(model, options)
    kinds = [graph.types[name] for name in graph.caller_inputs]
    if len(kinds) == 1 and kinds[0].dtype is DType.INT16 and kinds[0].count == kinds[0].shape[-1]:
        yield model
        return
    front = _FRONT_ENDS.get(kinds[0].shape) if len(kinds) == 1 else None
    if front is None:
        if needs_one:
            raise UsageError(
                f"{model.name} does not take samples of a sensor",
                details=["expected  one input, int16[samples]", f"found     {', '.join(map(str, kinds))}"],
                hint=f"prepend its front end: mtool preprocess KIND {model} (docs/preprocess.md)",
            )
        yield model
        return
    log.info("%s gets the front end %s", model.name, front)
    with tempfile.TemporaryDirectory(prefix="mtool-front-") as folder:
        front += "" if needs_one or "mlperf" not in front else _FIRST
        yield preprocess(front, model, output=Path(folder) / f"{model.stem}.onnx", options=options).path
