"""From a model file to a Graph of canonical ONNX operators with static shapes."""

from mtool.frontend.files import is_tflite, load
from mtool.frontend.given import Given, Pairs
from mtool.frontend.onnx_file import from_proto

__all__ = ["Given", "Pairs", "from_proto", "is_tflite", "load"]
