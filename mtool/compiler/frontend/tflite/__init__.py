"""TFLite models: each operator as ONNX nodes, which the importer brings to their canonical forms."""

from mtool.compiler.frontend.tflite.model import load

__all__ = ["load"]
