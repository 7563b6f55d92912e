"""From a model file to a Graph of canonical ONNX operators with static shapes."""

from mtool.frontend.files import is_tflite, load
from mtool.frontend.onnx_file import from_proto
from mtool.frontend.tflite import Rounding

__all__ = ["Rounding", "from_proto", "is_tflite", "load"]
