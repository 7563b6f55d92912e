"""The lowerings: what each ONNX operator becomes, in internal operators (mtool.ops).

An operator, or a family of them, is a file of this folder; it stands in the list below.
"""

from mtool.lowerings import (
    classical,
    control,
    conv,
    conv_transpose,
    creation,
    detection,
    einsum,
    elementwise,
    fourier,
    gemm,
    indexing,
    movement,
    normalise,
    ordering,
    pooling,
    quantise,
    recurrent,
    reduce,
    rescale,
    resize,
    sampling,
    scatter,
    sliding_window,
    softmax,
    standardise,
)
from mtool.lowerings.lowering import Operator

_MODULES = (
    classical, control, conv, conv_transpose, creation, detection, einsum, elementwise, fourier, gemm, indexing,
    movement, normalise, ordering, pooling, quantise, recurrent, reduce, rescale, resize, sampling, scatter,
    sliding_window, softmax, standardise,
)  # fmt: skip

LOWERINGS: dict[str, Operator] = {op: entry for module in _MODULES for op, entry in module.LOWERINGS.items()}
"""Canonical ONNX operators, by name."""
