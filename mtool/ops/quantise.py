"""QuantizeLinear and DequantizeLinear (ai.onnx 10 to newest), per tensor and per axis."""

import numpy as np

from mtool.errors import ModelError
from mtool.ir import DType, Node, Quant
from mtool.ir.expr import call
from mtool.ops.lowering import Dequantised, Lower, Lowering


def _parameters(ctx: Lowering, node: Node, value: str) -> Dequantised:
    scale, zero_point = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else ""
    if scale not in ctx.constants or (zero_point and zero_point not in ctx.constants):
        raise ModelError(f"{node.op} {node.name!r} has a scale or zero point that is computed at run time")
    scales = np.atleast_1d(ctx.constants[scale].astype(np.float32))
    if not np.isfinite(scales).all() or (scales <= 0).any():
        raise ModelError(f"{node.op} {node.name!r} has a scale that is not a positive number")
    points = np.zeros_like(scales, np.int32)
    if zero_point:
        points = np.broadcast_to(np.atleast_1d(ctx.constants[zero_point]).astype(np.int32), scales.shape)
    if scales.size == 1:
        return Dequantised(value, scales, points, None)
    rank = len(ctx.types[node.inputs[0]].shape)
    return Dequantised(value, scales, points, node.attrs.get("axis", 1) % rank)


def _note(ctx: Lowering, value: str, found: Dequantised) -> None:
    ctx.quant[value] = Quant(
        tuple(float(scale) for scale in found.scale), tuple(int(point) for point in found.zero_point), found.axis
    )


def _dequantize(ctx: Lowering, node: Node) -> None:
    found = _parameters(ctx, node, node.inputs[0])
    _note(ctx, node.inputs[0], found)
    _note(ctx, node.outputs[0], found)
    ctx.dequantise(node, found, node.outputs[0])


def _quantize(ctx: Lowering, node: Node) -> None:
    value, output = node.inputs[0], node.outputs[0]
    found = _parameters(ctx, node, output)
    _note(ctx, output, found)
    kind = ctx.types[output]
    inputs = [value]
    (element,) = ctx.operands([value], kind.shape)
    scale = ctx.parameter(found.scale, found.axis, DType.FLOAT32, inputs, node)
    zero_point = ctx.parameter(found.zero_point, found.axis, DType.INT32, inputs, node)
    ctx.loop(node, call("quantise", element, scale, zero_point, dtype=kind.dtype), inputs)


LOWERINGS: dict[str, Lower] = {"QuantizeLinear": _quantize, "DequantizeLinear": _dequantize}
