"""From a model file to a Graph of canonical ONNX operators with static shapes.

The importer is loaded together with the first model: a caller that only builds options, or checks a file's format,
does not need it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mtool.compiler.frontend.options import ModelOptions, Pairs

if TYPE_CHECKING:
    from mtool.compiler.frontend.files import load, run_time_sizes
    from mtool.compiler.frontend.model_file import is_tflite
    from mtool.compiler.frontend.onnx_file import from_proto

__all__ = ["ModelOptions", "Pairs", "from_proto", "is_tflite", "load", "run_time_sizes"]

_MODULES = {"from_proto": "onnx_file", "is_tflite": "model_file", "load": "files", "run_time_sizes": "files"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mtool.compiler.frontend' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mtool.compiler.frontend.{_MODULES[name]}"), name)
