"""ConvTranspose 22 with constant weights as a convolution: each phase of the stride is a set of output channels.

Output o gets x[i] * w[k] wherever i * stride + k - pad = o. With o + pad = q * stride + r only the taps
k = r + stride * t meet it, at i = q - t: a convolution over q, with stride * stride times the channels, whose results
are then interleaved (sub-pixel convolution: Shi et al., 2016, arXiv:1609.05158).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from mtool.compiler.ir import DType, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.operators import sliding_window
from mtool.compiler.operators.epilogue import constant_value, epilogue_of, float_bias, integer_weights, is_constant
from mtool.compiler.operators.folding import WINDOWS
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.window import Convolution, Pair, has_kernel, pair


@dataclass(frozen=True, slots=True)
class Phases:
    """One node in two dimensions: a single one has a height of 1."""

    kernel: Pair
    stride: Pair
    pad: Pair
    size: Pair
    out_size: Pair

    @classmethod
    def of(cls, node: Node, shape: tuple[int, ...], result: tuple[int, ...]) -> "Phases":
        """Read the attributes (pads: those before the input come first)."""
        attrs, spatial = Convolution.of(node), len(shape) - 2
        pads = attrs.pads[:spatial]
        return cls(
            pair(attrs.kernel, 1), pair(attrs.strides, 1), pair(pads, 0), pair(shape[2:], 1), pair(result[2:], 1)
        )  # fmt: skip

    @property
    def taps(self) -> Pair:
        """Taps of a phase along each dimension."""
        return -(-self.kernel[0] // self.stride[0]), -(-self.kernel[1] // self.stride[1])

    @property
    def whole(self) -> bool:
        """Whether each phase has all of its taps."""
        return all(size % stride == 0 for size, stride in zip(self.kernel, self.stride, strict=True))

    @property
    def quotients(self) -> Pair:
        """How many q there are along each dimension."""
        (out_h, out_w), (pad_h, pad_w), (stride_h, stride_w) = self.out_size, self.pad, self.stride
        return -(-(out_h + pad_h) // stride_h), -(-(out_w + pad_w) // stride_w)

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Padding of the convolution: before, then behind; negative where the last inputs belong to no output."""
        (before_h, before_w), (quotients_h, quotients_w) = ((tap - 1) for tap in self.taps), self.quotients
        return before_h, before_w, quotients_h - self.size[0], quotients_w - self.size[1]

    def filters(self, weights: Array) -> Array:
        """Return [phases * O, taps, taps, C] of weights [C, O, KH, KW]; taps that are not there are 0."""
        channels, outputs = weights.shape[:2]
        (taps_h, taps_w), (stride_h, stride_w) = self.taps, self.stride
        filled = np.zeros((channels, outputs, taps_h * stride_h, taps_w * stride_w), weights.dtype)
        filled[:, :, : self.kernel[0], : self.kernel[1]] = weights
        split = filled.reshape(channels, outputs, taps_h, stride_h, taps_w, stride_w)[:, :, ::-1, :, ::-1]
        made = split.transpose(3, 5, 1, 2, 4, 0).reshape(-1, taps_h, taps_w, channels)
        return np.ascontiguousarray(made)


def _lower(ctx: Lowering, node: Node) -> None:
    x, w, b = [*node.inputs, ""][:3]
    kind, result, attrs = ctx.types[x], ctx.types[node.outputs[0]], Convolution.of(node)
    constant = all(not value or is_constant(ctx, value) for value in (w, b))
    flat = attrs.rank <= 2 and attrs.group == 1 and all(step == 1 for step in attrs.dilations)
    if not constant or not flat or kind.dtype is not DType.FLOAT32:
        sliding_window.conv_transpose(ctx, node)
        return
    phases = Phases.of(node, kind.shape, result.shape)
    integer, weights = ctx.integers(x, wide=True), integer_weights(ctx, w, 1)
    is_integer = integer is not None and weights is not None
    # In float a tap that is not there is no multiplication by 0: infinity times 0 is not a number.
    if min(phases.pads) < 0 or not (is_integer or phases.whole):
        sliding_window.conv_transpose(ctx, node)
        return
    bias = float_bias(ctx, b, result.shape[1])
    found = weights[0] if is_integer and weights else constant_value(ctx, w)
    assert found is not None and bias is not None
    filters = phases.filters(found.reshape(*found.shape[:2], *phases.kernel))
    count = math.prod(phases.stride)
    sums, inputs = epilogue_of(
        ctx, node, filters, np.tile(bias, count), integer if is_integer else None,
        np.tile(weights[1], count) if is_integer and weights else None, axis_number=3,
    )  # fmt: skip
    source = integer.value if is_integer and integer else x
    four = ctx.view(node, source, (*kind.shape[:2], *phases.size)) if len(kind.shape) == 3 else source
    nhwc = ctx.transpose(node, four, NHWC_OF_NCHW)
    made = ctx.value(f"{node.outputs[0]}.phases", DType.FLOAT32, (kind.shape[0], *phases.quotients, filters.shape[0]))
    told = Conv2d(
        kernel=phases.taps, pads=phases.pads, macs=math.prod((*kind.shape, result.shape[1], *phases.kernel)),
        expr=sums.expr, acc_bound=sums.acc_bound, pad_value=sums.pad_value, float_bias=sums.float_bias,
    )  # fmt: skip
    ctx.node("conv2d", [nhwc, *inputs], [made], told, like=node)
    _interleave(ctx, node, phases, made)


