"""Conv 22 with constant weights, one and two dimensions, grouped, float and integer: a conv2d kernel."""

from dataclasses import replace
from typing import Any

import numpy as np

from mtool.compiler.ir import DType, Node
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.operators import sliding_window
from mtool.compiler.operators.elementwise import FUSED_ACTIVATIONS, activated
from mtool.compiler.operators.epilogue import constant_value, epilogue_of, float_bias, integer_weights, is_constant
from mtool.compiler.operators.folding import CONVOLUTION
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator, integers, product
from mtool.compiler.operators.problems import MICROSOFT
from mtool.compiler.operators.qlinear import QLinear
from mtool.compiler.operators.window import (
    CONV,
    Convolution,
    check_windows_fit,
    convolution_form,
    four_pads,
    has_kernel,
    pair,
)


def _lower(ctx: Lowering, node: Node) -> None:
    x, w = node.inputs[0], node.inputs[1]
    b = node.inputs[2] if len(node.inputs) > 2 else ""
    constant = all(not value or is_constant(ctx, value) for value in (w, b))
    is_float = ctx.types[x].dtype is DType.FLOAT32
    if not constant or Convolution.of(node).rank > 2 or not is_float or not ctx.types[x].count:
        sliding_window.conv(ctx, node, x, w, b, node.outputs[0])
        return
    result = ctx.types[node.outputs[0]]
    integer = ctx.integers(x, wide=True)
    weights = integer_weights(ctx, w, 0)
    bias = float_bias(ctx, b, result.shape[1])
    if integer is not None and weights is not None and bias is not None:
        data, w_scale = weights
        source = integer.value
    elif not ctx.float_weights and weights is not None and weights[0].dtype == np.int8 and bias is not None:
        (data, w_scale), integer, source = weights, None, x
    else:
        found, integer = constant_value(ctx, w), None
        assert found is not None and bias is not None
        data, w_scale = found, None
        source = x
    if data.ndim == 3:  # one spatial dimension: a height of 1
        data = data[:, :, None, :]
    shape = ctx.types[source].shape
    if len(shape) == 3:
        source = ctx.view(node, source, (shape[0], shape[1], 1, shape[2]))
    nhwc = ctx.transpose(node, source, NHWC_OF_NCHW)
    four = (result.shape[0], *result.shape[1:]) if len(result.shape) == 4 else (*result.shape[:2], 1, result.shape[2])
    out_shape = (four[0], four[2], four[3], four[1])
    filters = np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    sums, inputs = epilogue_of(ctx, node, filters, bias, integer, w_scale, axis_number=3)
    output = ctx.value(f"{node.outputs[0]}.nhwc", DType.FLOAT32, out_shape)
    attrs = _in_two_dimensions(node, sums)
    ctx.node("conv2d", [nhwc, *inputs], [output], attrs, like=node)
    if len(result.shape) == 4:
        ctx.transpose(node, output, NCHW_OF_NHWC, node.outputs[0])
    else:
        ctx.view(node, ctx.transpose(node, output, NCHW_OF_NHWC), result.shape, node.outputs[0])


def _in_two_dimensions(node: Node, sums: WeightedSum) -> Conv2d:
    """Return what a kernel says of a convolution; one of one dimension has a height of 1."""
    attrs = Convolution.of(node)
    return Conv2d(
        kernel=pair(attrs.kernel, 1), strides=pair(attrs.strides, 1), dilations=pair(attrs.dilations, 1),
        pads=four_pads(attrs.pads), group=attrs.group,
        expr=sums.expr, acc_bound=sums.acc_bound, pad_value=sums.pad_value, float_bias=sums.float_bias,
    )  # fmt: skip


def _fits_filters(node: OnnxNode) -> bool:
    w = node.ins[1]
    return has_kernel(w, node.attrs) and node.is_absent_or(2, w[:1])


