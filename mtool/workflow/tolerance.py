"""The default tolerance of a model's outputs."""

from pathlib import Path

from mtool.frontend import is_tflite
from mtool.option_values import Rounding
from mtool.session.verify import Tolerance


def default_tolerance(model: Path | None = None, rounding: Rounding = "onnx") -> Tolerance:
    """Return what a model is held to: integers are equal but for ties, on every board and on grids of every width.

    A TFLite model is held to LiteRT's: to its reference kernels exactly with their rounding, to others within a step.
    """
    return Tolerance(lsb=int(model is not None and is_tflite(model) and rounding != "tflite"))
