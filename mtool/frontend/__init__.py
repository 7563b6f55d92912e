"""From a model file to a Graph of canonical ONNX operators with static shapes."""

from mtool.frontend.onnx_file import load

__all__ = ["load"]
