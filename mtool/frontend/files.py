"""Read a model file of either format."""

from collections.abc import Mapping
from pathlib import Path

from mtool.frontend import onnx_file, tflite
from mtool.ir import Graph
from mtool.ir.types import Array


def is_tflite(path: Path) -> bool:
    """Whether a file goes by the name of a TFLite model, or holds one."""
    if path.suffix.lower() == ".tflite":
        return True
    try:
        with path.open("rb") as file:
            return file.read(8)[4:] == tflite.IDENTIFIER
    except OSError:
        return False


def load(path: Path, dims: Mapping[str, int] | None = None, constants: Mapping[str, Array] | None = None) -> Graph:
    """Read an ONNX model (of any opset) or a TFLite model and return its graph.

    Args:
        path: the model file.
        dims: values for symbolic dimensions, by name.
        constants: values for inputs, by name; such an input becomes a constant of the model.

    Raises:
        UsageError: the file is missing, or `dims` or `constants` name nothing of the model.
        NeedsValues: an operator has to know the values of inputs of the model; the error names them.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    reader = tflite.load if is_tflite(path) else onnx_file.load
    return reader(path, dims, constants)
