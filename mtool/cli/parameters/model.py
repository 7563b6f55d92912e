"""Options of the model: its sizes, constants, states and numbers."""

import functools
from pathlib import Path
from typing import Annotated

import typer

from mtool.base.errors import UsageError
from mtool.base.option_values import Hybrid, Rounding

_option = functools.partial(typer.Option, rich_help_panel="The model")


def _model(text: str) -> Path:
    """Read a model's path; as for a folder's, none at all is no path."""
    if not text:
        raise UsageError("the model's path is empty", hint="give the path of an .onnx or .tflite file")
    return Path(text)


ModelFile = Annotated[
    Path,
    typer.Argument(metavar="MODEL", parser=_model, help="The model, .onnx or .tflite.", show_default=False),
]
ModelFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="MODEL...",
        parser=_model,
        help="The model, .onnx or .tflite; several share one firmware.",
        show_default=False,
    ),
]
ModelOrProject = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL|PROJECT",
        parser=_model,
        help="The model, .onnx or .tflite, or a project's folder.",
        show_default=False,
    ),
]
ModelsOrProject = Annotated[
    list[Path],
    typer.Argument(
        metavar="MODEL...|PROJECT",
        parser=_model,
        help="The model, .onnx or .tflite, of which several share one firmware; or a project's folder.",
        show_default=False,
    ),
]
Names = Annotated[
    list[str] | None,
    _option(
        "--name",
        metavar="NAME",
        help="The model's name in C, in place of its file's; with several models once for each, in their order.",
        show_default=False,
    ),
]
Dims = Annotated[
    list[str] | None,
    _option("--dim", metavar="NAME=N", help="The value of a symbolic dimension; may be repeated.", show_default=False),
]
Maxima = Annotated[
    list[str] | None,
    _option(
        "--max",
        metavar="NAME=N",
        help="The largest size of an input's symbolic dimension, which is then known at run time, or of a value whose "
        "size depends on data; may be repeated.",
        show_default=False,
    ),
]
Limits = Annotated[
    list[str] | None,
    _option(
        "--limit",
        metavar="NAME=N",
        help="A limit of what compiling the model may take (docs/limits.md); may be repeated.",
        show_default=False,
    ),
]
Constants = Annotated[
    list[str] | None,
    _option(
        "--const",
        metavar="NAME=VALUE",
        help="Make an input a constant: a number, a JSON list or a .npy file; may be repeated.",
        show_default=False,
    ),
]
States = Annotated[
    list[str] | None,
    _option(
        "--state",
        metavar="OUT:IN[=VALUE]",
        help="Keep an output on the device, as this input of the next run, which begins as 0 or as VALUE (a number, a "
        "JSON list or a .npy file); may be repeated.",
        show_default=False,
    ),
]
RoundingMode = Annotated[
    Rounding,
    _option(
        "--rounding",
        help="How integers are rounded: as in ONNX, or as TFLite's reference kernels do (.tflite models only).",
    ),
]
HybridOperators = Annotated[
    Hybrid,
    _option(
        "--hybrid",
        help="Products of float activations and int8 weights: in int8 as LiteRT does, in float, or with weights (of "
        "float16 too) stored as float32; auto: int8 of a .tflite model.",
    ),
]
SEVERAL = {ModelFile: ModelFiles, ModelOrProject: ModelsOrProject}
"""What stands for the model of a command that is done for each of several."""
