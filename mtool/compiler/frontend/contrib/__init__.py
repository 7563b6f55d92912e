"""onnxruntime's own operators (com.microsoft), written as the ONNX operators that they are made of.

Those of the QOperator format, which have a scale and a zero point for each operand, are in qoperators.py.
"""

from mtool.compiler.frontend.contrib.attention import ATTENTION
from mtool.compiler.frontend.contrib.dynamic import DYNAMIC
from mtool.compiler.frontend.contrib.fused import FUSED, Contrib

CONTRIB: dict[tuple[str, str], Contrib] = {
    **{("com.microsoft", name): written for name, written in {**ATTENTION, **DYNAMIC, **FUSED}.items()},
    ("", "SimplifiedLayerNormalization"): FUSED["SimplifiedLayerNormalization"],
}
"""Operators by domain and name; onnxruntime's optimiser writes one of its own into ONNX's domain."""

__all__ = ["CONTRIB"]
