"""The scalar functions: for each its meaning (NumPy) and its C text, side by side.

Floating-point C is written for float32 (`expf`, `1.0f`), in which the 16-bit floats are computed too, and
for double. The `mt_` functions are inline functions of crt/include/mt_math.h and mt_scalar.h; of mt_half.h for the
types of 16 bits.
"""

from mtool.compiler.ir.scalar.evaluation import FUNCTIONS, evaluate, render
from mtool.compiler.ir.scalar.fixed16 import FIXED16
from mtool.compiler.ir.scalar.function import Function
from mtool.compiler.ir.scalar.rescaling import FixedRequantise, Requantise, Rescale, RescaleLong, RescalePair
from mtool.compiler.ir.scalar.text import (
    ADD,
    AND,
    ATOM,
    COMPARE,
    MUL,
    OR,
    SELECT,
    SHIFT,
    UNARY,
    Text,
    half,
    literal,
    loaded,
    stored,
)

__all__ = [
    "ADD",
    "AND",
    "ATOM",
    "COMPARE",
    "FIXED16",
    "FUNCTIONS",
    "MUL",
    "OR",
    "SELECT",
    "SHIFT",
    "UNARY",
    "FixedRequantise",
    "Function",
    "Requantise",
    "Rescale",
    "RescaleLong",
    "RescalePair",
    "Text",
    "evaluate",
    "half",
    "literal",
    "loaded",
    "render",
    "stored",
]
