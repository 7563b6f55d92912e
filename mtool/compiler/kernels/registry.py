"""The internal operators: how each becomes C.

Each is a package, laid out by instruction set: c99 (portable, the reference), integer (register tiles of 8-bit products
for cores without SIMD), f32 (float tiles for a Cortex-M's FPU), dsp (SIMD32), mve (Helium). No operator imports
another's package; what they share lies in mtool.compiler.kernels.
"""

from mtool.compiler.kernels import (
    concat,
    control,
    conv2d,
    dense,
    external,
    loop,
    matmul,
    moves,
    pool2d,
    softmax,
    template,
)
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.specification import Specification

KERNELS: dict[str, KernelOp] = {
    "branch": control.BRANCH,
    "concat": concat.KERNEL,
    "conv2d": conv2d.KERNEL,
    "dense": dense.KERNEL,
    "external": external.KERNEL,
    "loop": loop.KERNEL,
    "matmul": matmul.KERNEL,
    "pool2d": pool2d.KERNEL,
    "rounds": control.ROUNDS,
    "softmax": softmax.KERNEL,
    "template": template.KERNEL,
}
"""Internal operators that become C, by name."""

SPECIFICATIONS: dict[str, Specification] = {
    **{name: kernel.specification for name, kernel in KERNELS.items()},
    "transpose": moves.TRANSPOSE,
    "view": moves.VIEW,
}
"""The specification of each internal kind, by its name."""
