"""Operators of TensorFlow Lite Micro's Signal library on integers: windows, energies, filter banks, gains, logarithms.

Each is one C template with that library's arithmetic, to the bit. Source: signal/src (Apache-2.0), by the file's name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator
from mtool.compiler.operators.templates import template_node

_SIGNAL = ("mt_signal.h",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Attributes):
    """shift: by how many bits a product is shifted to the right, or an input to the left."""

    shift: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Shift):
    """scale: of the natural logarithm."""

    scale: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy(Attributes):
    """The frequencies from `start` to before `end`; the others have no energy."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectralSubtraction(Attributes):
    """The options of the operator: factors of `bits` bits behind the point, other ones for odd channels."""

    smoothing: int
    one_minus_smoothing: int
    alternate_smoothing: int
    alternate_one_minus_smoothing: int
    min_signal_remaining: int
    smoothing_bits: int
    bits: int
    clamping: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapAdd(Attributes):
    """step: how many samples a frame begins behind the one before."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftValues(Values):
    """count: elements; shift: bits."""

    count: int
    shift: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowValues(ShiftValues):
    """length: of the window."""

    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogValues(ShiftValues):
    """scale: of the logarithm."""

    scale: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyValues(Values):
    """count: frequencies; energy: the attributes."""

    count: int
    energy: Energy


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBankValues(Values):
    """channels: of the output; signed: a weight is below 0."""

    channels: int
    signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectralSubtractionValues(Values):
    """count: channels; options: the attributes."""

    count: int
    options: SpectralSubtraction


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapAddValues(Values):
    """rows: signals; frames: of each; size, step: of a frame; keep: what lies behind its step."""

    rows: int
    frames: int
    size: int
    step: int
    keep: int


def _window(ctx: Lowering, node: Node) -> None:
    """window.cc: x * window >> shift, saturated; a window after the other."""
    x, window = node.inputs
    values = WindowValues(count=ctx.types[x].count, length=ctx.types[window].shape[0], shift=Shift.of(node).shift)
    template_node(
        ctx, node, "signal_window", {"x": x, "window": window}, {"y": node.outputs[0]}, values,
        overwrites={"y": "x"},
    )  # fmt: skip


def _auto_scale(ctx: Lowering, node: Node) -> None:
    """fft_auto_scale.cc: x to the left by as many bits as are free."""
    y, scale_bits = node.outputs
    values = ShiftValues(count=ctx.types[node.inputs[0]].count)
    template_node(
        ctx, node, "signal_auto_scale", {"x": node.inputs[0]}, {"y": y, "scale_bits": scale_bits}, values,
        headers=_SIGNAL,
    )  # fmt: skip


def _energy(ctx: Lowering, node: Node) -> None:
    """energy.cc: the squares of both parts of a complex number, added up."""
    values = EnergyValues(count=ctx.types[node.outputs[0]].count, energy=Energy.of(node))
    template_node(ctx, node, "signal_energy", {"x": node.inputs[0]}, {"y": node.outputs[0]}, values)


def _filter_bank(ctx: Lowering, node: Node) -> None:
    """filter_bank.cc: the energies of each channel's frequencies, by weights that rise and fall."""
    x, weights, unweights, *indices = node.inputs
    signed = any((ctx.constants[name] < 0).any() for name in (weights, unweights))
    values = FilterBankValues(channels=ctx.types[node.outputs[0]].count, signed=signed)
    if not signed:  # a product of natural numbers is one instruction
        weights, unweights = (
            ctx.constant(f"{node.name}/weights", ctx.constants[name].astype(np.uint16)) for name in (weights, unweights)
        )
    inputs = {"x": x, "weights": weights, "unweights": unweights}
    inputs |= dict(zip(("starts", "offsets", "widths"), indices, strict=True))
    template_node(ctx, node, "signal_filter_bank", inputs, {"y": node.outputs[0]}, values)


def _square_root(ctx: Lowering, node: Node) -> None:
    """filter_bank_square_root.cc: rounded roots, shifted back by what the transform's input was shifted by."""
    x, scale_bits = node.inputs
    values = ShiftValues(count=ctx.types[x].count)
    template_node(
        ctx, node, "signal_square_root", {"x": x, "scale_bits": scale_bits}, {"y": node.outputs[0]}, values,
        headers=_SIGNAL,
    )  # fmt: skip


