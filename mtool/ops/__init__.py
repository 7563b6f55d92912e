"""The operators: what each ONNX operator becomes, and how each internal operator becomes C.

An operator is a file or a small package of this folder; it stands in one of the two lists below.
"""

from mtool.ops import (
    classical,
    concat,
    conv2d,
    conv_transpose,
    creation,
    dense,
    detection,
    direct,
    einsum,
    elementwise,
    fourier,
    indexing,
    loop,
    matmul,
    movement,
    normalise,
    ordering,
    pool2d,
    quantise,
    recurrent,
    reduce,
    rescale,
    resize,
    sampling,
    scatter,
    softmax,
    standardise,
    window,
)
from mtool.ops.lowering import Lower
from mtool.ops.schedule import KernelOp

_MODULES = (
    classical, conv2d, conv_transpose, creation, dense, detection, einsum, elementwise, fourier, indexing, movement,
    normalise, ordering, pool2d, quantise, recurrent, reduce, rescale, resize, sampling, scatter, softmax,
    standardise, window,
)  # fmt: skip

LOWERINGS: dict[str, Lower] = {op: lower for module in _MODULES for op, lower in module.LOWERINGS.items()}
"""Canonical ONNX operators, by name."""

KERNELS: dict[str, KernelOp] = {
    "concat": concat.KERNEL,
    "conv2d": conv2d.KERNEL,
    "dense": dense.KERNEL,
    "direct": direct.KERNEL,
    "loop": loop.KERNEL,
    "matmul": matmul.KERNEL,
    "pool2d": pool2d.KERNEL,
    "softmax": softmax.KERNEL,
}
"""Internal operators, by name."""
