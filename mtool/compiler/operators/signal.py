"""TensorFlow Lite Micro's Signal library on integers: windows, energies, filter banks, gains, logarithms.

Each operator is one C template with the library's exact arithmetic. Source: signal/src (Apache-2.0), by file name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.lowering import Lowering, by_template, template_node
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Infer, Operator
from mtool.compiler.operators.problems import OWN, Unsupported

_SIGNAL = ("mt_signal.h",)


class Shift(Attributes):
    """shift: the number of bits by which a product is shifted right, or an input left."""

    shift: int


class Log(Shift):
    """scale: the factor of the natural logarithm."""

    scale: int


class AutoScale(Attributes):
    """strict: -32768 counts as 0, and the number of unused bits of 0 is 15, as in the microfrontend."""

    strict: bool = False


class Energy(Attributes):
    """The frequencies from `start` to `end` (exclusive); others have no energy."""

    start: int
    end: int


class SpectralSubtraction(Attributes):
    """The operator's options: factors with `bits` fractional bits, different ones for odd channels."""

    smoothing: int
    one_minus_smoothing: int
    alternate_smoothing: int
    alternate_one_minus_smoothing: int
    min_signal_remaining: int
    smoothing_bits: int
    bits: int
    clamping: int


class OverlapAdd(Attributes):
    """step: the number of samples between the starts of two frames."""

    step: int


def _shifted(ctx: Lowering, node: Node) -> dict[str, object]:
    return {"count": ctx.types[node.inputs[0]].count, "shift": Shift.of(node).shift}


def _unshifted(ctx: Lowering, node: Node) -> dict[str, object]:
    return {"count": ctx.types[node.inputs[0]].count, "shift": 0}


def _filter_bank(ctx: Lowering, node: Node) -> None:
    """filter_bank.cc: the energy of each channel, with rising and falling weights of its frequencies."""
    x, weights, unweights, *indices = node.inputs
    signed = any((ctx.constants[name] < 0).any() for name in (weights, unweights))
    values = {"channels": ctx.types[node.outputs[0]].count, "signed": signed}
    if not signed:  # a product of natural numbers is one instruction
        weights, unweights = (
            ctx.constant(f"{node.name}/weights", ctx.constants[name].astype(np.uint16)) for name in (weights, unweights)
        )
    inputs = {"x": x, "weights": weights, "unweights": unweights}
    inputs |= dict(zip(("starts", "offsets", "widths"), indices, strict=True))
    cost = (("", 12.0 * int(ctx.constants[indices[2]].sum())),)
    template_node(ctx, node, "signal_filter_bank", inputs, {"y": node.outputs[0]}, values, instructions=cost)


def table_of_log() -> Array:
    """Return log2(1 + f) - f in steps of 1/128 of f and of 2^-16, and another 0."""
    parts = np.arange(129) / 128
    above = np.rint(65536 * (np.log2(1 + parts) - parts)).astype(np.uint16)
    return np.append(above, np.uint16(0))


def _log(ctx: Lowering, node: Node) -> None:
    """filter_bank_log.cc: scaled natural logarithms."""
    attrs = Log.of(node)
    table = ctx.constant(f"{node.name}/table", table_of_log())
    values = {"count": ctx.types[node.inputs[0]].count, "shift": attrs.shift, "scale": attrs.scale}
    template_node(
        ctx, node, "signal_log", {"x": node.inputs[0], "table": table}, {"y": node.outputs[0]}, values,
        headers=_SIGNAL, instructions=(("", 40.0 * ctx.types[node.inputs[0]].count),),
    )  # fmt: skip


def _overlap(ctx: Lowering, node: Node) -> dict[str, object]:
    *outer, frames, size = ctx.types[node.inputs[0]].shape
    step = OverlapAdd.of(node).step
    return {"rows": math.prod(outer), "frames": frames, "size": size, "step": step, "keep": size - step}


