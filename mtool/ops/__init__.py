"""The operators: what each ONNX operator becomes, and how each internal operator becomes C.

An operator is a file or a small package of this folder; it stands in one of the two lists below.
"""

from mtool.ops import concat, conv2d, dense, elementwise, loop, movement, pool2d, quantise, reduce, softmax
from mtool.ops.lowering import Lower
from mtool.ops.schedule import KernelOp

LOWERINGS: dict[str, Lower] = {
    op: lower
    for module in (conv2d, dense, elementwise, movement, pool2d, quantise, reduce, softmax)
    for op, lower in module.LOWERINGS.items()
}
"""Canonical ONNX operators, by name."""

KERNELS: dict[str, KernelOp] = {
    "concat": concat.KERNEL,
    "conv2d": conv2d.KERNEL,
    "dense": dense.KERNEL,
    "loop": loop.KERNEL,
    "pool2d": pool2d.KERNEL,
    "softmax": softmax.KERNEL,
}
"""Internal operators, by name."""
