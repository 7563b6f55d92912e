"""Tables of 16 bits with linear interpolation, for the Softmax of int16.

Sources: tensorflow/lite/kernels/internal/common.h (LUTPopulate), reference/softmax.h (SoftmaxInt16).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from mtool.compiler.ir.types import Array

STEPS = 512  # pieces of a table, of 128 arguments each
LOW, HIGH = -(2**15), 2**15 - 1


def away(values: Array) -> Array:
    """Round to integers, ties away from zero."""
    whole: Array = np.sign(values) * np.floor(np.abs(values) + 0.5)
    return whole


def exponentials() -> Array:
    """Return the exponentials of -10 to 0."""
    return with_lines(np.exp, 10.0 / 65535 * (LOW - HIGH), 0.0, _UNIT)


def reciprocals() -> Array:
    """Return 1 / (1 + x) of 0 to 1."""
    return with_lines(lambda x: 1 / (1 + x), 0.0, 1.0 / 65535 * (HIGH - LOW), _UNIT)


_UNIT = 65536 / (2.0 / 65535 * 32767 + 2.0 / 65535 * 32768)


def with_lines(function: Callable[[Array], Array], least: Any, most: Any, unit: Any) -> Array:
    """Return 513 points of a function from `least` to `most`, moved so that the middles between them are near, too.

    It is calculated in the type of the bounds; `unit` is the factor of its results.
    """
    step, numbers = (most - least) / STEPS, np.arange(STEPS + 1, dtype=np.result_type(least))
    ends = least + numbers * step
    with np.errstate(over="ignore"):
        value, middle, behind = (function(inputs) * unit for inputs in (ends[:-1], ends[:-1] + step / 2, ends[1:]))
        bias = away((away((behind + away(value)) / 2) - away(middle)) / 2)
        points = np.append(away(value) - bias, away(function(np.asarray([most])) * unit))
    table: Array = np.clip(np.nan_to_num(points), LOW, HIGH).astype(np.int32)
    return table
