"""ai.onnx.ml: classical models, written as the ONNX operators that they are made of.

The only kernels are the traversal of a tree ensemble, and libsvm's coupling of
pairwise probabilities. Semantics where the standard is silent: onnxruntime's.
"""

from mtool.frontend.classical.decomposition import Classical
from mtool.frontend.classical.encoders import ENCODERS
from mtool.frontend.classical.linear import LINEAR
from mtool.frontend.classical.svm import SVM
from mtool.frontend.classical.trees import TREES

CLASSICAL: dict[str, Classical] = {**ENCODERS, **LINEAR, **SVM, **TREES}
"""Operators of ai.onnx.ml, by name."""

__all__ = ["CLASSICAL"]
