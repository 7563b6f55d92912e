"""Read a model file of either format."""

from collections.abc import Mapping
from pathlib import Path

from mtool.errors import UsageError
from mtool.frontend import onnx_file, tflite
from mtool.frontend.states import Pairs
from mtool.frontend.tflite import Rounding
from mtool.ir import Graph
from mtool.ir.types import Array


def is_tflite(path: Path) -> bool:
    """Whether a file goes by the name of a TFLite model, or holds one."""
    return path.suffix.lower() == ".tflite" or onnx_file.is_flatbuffer(path)


def load(
    path: Path,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, Array] | None = None,
    rounding: Rounding = "onnx",
    maxima: Mapping[str, int] | None = None,
    states: Pairs = (),
) -> Graph:
    """Read an ONNX model (of any opset) or a TFLite model and return its graph.

    Args:
        path: the model file.
        dims: values for symbolic dimensions, by name.
        constants: values for inputs, by name; such an input becomes a constant of the model.
        states: pairs of an output and the input of the next run that it feeds.
        rounding: "tflite": the integers of a TFLite model as TFLite's reference kernels compute them.
        maxima: the largest sizes of what has a size that depends on data, by the name of the value or its dimension.

    Raises:
        UsageError: the file is missing, `dims`, `constants`, `maxima` or `states` name nothing of the model, or the
            rounding is TFLite's and the model is not.
        NeedsValues: an operator has to know the values of inputs of the model; the error names them.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    if is_tflite(path):
        return tflite.load(path, dims, constants, rounding, maxima, states)
    if rounding != "onnx":
        raise UsageError(
            f"{path.name} is not a TFLite model, which --rounding {rounding} is for",
            hint="leave the option out, or give the .tflite file that the model was made from",
        )
    return onnx_file.load(path, dims, constants, maxima, states)
