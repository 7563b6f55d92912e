"""Operators in the integer arithmetic of TFLite's reference kernels, for results that are theirs byte for byte."""

from collections.abc import Callable

import numpy as np
from onnx import helper

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import (
    exact_elements,
    exact_pools,
    exact_products,
    exact_quotients,
    exact_sums,
    exact_tables,
    exact_wide,
)
from mtool.compiler.frontend.tflite.elementwise import beta_of
from mtool.compiler.frontend.tflite.fixed_point import exponentials
from mtool.compiler.frontend.tflite.rescaling import EIGHT_BITS
from mtool.compiler.frontend.tflite.translation import Translation

Translate = Callable[[Translation], None]


def _softmax(t: Translation) -> None:
    """SOFTMAX: gemmlowp's exponentials, of the difference to the largest, and its reciprocal of their sum."""
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.scale.size != 1 or out.dtype.name not in ("int8", "uint8", "int16"):
        raise Unsupported(f"its input is {x.dtype}, its output {out.dtype}")
    unit = 2.0 ** (-8 * out.dtype.itemsize)
    near = abs(float(out.scale[0]) - unit) <= (1e-3 * unit if out.dtype == np.int16 else 0)
    if not near or int(out.zero_point[0]) != int(np.iinfo(out.dtype).min) or not x.shape:
        raise Unsupported(f"its output does not stand on a grid of 1/{round(1 / unit)} from 0 on")
    powers = t.constant("exponentials", exponentials(beta_of(t) * float(x.scale[0])))
    to = helper.np_dtype_to_tensor_dtype(out.dtype)
    t.put(t.node("FixedSoftmax", [t.stored(0), powers], domain=OWN, to=to))


TRANSLATIONS: dict[str, Translate] = {
    **exact_products.TRANSLATIONS,
    **exact_sums.TRANSLATIONS,
    **exact_pools.TRANSLATIONS,
    **exact_quotients.TRANSLATIONS,
    **exact_tables.TRANSLATIONS,
    "SOFTMAX": exact_tables.narrow_or(exact_wide.softmax, _softmax),
    "QUANTIZE": exact_elements.quantize,
    "MAXIMUM": exact_elements.pick("Max"),
    "MINIMUM": exact_elements.pick("Min"),
    "CONCATENATION": exact_elements.concatenation,
    "RESIZE_BILINEAR": exact_elements.resize_bilinear,
}
"""Operators that are computed in integers if an operand is quantised; others may not round."""
