"""What a region for Ethos-U may hold: quantised operations that a TFLite file can say. Vela has the last word."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mtool.compiler.backends import quantized
from mtool.compiler.backends.ethos_u.vela import COMPILED
from mtool.compiler.backends.ethos_u.writing import activation_of, padding_of
from mtool.compiler.backends.interface import Operation, Pattern
from mtool.compiler.operators.movement import Pad
from mtool.compiler.operators.reduce import Axes
from mtool.compiler.operators.window import CONV, Pool

_BYTES = ("int8", "uint8")


def _constants(operation: Operation) -> str:
    x, weights = operation.operand(0), operation.operand(1)
    refused = quantized.weights_refused(operation, x.dtype)
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    if refused or bias is None:
        return refused
    products = np.asarray(x.scales) * np.asarray(weights.scales)
    fits = bias.quant is not None and np.allclose(bias.scales, products, rtol=1e-5, atol=0)
    return "" if fits else "its bias stands on another grid than its products"


def _activation(operation: Operation) -> str:
    return "" if activation_of(operation) else f"TFLite has no activation that clips at {operation.activation}"


def _padding(operation: Operation) -> str:
    is_named = padding_of(Pool.of(operation), operation.operand(0).shape, operation.output.shape) is not None
    return "" if is_named else "its padding is neither TFLite's SAME nor VALID"


def _one_grid(operation: Operation) -> str:
    return "" if all(one.quant == operation.output.quant for one in operation.variables) else "it changes the grid"


def _pair(operation: Operation) -> str:
    constant = any(one is not None and one.is_constant and not one.is_per_tensor for one in operation.inputs)
    return "a constant is on no grid" if constant else ""


def _pad(operation: Operation) -> str:
    attrs = Pad.of(operation)
    if len(operation.inputs) > 1 or attrs.value != operation.output.zero_point:
        return "it pads with something else than zeros"
    return "it cuts" if min(attrs.before, default=0) < 0 else ""


def _mean(operation: Operation) -> str:
    is_spatial = tuple(Axes.of(operation).axes) == (1, 2)
    return "" if is_spatial else "it is over other dimensions than height and width"


_MATRIX = (quantized.is_matrix, quantized.one_scale, _constants, _activation)
_IMAGES: dict[str, Any] = {"layout": "NHWC", "ranks": (4,)}
_KINDS: Mapping[str, tuple[tuple[Callable[[Operation], str], ...], dict[str, Any]]] = {
    CONV: ((_constants, _activation), {**_IMAGES, "groups": ("one", "channelwise")}),
    "Gemm": (_MATRIX, {"attributes": quantized.PLAIN_GEMM}),
    "MatMul": (_MATRIX, {}),
    "Pool": (
        (quantized.counts_no_padding, _padding, _activation),
        {**_IMAGES, "same_grid": True, "attributes": quantized.PLAIN_POOL},
    ),
    "Softmax": ((quantized.over_the_last, quantized.to_unit_grid), {}),
    "Add": ((_pair, _activation), {}),
    "Mul": ((_pair, _activation), {}),
    "Pad": ((_pad,), {"same_grid": True, "attributes": {"mode": "constant"}}),
    "ReduceMean": ((_mean,), {"ranks": (4,)}),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat"), ((_one_grid,), {})),
}
PATTERNS = (
    *(Pattern(kind, _BYTES, quantised=True, where=where, **more) for kind, (where, more) in _KINDS.items()),
    Pattern(COMPILED),
)
"""What is claimed: int8 and uint8, with one scale a tensor but for a convolution's weights."""
