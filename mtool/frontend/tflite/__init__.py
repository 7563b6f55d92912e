"""TFLite models: each operator as ONNX nodes, which the importer brings to their canonical forms."""

from mtool.frontend.tflite.model import Rounding, load
from mtool.frontend.tflite.schema import IDENTIFIER

__all__ = ["IDENTIFIER", "Rounding", "load"]
