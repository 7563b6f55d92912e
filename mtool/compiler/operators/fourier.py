"""DFT 20 and STFT 17: fast transforms of real numbers; others as sums over tables of the unit circle."""

import numpy as np

from mtool.compiler.ir import Attributes, Expr, Node, TensorType
from mtool.compiler.ir.expr import Reduction, axis, call, const, load
from mtool.compiler.ir.types import DType
from mtool.compiler.operators.folding import SLOW
from mtool.compiler.operators.lowering import AlongAxis, Lowering, accumulator
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import Unsupported
from mtool.compiler.operators.signal import is_fast, spectra


class DFT(AlongAxis):
    """A transform along `axis`.

    length: the transform's length; elements behind the input's end count as 0.
    onesided: half of the spectrum of real numbers; with `inverse`, real numbers from half of a spectrum.
    """

    length: int
    inverse: bool
    onesided: bool


class STFT(Attributes):
    """Transforms of frames of `length` elements, `step` apart."""

    step: int
    length: int


def _circle(ctx: Lowering, node: Node, length: int, dtype: DType, sign: float, scale: float) -> list[str]:
    """Return the factors of the input's real and imaginary part, for each part of the output."""
    angle = sign * 2 * np.pi * np.arange(length) / length
    cosine, sine = np.cos(angle) * scale, np.sin(angle) * scale
    tables = (np.stack([cosine, sine]), np.stack([-sine, cosine]))
    return [ctx.constant(f"{node.name}/circle", table.astype(dtype.numpy)) for table in tables]


def _is_fast(kind: TensorType, length: int) -> bool:
    """Whether the fast transform computes real numbers of a type."""
    return kind.dtype is DType.FLOAT32 and kind.shape[-1] == 1 and is_fast(length)


