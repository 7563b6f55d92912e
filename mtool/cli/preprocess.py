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
    made = commands.preprocess(front, model, output=output, target=target, options=options)
    out.result({**dataclasses.asdict(made), "path": str(made.path)})
    out.text(f"{made.input} -> {made.output}")
    for name in made.states:
        out.text(f"  state {name}")
    out.text(f"wrote {made.path}; try it: mtool verify {made.path}")
