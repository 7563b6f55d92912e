"""SignalRfft, SignalIrfft: the fast Fourier transforms of real numbers of TensorFlow Lite Micro's Signal library.

They have the arithmetic of KISS FFT, which rounds and halves at each stage, on integers of 16 and 32 bits and floats.
Source: signal/micro/kernels/rfft.cc, irfft.cc; kissfft's kiss_fft.c, tools/kiss_fftr.c.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator
from mtool.compiler.operators.templates import template_node

RADICES = (2, 3, 4, 5)
"""The stages that there are."""

_SUFFIXES = {DType.INT16: "i16", DType.INT32: "i32", DType.FLOAT32: "f32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(Attributes):
    """length: how many real numbers the transform has; an even number."""

    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformValues(Values):
    """The template's variables.

    s: the suffix of the functions in mt_fft.h.
    rows: how many transforms.
    length: real numbers of each.
    samples: how many of them the input has; the others are 0.
    radices: the stages, from the outermost one in.
    shares: 1/p in fixed point, by p; empty: floats, which are not scaled.
    """

    s: str
    rows: int
    length: int
    samples: int
    radices: tuple[int, ...]
    shares: Mapping[int, str]


def radices_of(length: int) -> tuple[int, ...]:
    """Return the stages of a transform of complex numbers, as kf_factor of KISS FFT finds them."""
    found, radix, rest, most = [], 4, length, math.isqrt(length)
    while rest > 1:
        while rest % radix:
            radix = {4: 2, 2: 3}.get(radix, radix + 2)
            if radix > most:
                radix = rest
        rest //= radix
        found.append(radix)
    return tuple(found)


def _points(phases: Sequence[float], dtype: DType) -> Array:
    """Return points of the unit circle, as pairs: rounded with ties upwards, or floats; cosines of C's own library."""
    pairs = np.asarray([(math.cos(phase), math.sin(phase)) for phase in phases], np.float64).reshape(-1)
    if dtype.is_float:
        return pairs.astype(np.float32)
    most = np.iinfo(dtype.numpy).max
    return np.asarray(np.floor(0.5 + most * pairs), dtype.numpy)


def _tables(ctx: Lowering, node: Node, half: int, dtype: DType, sign: float) -> dict[str, str]:
    twiddles = [sign * (2 * math.pi * n / half) for n in range(half)]
    turns = [sign * (math.pi * ((n + 1) / half + 0.5)) for n in range(half // 2)]
    return {
        "twiddles": ctx.constant(f"{node.name}/twiddles", _points(twiddles, dtype)),
        "turns": ctx.constant(f"{node.name}/turns", _points(turns, dtype)),
    }


def _lower(inverse: bool) -> Callable[[Lowering, Node], None]:
    def lower(ctx: Lowering, node: Node) -> None:
        kind, length = ctx.types[node.inputs[0]], Transform.of(node).length
        most = 0 if kind.dtype.is_float else kind.dtype.limits[1]
        samples = kind.shape[-1]
        values = TransformValues(
            s=_SUFFIXES[kind.dtype],
            rows=math.prod(kind.shape[:-1]),
            length=length,
            samples=samples,
            radices=radices_of(length // 2),
            shares={p: str(most // p) if most else "" for p in RADICES},
        )
        inputs = {"x": node.inputs[0], **_tables(ctx, node, length // 2, kind.dtype, 1.0 if inverse else -1.0)}
        scratch = length * kind.dtype.size if inverse else 0
        template_node(
            ctx, node, "signal_irfft" if inverse else "signal_rfft", inputs, {"y": node.outputs[0]}, values,
            scratch=scratch, scratch_type=kind.dtype.c if inverse else "", headers=("mt_fft.h",),
        )  # fmt: skip

    return lower


def _outputs(more: int) -> Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]:
    def outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
        assert isinstance(attrs, Transform)
        (kind,) = inputs
        return (TensorType(kind.dtype, (*kind.shape[:-1], attrs.length + more)),)

    return outputs


OWN: Mapping[str, OwnOperator] = {
    "SignalRfft": OwnOperator(Operator(_lower(False), Transform), _outputs(2)),
    "SignalIrfft": OwnOperator(Operator(_lower(True), Transform), _outputs(0)),
}