def _transform(ctx: Lowering, node: Node) -> None:
    """DFT: output k is the sum over n of x[n] * e^(-+2 pi i k n / length), over the input's elements."""
    kind, result, attrs = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]], DFT.of(node)
    is_last = attrs.axis == len(kind.shape) - 2 and attrs.onesided and not attrs.inverse
    if is_last and _is_fast(kind, attrs.length):
        spectra(ctx, node, attrs.length, samples=min(kind.shape[-2], attrs.length))
        return
    dim, rank, length = attrs.axis, len(kind.shape), attrs.length
    dtype = accumulator(kind.dtype)
    n = axis(rank)
    terms = min(kind.shape[dim], length)
    real_again = attrs.inverse and attrs.onesided
    tables = _circle(ctx, node, length, dtype, 1.0 if attrs.inverse else -1.0, 1 / length if attrs.inverse else 1)
    turn = axis(dim) * n % length
    inputs = [node.inputs[0], *tables]

    def part(number: int) -> Expr:
        index = [axis(d) for d in range(rank)]
        index[dim], index[-1] = n, const(number, DType.INT32)
        component = const(0, DType.INT32) if result.shape[-1] == 1 else axis(rank - 1)
        return call("mul", load(0, kind.dtype, tuple(index)), load(1 + number, dtype, (component, turn)))

    body = part(0) if kind.shape[-1] == 1 else call("add", part(0), part(1))
    if real_again:  # the other half of the spectrum is the conjugate: twice the real part, except at the ends
        terms = min(terms, length // 2 + 1)
        weight = np.full(terms, 2.0)
        weight[0] = 1
        if length % 2 == 0 and terms == length // 2 + 1:
            weight[-1] = 1
        inputs.append(ctx.constant(f"{node.name}/weight", weight.astype(dtype.numpy)))
        body = call("mul", body, load(3, dtype, (n,)))
    total = Expr("reduce", dtype, (body,), Reduction("add", ((rank, terms),)))
    ctx.loop(node, call("cast", total, dtype=result.dtype), inputs)


def _short_time(ctx: Lowering, node: Node) -> None:
    """STFT: frame f is the transform of the signal from f * step on, multiplied by the window."""
    signal, window = node.inputs[0], node.inputs[1]
    kind, result, attrs = ctx.types[signal], ctx.types[node.outputs[0]], STFT.of(node)
    if result.shape[2] == attrs.length // 2 + 1 and _is_fast(kind, attrs.length):
        spectra(ctx, node, attrs.length, samples=attrs.length, frames=result.shape[1], step=attrs.step, window=window)
        return
    length, dtype = attrs.length, accumulator(kind.dtype)
    n = axis(4)
    turn = axis(2) * n % length
    inputs = [signal, *_circle(ctx, node, length, dtype, -1.0, 1), *([window] if window else [])]

    def part(number: int) -> Expr:
        index = (axis(0), axis(1) * attrs.step + n, const(number, DType.INT32))
        sample = load(0, kind.dtype, index[: len(kind.shape)])
        return call("mul", sample, load(1 + number, dtype, (axis(3), turn)))

    whole = len(kind.shape) < 3 or kind.shape[2] == 1
    body = part(0) if whole else call("add", part(0), part(1))
    if window:
        body = call("mul", body, load(3, ctx.types[window].dtype, (n,)))
    total = Expr("reduce", dtype, (body,), Reduction("add", ((4, length),)))
    ctx.loop(node, call("cast", total, dtype=result.dtype), inputs)


def _has_parts(node: OnnxNode) -> bool:
    """Whether the last dimension has a real and an optional imaginary part."""
    x = node.ins[0]
    return len(x) >= 2 and x[-1] in (1, 2)


def _is_a_signal(node: OnnxNode) -> bool:
    """Whether the input is [batch, samples, 1 or 2] and the window has one dimension."""
    return len(node.ins[0]) == 3 and _has_parts(node) and len(node.ins[2] or (0,)) == 1


def _transform_form(node: OnnxNode) -> None:
    shape = node.shape
    inverse, onesided = bool(node.attrs.get("inverse")), bool(node.attrs.get("onesided"))
    axis = node.number(2, "axis") if node.input(2) else node.attrs.get("axis", 1 if node.version < 20 else -2)
    axis %= len(shape)
    if len(shape) < 2 or shape[-1] not in (1, 2):
        raise Unsupported(f"its input is {node.kind(0)}; expected a last dimension of 1 or 2")
    length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    if node.input(1):
        length = node.number(1, "dft_length")
    node.emit(DFT(axis=axis, length=length, inverse=inverse, onesided=onesided), inputs=node.inputs[:1])


def _short_time_form(node: OnnxNode) -> None:
    window = node.input(2)
    size = node.number(3, "frame_length") if node.input(3) else node.kind(window).shape[0]
    kind, bins = node.result, size // 2 + 1 if node.attrs.get("onesided", 1) else size
    node.state.types[node.outputs[0]] = TensorType(kind.dtype, (*kind.shape[:2], bins, 2))
    node.emit(STFT(step=node.number(1, "frame_step"), length=size), inputs=[node.inputs[0], window])


def _transform_cases(draw: Draw, op: Operator) -> Case:
    signal = draw.input(np.float32, (2, draw.rng.randint(4, 9), draw.rng.choice((1, 2))))
    axis, inverse = draw.constant(1, np.int64), draw.rng.randint(0, 1)
    return Case([signal.name, "", axis], {"inverse": inverse})


def _short_time_cases(draw: Draw, op: Operator) -> Case:
    signal = draw.input(np.float32, (2, 16, 1))
    return Case([signal.name, draw.constant(4, np.int64), draw.normal((8,))], {"onesided": draw.rng.randint(0, 1)})


OPERATORS = (
    Operator(
        "DFT", cases=_transform_cases, attributes=DFT, canonical=_transform_form, axis_ends=None,
        check_shapes=_has_parts, sizes=(1, 2), folding=SLOW.growing(), lower=_transform,
    ),
    Operator(
        "STFT", cases=_short_time_cases, attributes=STFT, canonical=_short_time_form, check_shapes=_is_a_signal,
        sizes=(1, 3), folding=SLOW.growing(), lower=_short_time,
    ),
)  # fmt: skip