def _as(*dtypes: DType) -> Infer:
    """Infer outputs with the first input's shape."""
    return lambda attrs, inputs: [TensorType(dtype, inputs[0].shape) for dtype in dtypes]


def _joined(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, OverlapAdd)
    kind, rest = inputs
    *outer, frames, _ = kind.shape
    return TensorType(kind.dtype, (*outer, frames * attrs.step)), rest


# window.cc: x * window >> shift, saturated, for each window.
_WINDOW = by_template(
    "signal_window", "x window", "y",
    lambda ctx, node: {**_shifted(ctx, node), "length": ctx.types[node.inputs[1]].shape[0]},
    cost=7, overwrites={"y": "x"},
)  # fmt: skip
# fft_auto_scale.cc: x shifted left by the number of unused bits.
_AUTO_SCALE = by_template(
    "signal_auto_scale", "x", "y scale_bits",
    lambda ctx, node: {**_unshifted(ctx, node), "strict": AutoScale.of(node).strict}, cost=13, headers=_SIGNAL,
)  # fmt: skip
# energy.cc: the sum of the squares of a complex number's parts.
_ENERGY = by_template(
    "signal_energy", "x", "y",
    lambda ctx, node: {"count": ctx.types[node.outputs[0]].count, "energy": Energy.of(node)}, cost=4,
)  # fmt: skip
# filter_bank_square_root.cc: rounded square roots, shifted back by the shift of the transform's input.
_SQUARE_ROOT = by_template("signal_square_root", "x scale_bits", "y", _unshifted, cost=133, headers=_SIGNAL)
# filter_bank_spectral_subtraction.cc: the signal less an estimate of the noise, which is a state.
_SUBTRACTION = by_template(
    "signal_spectral_subtraction", "x noise", "y next",
    lambda ctx, node: {"count": ctx.types[node.inputs[0]].count, "options": SpectralSubtraction.of(node)}, cost=33,
    overwrites={"next": "noise"},
)  # fmt: skip
# pcan_argc_fixed.cc: a gain that depends on the noise, and compression of large values.
_PCAN = by_template("signal_pcan", "x noise gains", "y", _shifted, cost=25, headers=_SIGNAL, overwrites={"y": "x"})
# overlap_add.cc: the sum of overlapping frames; the part for the next call is kept.
_OVERLAP_ADD = by_template("signal_overlap_add", "x rest", "y next", _overlap, cost=8, overwrites={"next": "rest"})


# SignalRfft, SignalIrfft: the fast Fourier transforms of real numbers of TensorFlow Lite Micro's Signal library.
#
# They have KISS FFT's arithmetic, which rounds and halves at each stage, on 16- and 32-bit integers and floats.
# Source: signal/micro/kernels/rfft.cc, irfft.cc; kissfft's kiss_fft.c, tools/kiss_fftr.c.

RADICES = (2, 3, 4, 5)
"""The supported stages."""

_SUFFIXES = {DType.INT16: "i16", DType.INT32: "i32", DType.FLOAT32: "f32"}


class Transform(Attributes):
    """length: the transform's number of real numbers, which is even."""

    length: int


def radices_of(length: int) -> tuple[int, ...]:
    """Return the stages of a complex transform, as KISS FFT's kf_factor."""
    radices, radix, rest, most = [], 4, length, math.isqrt(length)
    while rest > 1:
        while rest % radix:
            radix = {4: 2, 2: 3}.get(radix, radix + 2)
            if radix > most:
                radix = rest
        rest //= radix
        radices.append(radix)
    return tuple(radices)


def points_of(phases: Sequence[float], dtype: DType) -> Array:
    """Return points of the unit circle as pairs: rounded with ties upwards, or floats; cosines are the C library's."""
    pairs = np.asarray([(math.cos(phase), math.sin(phase)) for phase in phases], np.float64).reshape(-1)
    if dtype.is_float:
        return pairs.astype(np.float32)
    most = np.iinfo(dtype.numpy).max
    return np.asarray(np.floor(0.5 + most * pairs), dtype.numpy)


