"""From a model file to a Graph of canonical ONNX operators with static shapes.

The importer is loaded together with the first model: a caller that only builds options, or checks a file's format,
does not need it.
"""

from typing import TYPE_CHECKING

from mtool.base import exports
from mtool.compiler.frontend.options import ModelOptions, Pairs

if TYPE_CHECKING:
    from mtool.compiler.frontend.files import load, run_time_sizes
    from mtool.compiler.frontend.model_file import is_tflite
    from mtool.compiler.frontend.onnx_file import from_proto

__all__ = ["ModelOptions", "Pairs", "from_proto", "is_tflite", "load", "run_time_sizes"]
__getattr__ = exports.getter(__name__, exports.modules_by_name(__file__))
