"""TFLite models: each operator as ONNX nodes, which the importer brings to their canonical forms."""

from mtool.frontend.tflite.model import load
from mtool.frontend.tflite.schema import IDENTIFIER

__all__ = ["IDENTIFIER", "load"]