def _tables(ctx: Lowering, node: Node, half: int, dtype: DType, sign: float) -> dict[str, str]:
    twiddles = [sign * (2 * math.pi * n / half) for n in range(half)]
    turns = [sign * (math.pi * ((n + 1) / half + 0.5)) for n in range(half // 2)]
    return {
        "twiddles": ctx.constant(f"{node.name}/twiddles", points_of(twiddles, dtype)),
        "turns": ctx.constant(f"{node.name}/turns", points_of(turns, dtype)),
    }


def is_fast(length: int) -> bool:
    """Whether `spectra` can compute a transform of this length."""
    return length >= 4 and length % 2 == 0 and not {*radices_of(length // 2)} - {*RADICES}


def spectra(
    ctx: Lowering, node: Node, length: int, *, samples: int, frames: int = 1, step: int = 0, window: str = ""
) -> None:
    """Append the first halves of the transforms of a node's real numbers, as pairs.

    Args:
        ctx: the graph under construction.
        node: its input has signals one after the other; its output has `length` / 2 + 1 pairs for each frame.
        length: of a transform.
        samples: the elements of a frame; the others of a transform are 0.
        frames: of each signal.
        step: the distance of the starts of two frames.
        window: factors for the samples, a value's name; "": none.
    """
    kind = ctx.types[node.inputs[0]]
    size = kind.count * frames * (length + 2) // ctx.types[node.outputs[0]].count  # of a signal
    values = {
        **_stages(kind.dtype, length), "samples": samples, "frames": frames, "step": step, "size": size,
        "rows": kind.count // size, "window": window,
    }  # fmt: skip
    inputs = {"x": node.inputs[0], **({"window": window} if window else {})}
    inputs |= _tables(ctx, node, length // 2, kind.dtype, -1.0)
    headers = ("mt_fft.h", "mt_mve_fft.h")
    cost = _instructions(kind.dtype, length, frames * kind.count // size)
    template_node(ctx, node, "signal_rfft", inputs, {"y": node.outputs[0]}, values, headers=headers, instructions=cost)


_COSTS: Mapping[DType, tuple[tuple[str, float, float], ...]] = {
    DType.FLOAT32: (("has_mve", 3.3, 9.3), ("", 15.5, 8)),
    DType.INT16: (("has_mve", 1.8, 7.2), ("has_dsp", 10.6, 16), ("", 26, 20)),
    DType.INT32: (("has_dsp", 66, -31), ("", 86, 0)),
}
"""Instructions for each complex number in a stage, and in what is around all stages (counted: docs/preprocess.md)."""


def _instructions(dtype: DType, length: int, rows: int) -> tuple[tuple[str, float], ...]:
    half = length // 2
    return tuple((core, rows * half * (len(radices_of(half)) * cost + rest)) for core, cost, rest in _COSTS[dtype])


def _stages(dtype: DType, length: int) -> dict[str, Any]:
    most = 0 if dtype.is_float else dtype.limits[1]
    shares = {p: str(most // p) if most else "" for p in RADICES}
    return {"s": _SUFFIXES[dtype], "length": length, "radices": radices_of(length // 2), "shares": shares}


def _rfft(ctx: Lowering, node: Node) -> None:
    spectra(ctx, node, Transform.of(node).length, samples=ctx.types[node.inputs[0]].shape[-1])


def _irfft(ctx: Lowering, node: Node) -> None:
    kind, length = ctx.types[node.inputs[0]], Transform.of(node).length
    values = {**_stages(kind.dtype, length), "rows": math.prod(kind.shape[:-1])}
    inputs = {"x": node.inputs[0], **_tables(ctx, node, length // 2, kind.dtype, 1.0)}
    template_node(
        ctx, node, "signal_irfft", inputs, {"y": node.outputs[0]}, values,
        scratch=length * kind.dtype.size, scratch_type=kind.dtype.c, headers=("mt_fft.h",),
        instructions=_instructions(kind.dtype, length, values["rows"]),
    )  # fmt: skip


def _transform_outputs(more: int) -> Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]:
    def outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
        assert isinstance(attrs, Transform)
        (kind,) = inputs
        return (TensorType(kind.dtype, (*kind.shape[:-1], attrs.length + more)),)

    return outputs


# Checks: a model's file may have any inputs and attributes, and the C does not check them.


MIN_GAINS = 125  # four numbers for each of 32 bits, less the first three
_TYPES = {
    "Window": (DType.INT16, DType.INT16), "FftAutoScale": (DType.INT16,), "Energy": (DType.INT16,),
    "FilterBank": (DType.UINT32, *[DType.INT16] * 5), "FilterBankSquareRoot": (DType.UINT64, DType.INT32),
    "FilterBankSpectralSubtraction": (DType.UINT32, DType.UINT32),
    "PCAN": (DType.UINT32, DType.UINT32, DType.INT16), "FilterBankLog": (DType.UINT32,),
}  # fmt: skip
_MAX_OPTIONS = {"shift": 63, "smoothing_bits": 31, "bits": 63}


def _check(node: OnnxNode) -> None:
    """Check a node's types, shapes, attributes and tables.

    Raises:
        Unsupported: the C would read or write outside a tensor, or is not defined.
    """
    name = node.op.removeprefix("Signal")
    kinds = [node.kind(value) for value in node.inputs]
    expected = _TYPES.get(name)
    if expected is not None and tuple(kind.dtype for kind in kinds) != expected:
        actual = ", ".join(map(str, kinds))
        raise Unsupported(f"its inputs are {actual}; expected {', '.join(kind.name.lower() for kind in expected)}")
    for key, most in _MAX_OPTIONS.items():
        most = 31 if name in ("Window", "FilterBankLog") else most
        if not 0 <= node.attrs.get(key, 0) <= most:
            raise Unsupported(f"its option {key!r} is {node.attrs[key]}; expected 0 to {most}")
    shapes = [kind.shape for kind in kinds]
    if name == "Window" and (len(shapes[1]) != 1 or not shapes[1][0] or shapes[0][-1:] != shapes[1]):
        raise Unsupported(f"its window {list(shapes[1])} does not fit its input {list(shapes[0])}")
    if name in ("Rfft", "Irfft"):
        _check_transform(node, kinds[0], name == "Rfft")
    if name == "Energy" and not (
        kinds[0].count % 2 == 0 and 0 <= node.attrs["start"] <= node.attrs["end"] <= kinds[0].count // 2
    ):
        raise Unsupported(f"its frequencies are {node.attrs['start']} to {node.attrs['end']} of {kinds[0].count / 2:g}")
    if name == "FilterBankSquareRoot" and kinds[1].count != 1:
        raise Unsupported(f"its scale bits have shape {list(shapes[1])}; expected one number")
    is_pair = name in ("FilterBankSpectralSubtraction", "PCAN")
    if (is_pair and shapes[0] != shapes[1]) or (name == "PCAN" and kinds[2].count < MIN_GAINS):
        raise Unsupported(f"the shapes of its inputs do not match: {', '.join(str(list(shape)) for shape in shapes)}")
    if name == "FilterBank":
        _check_bank(node, kinds[0].count)
    if name == "OverlapAdd" and not 0 < node.attrs["step"] <= shapes[0][-1] - shapes[1][-1]:
        raise Unsupported(f"its step {node.attrs['step']} does not fit its inputs")


def _check_transform(node: OnnxNode, kind: TensorType, is_forward: bool) -> None:
    length, size = node.attrs["length"], kind.shape[-1] if kind.shape else 0
    if kind.dtype not in _SUFFIXES:
        raise Unsupported(f"its input is {kind.dtype.name.lower()}; expected int16, int32 or float32")
    if not is_fast(length) or length > 2**20:
        raise Unsupported(f"its transform has {length} elements; expected twice a product of 2s, 3s and 5s")
    if not (0 < size <= length if is_forward else size == length + 2):
        expected = f"at most {length}" if is_forward else f"{length + 2}"
        raise Unsupported(f"its input has {size} elements for a transform of {length}; expected {expected}")


def _check_bank(node: OnnxNode, count: int) -> None:
    roles = ("weights", "unweights", "starts", "offsets", "widths")
    tables = [node.state.value_of(node.inputs[n], role).reshape(-1).astype(int) for n, role in enumerate(roles, 1)]
    weights, unweights, starts, offsets, widths = tables
    if not starts.size == offsets.size == widths.size > 1:
        sizes = f"{starts.size}, {offsets.size} and {widths.size}"
        raise Unsupported(f"it has {sizes} positions; expected the number of channels and one more each")
    outside = (starts < 0) | (offsets < 0) | (starts + widths > count)
    outside |= offsets + widths > min(weights.size, unweights.size)
    if (outside & (widths > 0)).any():
        raise Unsupported(
            f"its channel {int(np.argmax(outside & (widths > 0)))} reads outside its input or its weights"
        )


# Biquad: sections of a filter of second order, as scipy.signal.sosfilt (transposed direct form II), with their states.
_BIQUAD = by_template(
    "biquad", "x sections state", "y next",
    lambda ctx, node: {"count": ctx.types[node.inputs[0]].count, "sections": ctx.types[node.inputs[1]].shape[0]},
    overwrites={"y": "x", "next": "state"},
)  # fmt: skip


def _check_biquad(node: OnnxNode) -> None:
    kinds = [node.kind(value) for value in node.inputs]
    shapes = [kind.shape for kind in kinds]
    sections = shapes[1][0] if shapes[1] else 0
    if len(shapes[0]) != 1 or not sections or shapes[1:] != [(sections, 6), (sections, 2)]:
        raise Unsupported(f"the shapes of its inputs do not match: {', '.join(str(list(shape)) for shape in shapes)}")
    if {kind.dtype for kind in kinds} != {DType.FLOAT32}:
        raise Unsupported(f"its inputs are {', '.join(map(str, kinds))}; expected float32")


OPERATORS = (Operator(
    "Biquad", domain=OWN, infer=lambda attrs, kinds: [kinds[0], kinds[2]], check=_check_biquad, lower=_BIQUAD,
), *(
    Operator(f"Signal{name}", domain=OWN, attributes=attributes, infer=infer, check=_check, lower=lower)
    for name, lower, infer, attributes in (
        ("Window", _WINDOW, _as(DType.INT16), Shift),
        ("FftAutoScale", _AUTO_SCALE, lambda attrs, kinds: [kinds[0], TensorType(DType.INT32, ())], AutoScale),
        ("Energy", _ENERGY, lambda attrs, kinds: [TensorType(DType.UINT32, (kinds[0].count // 2,))], Energy),
        ("FilterBank", _filter_bank, lambda attrs, k: [TensorType(DType.UINT64, (k[3].count - 1,))], Attributes),
        ("FilterBankSquareRoot", _SQUARE_ROOT, _as(DType.UINT32), Attributes),
        ("FilterBankSpectralSubtraction", _SUBTRACTION, _as(DType.UINT32, DType.UINT32), SpectralSubtraction),
        ("PCAN", _PCAN, _as(DType.UINT32), Shift),
        ("FilterBankLog", _log, _as(DType.INT16), Log),
        ("OverlapAdd", _OVERLAP_ADD, _joined, OverlapAdd),
        ("Rfft", _rfft, _transform_outputs(2), Transform),
        ("Irfft", _irfft, _transform_outputs(0), Transform),
    )
))  # fmt: skip