def _finish_fused(write: OnnxNode, value: str) -> None:
    """Add the residual, apply the attributes `activation` and `activation_params`, and give the result."""
    if write.input(3):
        value = write("Add", value, write.input(3))
    name, numbers = write.word("activation", ""), write.attrs.get("activation_params") or ()
    parameters = dict(zip(FUSED_ACTIVATIONS.get(name, ()), numbers, strict=False))
    write.give(activated(write, value, name, parameters))


def _attrs(write: OnnxNode) -> dict[str, Any]:
    return {key: value for key, value in write.attrs.items() if key not in ("activation", "activation_params")}


def _fused(write: OnnxNode) -> None:
    """FusedConv: a convolution, a residual, an activation."""
    _finish_fused(write, write(CONV, *[name for name in write.inputs[:3] if name], **_attrs(write)))


def _nhwc(write: OnnxNode) -> None:
    """NhwcConv, NhwcFusedConv: channels last, in the filters too."""
    rank = len(write.shape)
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    operands = [write("Transpose", write.input(index), perm=first) for index in (0, 1)]
    operands += [write.input(2)] * bool(write.input(2))
    _finish_fused(write, write("Transpose", write(CONV, *operands, **_attrs(write)), perm=last))


def _qlinear(parts: QLinear) -> None:
    inputs = [parts.dequantize(0), parts.dequantize(3, axis=0)]
    if parts.input(8):
        inputs.append(parts.bias(8, parts.inputs[1], parts.inputs[4]))
    parts.quantize(parts(CONV, *inputs, **parts.attrs), 6)


def _cases(draw: Draw, op: Operator) -> Case:
    """One to three spatial dimensions: groups, dilations, strides, asymmetric padding."""
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4, 4, 4, 4, 5)))
    spatial, channels = value.rank - 2, value.shape[1]
    if channels == 0:
        raise ValueError("no channels")
    kernel = [rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(spatial)]
    group = rng.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
    out = group * rng.choice((1, 1, 2, 3, 4))
    attrs: dict[str, Any] = {"group": group, "strides": [rng.choice((1, 1, 1, 2, 3)) for _ in kernel]}
    if rng.random() < 0.2:
        attrs["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["dilations"] = [rng.choice((1, 1, 1, 2)) for _ in kernel]
        pads = [rng.choice((0, 0, 1, 2)) for _ in range(2 * spatial)]
        attrs["pads"] = [min(p, (kernel[n % spatial] - 1) * 2) for n, p in enumerate(pads)]
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, attrs.get("dilations", [1] * spatial), strict=True)]
    pads = attrs.get("pads", [0] * 2 * spatial)
    if any(value.shape[2 + n] + pads[n] + pads[spatial + n] < span for n, span in enumerate(spans)):
        raise ValueError("its window does not fit")
    weights = draw.normal((out, channels // group, *kernel), (channels // group * np.prod(kernel)) ** -0.5)
    bias = [draw.normal((out,), 0.3)] if rng.random() < 0.6 else []
    return Case([value.name, weights, *bias], attrs)


def _fused_cases(draw: Draw, op: Operator) -> Case:
    drawn = _cases(draw, op)
    return replace(drawn, attrs={**drawn.attrs, "activation": draw.rng.choice(("Relu", "Tanh", "Sigmoid"))})


OPERATORS = (
    Operator(
        CONV, cases=_cases, attributes=Convolution, canonical=convolution_form, check=check_windows_fit,
        check_shapes=_fits_filters, folding=CONVOLUTION, lower=_lower,
    ),
    Operator("FusedConv", domain=MICROSOFT, cases=_fused_cases, expand=_fused),
    *(Operator(op, domain=MICROSOFT, cases=None, expand=_nhwc) for op in ("NhwcConv", "NhwcFusedConv")),
    Operator(
        "QLinearConv", cases=integers(_cases, "01yb", product), expand=QLinear.form(_qlinear), zero_point={0: 2}.get,
    ),
)  # fmt: skip
