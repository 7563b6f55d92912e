"""Read a model file of either format."""

from pathlib import Path

from mtool.errors import UsageError
from mtool.frontend import onnx_file, reading
from mtool.frontend.hybrid_weights import with_float32_weights
from mtool.frontend.options import DEFAULTS, ModelOptions
from mtool.ir import Graph


def load(path: Path, options: ModelOptions = DEFAULTS) -> Graph:
    """Read an ONNX model (of any opset) or a TFLite model and return its graph.

    Args:
        path: the model file.
        options: of the model.

    Raises:
        UsageError: the file is missing, what is given names nothing of the model, or the arithmetic is TFLite's and
            the model is not.
        NeedsValues: an operator has to know the values of inputs of the model; the error names them.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    if reading.is_tflite(path):
        from mtool.frontend import tflite  # loaded for a TFLite model alone: its schema is two hundred modules

        graph = tflite.load(path, options)
        return with_float32_weights(graph) if options.hybrid == "float32" else graph
    if options.rounding != "onnx":
        raise UsageError(
            f"{path.name} is not a TFLite model, which --rounding {options.rounding} is for",
            hint="leave the option out, or give the .tflite file that the model was made from",
        )
    if options.hybrid == "int8":
        raise UsageError(
            f"{path.name} is not a TFLite model, which --hybrid int8 is for",
            hint="onnxruntime.quantization.quantize_dynamic makes an ONNX model whose activations are quantised so",
        )
    graph = onnx_file.load(path, options)
    return with_float32_weights(graph) if options.hybrid == "float32" else graph
