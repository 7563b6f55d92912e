"""`mtool preprocess`: prepend front ends to a model."""

import dataclasses
from pathlib import Path

from mtool import commands
from mtool.cli import parameters
from mtool.cli.output import Output


def preprocess(
    out: Output,
    front: list[str],
    model: Path,
    output: Path | None = None,
    target: str = "",
    *,
    options: parameters.FrontOptions,
) -> None:
    """Prepend front ends to a model: from what a sensor gives to the model's outputs, in one graph.

    The result is an ONNX model, also for a .tflite model; its states are part of the file and need no option.
    """
    result = commands.preprocess(front, model, output=output, target=target, options=options)
    out.result({**dataclasses.asdict(result), "path": str(result.path)})
    out.text(f"{result.input} -> {result.output}")
    for name in result.states:
        out.text(f"  state {name}")
    out.text(f"wrote {result.path}; try it: mtool verify {result.path}")
