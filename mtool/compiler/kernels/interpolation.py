"""Tables of 16 bits with straight lines between their points, which integer Softmax of int16 reads.

Sources: tensorflow/lite/kernels/internal/common.h (LUTPopulate), reference/softmax.h (SoftmaxInt16).
"""

from collections.abc import Callable

import numpy as np

from mtool.compiler.ir.types import Array

STEPS = 512  # pieces of a table, of 128 arguments each
LOW, HIGH = -(2**15), 2**15 - 1


def away(values: Array) -> Array:
    """Return whole numbers, ties away from zero."""
    whole: Array = np.sign(values) * np.floor(np.abs(values) + 0.5)
    return whole


def exponentials() -> Array:
    """Return the exponentials of -10 to 0."""
    unit = 10.0 / 65535
    return _table(np.exp, unit * (LOW - HIGH), 0.0)


def reciprocals() -> Array:
    """Return 1 / (1 + x) of 0 to 1."""
    return _table(lambda x: 1 / (1 + x), 0.0, 1.0 / 65535 * (HIGH - LOW))


def _table(function: Callable[[Array], Array], least: float, most: float) -> Array:
    """Return 513 points of a function from `least` to `most`, moved so that the middles between them are near, too."""
    step = (most - least) / STEPS
    at = least + np.arange(STEPS) * step
    after = least + (np.arange(STEPS) + 1) * step
    unit = 65536 / (2.0 / 65535 * 32767 + 2.0 / 65535 * 32768)
    value, middle, behind = (function(inputs) * unit for inputs in (at, at + step / 2, after))
    bias = away((away((behind + away(value)) / 2) - away(middle)) / 2)
    points = np.append(away(value) - bias, away(function(np.asarray([most])) * unit))
    table: Array = np.clip(points, LOW, HIGH).astype(np.int32)
    return table
