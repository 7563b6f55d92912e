"""From a model file to a Graph of canonical ONNX operators with static shapes."""

from mtool.frontend.onnx_file import from_proto, load

__all__ = ["from_proto", "load"]