def _spectral_subtraction(ctx: Lowering, node: Node) -> None:
    """filter_bank_spectral_subtraction.cc: the signal less an estimate of the noise, which is kept."""
    x, noise = node.inputs
    values = SpectralSubtractionValues(count=ctx.types[x].count, options=SpectralSubtraction.of(node))
    template_node(
        ctx, node, "signal_spectral_subtraction", {"x": x, "noise": noise},
        {"y": node.outputs[0], "next": node.outputs[1]}, values, overwrites={"next": "noise"},
    )  # fmt: skip


def _pcan(ctx: Lowering, node: Node) -> None:
    """pcan_argc_fixed.cc: a gain by the noise, and a root of what is large."""
    x, noise, gains = node.inputs
    values = ShiftValues(count=ctx.types[x].count, shift=Shift.of(node).shift)
    template_node(
        ctx, node, "signal_pcan", {"x": x, "noise": noise, "gains": gains}, {"y": node.outputs[0]}, values,
        headers=_SIGNAL, overwrites={"y": "x"},
    )  # fmt: skip


def _log(ctx: Lowering, node: Node) -> None:
    """filter_bank_log.cc: scaled natural logarithms; the table has what log2(1 + f) is above f, for each 128th."""
    attrs = Log.of(node)
    parts = np.arange(129) / 128
    above = np.rint(65536 * (np.log2(1 + parts) - parts)).astype(np.uint16)
    table = ctx.constant(f"{node.name}/table", np.append(above, np.uint16(0)))
    values = LogValues(count=ctx.types[node.inputs[0]].count, shift=attrs.shift, scale=attrs.scale)
    template_node(
        ctx, node, "signal_log", {"x": node.inputs[0], "table": table}, {"y": node.outputs[0]}, values,
        headers=_SIGNAL,
    )  # fmt: skip


def _overlap_add(ctx: Lowering, node: Node) -> None:
    """overlap_add.cc: frames added up where they overlap; what reaches into the next call is kept."""
    x, rest = node.inputs
    *outer, frames, size = ctx.types[x].shape
    step = OverlapAdd.of(node).step
    values = OverlapAddValues(rows=math.prod(outer), frames=frames, size=size, step=step, keep=size - step)
    outputs = {"y": node.outputs[0], "next": node.outputs[1]}
    template_node(ctx, node, "signal_overlap_add", {"x": x, "rest": rest}, outputs, values, overwrites={"next": "rest"})


Lower = Callable[[Lowering, Node], None]
Types = Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]


def _own(lower: Lower, outputs: Types, attributes: type[Attributes] = Attributes) -> OwnOperator:
    return OwnOperator(Operator(lower, attributes), outputs)


def _as(*dtypes: DType) -> Types:
    """Outputs of the first input's shape."""
    return lambda attrs, inputs: [TensorType(dtype, inputs[0].shape) for dtype in dtypes]


def _joined(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, OverlapAdd)
    kind, rest = inputs
    *outer, frames, _ = kind.shape
    return TensorType(kind.dtype, (*outer, frames * attrs.step)), rest


OWN: Mapping[str, OwnOperator] = {
    "SignalWindow": _own(_window, _as(DType.INT16), Shift),
    "SignalFftAutoScale": _own(_auto_scale, lambda attrs, kinds: [kinds[0], TensorType(DType.INT32, ())]),
    "SignalEnergy": _own(_energy, lambda attrs, kinds: [TensorType(DType.UINT32, (kinds[0].count // 2,))], Energy),
    "SignalFilterBank": _own(_filter_bank, lambda attrs, kinds: [TensorType(DType.UINT64, (kinds[3].count - 1,))]),
    "SignalFilterBankSquareRoot": _own(_square_root, _as(DType.UINT32)),
    "SignalFilterBankSpectralSubtraction": _own(
        _spectral_subtraction, _as(DType.UINT32, DType.UINT32), SpectralSubtraction
    ),
    "SignalPCAN": _own(_pcan, _as(DType.UINT32), Shift),
    "SignalFilterBankLog": _own(_log, _as(DType.INT16), Log),
    "SignalOverlapAdd": _own(_overlap_add, _joined, OverlapAdd),
}