def _interleave(ctx: Lowering, node: Node, phases: Phases, made: str) -> None:
    """Turn [N, QH, QW, SH * SW * O] into the output [N, O, OH, OW], without what lies in its padding."""
    output, result = node.outputs[0], ctx.types[node.outputs[0]].shape
    (quotients_h, quotients_w), (stride_h, stride_w) = phases.quotients, phases.stride
    apart = ctx.view(node, made, (result[0], quotients_h, quotients_w, stride_h, stride_w, result[1]))
    turned = ctx.transpose(node, apart, (0, 1, 3, 2, 4, 5))
    image = ctx.view(node, turned, (result[0], quotients_h * stride_h, quotients_w * stride_w, result[1]))
    image = ctx.transpose(node, image, NCHW_OF_NHWC)
    whole = (quotients_h * stride_h, quotients_w * stride_w)
    if len(result) == 3:
        image = ctx.view(node, image, (*result[:2], whole[1]), output if whole == phases.out_size else "")
    elif whole == phases.out_size:
        ctx.view(node, image, (), output)
    if whole != phases.out_size:
        sliding_window.crop(ctx, node, image, (0, 0, *Convolution.of(node).pads[: len(result) - 2]), output)


def _form(node: OnnxNode) -> None:
    """ConvTranspose: the padding that its output shape implies, split as the operator's text says."""
    spatial, result, kernel, attrs = node.shape[2:], node.result.shape[2:], node.kind(1).shape[2:], node.attrs
    rank = len(kernel)
    strides, dilations = attrs.get("strides") or (1,) * rank, attrs.get("dilations") or (1,) * rank
    extra, mode = attrs.get("output_padding") or (0,) * rank, attrs.get("auto_pad", "NOTSET")
    before = list((attrs.get("pads") or (0,) * 2 * rank)[:rank])
    if mode in ("SAME_UPPER", "SAME_LOWER") or "output_shape" in attrs:
        for i in range(rank):
            span = (kernel[i] - 1) * dilations[i] + 1
            total = max(strides[i] * (spatial[i] - 1) + extra[i] + span - result[i], 0)
            before[i] = total // 2 if mode == "SAME_UPPER" else total - total // 2
    made = Convolution(
        kernel=kernel, strides=tuple(strides), dilations=tuple(dilations), pads=tuple(before),
        group=attrs.get("group", 1),
    )  # fmt: skip
    node.emit(made)


def _fits_filters(node: OnnxNode) -> bool:
    x, w, group = node.ins[0], node.ins[1], node.attrs.get("group", 1)
    fits = has_kernel(w, node.attrs) and x[1] == w[0] and group > 0 and x[1] % group == 0
    return fits and node.is_absent_or(2, (w[1] * group,))


def _cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4)))
    channels = value.shape[1]
    group = rng.choice([g for g in (1, 1, 2, channels) if g and channels % g == 0])
    kernel = [rng.choice((1, 2, 3)) for _ in value.shape[2:]]
    strides = [rng.choice((1, 2)) for _ in kernel]
    pads = [rng.choice((0, 0, 1)) if kernel[n % len(kernel)] > 1 else 0 for n in range(2 * len(kernel))]
    attrs = {
        "group": group, "strides": strides, "pads": pads, "output_padding": [rng.randrange(s) for s in strides],
        "dilations": [rng.choice((1, 1, 2)) for _ in kernel],
    }  # fmt: skip
    return Case([value.name, draw.normal((channels, rng.randint(1, 3), *kernel))], attrs)


OPERATORS = (
    Operator(
        "ConvTranspose", cases=_cases, attributes=Convolution, canonical=_form, check_shapes=_fits_filters,
        folding=replace(WINDOWS, of_nothing=False), lower=_lower,
    ),
)  # fmt: skip
