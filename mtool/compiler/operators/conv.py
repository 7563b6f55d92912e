"""Conv 22 with constant weights, one and two dimensions, grouped, float and integer: a conv2d kernel."""

import numpy as np

from mtool.compiler.ir import DType, Node
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.operators import sliding_window
from mtool.compiler.operators.epilogue import epilogue_of
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, Lowering, Operator
from mtool.compiler.operators.weights import constant_value, float_bias, integer_weights, is_constant
from mtool.compiler.operators.window import Convolution, four_pads, pair


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


LOWERINGS: dict[str, Operator] = {"Conv": Operator(_lower, Convolution)}
