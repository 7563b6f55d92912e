"""ai.onnx.ml: classical models, written as the ONNX operators that they are made of.

The only kernels are the traversal of a tree ensemble, and libsvm's coupling of
pairwise probabilities. Semantics where the standard is silent: onnxruntime's.
"""

from mtool.compiler.frontend.classical.decomposition import Classical
from mtool.compiler.frontend.classical.encoders import ENCODERS
from mtool.compiler.frontend.classical.linear import LINEAR
from mtool.compiler.frontend.classical.svm import SVM
from mtool.compiler.frontend.classical.trees import TREES

CLASSICAL: dict[str, Classical] = {**ENCODERS, **LINEAR, **SVM, **TREES}
"""Operators of ai.onnx.ml, by name."""

__all__ = ["CLASSICAL"]
