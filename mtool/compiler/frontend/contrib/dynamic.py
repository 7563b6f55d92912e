"""Products of integers that are scaled to floats, with operands that are quantised as they come, and weights in blocks.

MatMulIntegerToFloat, DynamicQuantizeMatMul, MatMulNBits, DynamicQuantizeLSTM (com.microsoft).
"""

import numpy as np
import onnx

from mtool.compiler.frontend.canonical import recurrent
from mtool.compiler.frontend.contrib.fused import Contrib
from mtool.compiler.frontend.decomposition import Decomposition
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.ir.types import Array


def _scaled(write: Decomposition, product: str, scale: str, bias: str) -> str:
    """Return an integer product as float, times a scale, plus a bias."""
    result = write("Mul", write("Cast", product, to=1), scale)
    return write("Add", result, bias) if bias else result


def integer_product(write: Decomposition, a: str, b: str, points: tuple[str, str]) -> str:
    """Return (a - a's zero point) x (b - b's zero point) as int32; an empty name is a zero point of 0."""
    operands = list(points)
    if operands[1] and not operands[0]:
        operands[0] = write.constant(0, write.dtype(a))
    while operands and not operands[-1]:
        operands.pop()
    return write("MatMulInteger", a, b, *operands)


def _to_float(write: Decomposition) -> None:
    """MatMulIntegerToFloat(A, B, A's scale, B's scale, A's zero point, B's zero point, bias)."""
    product = integer_product(write, write.input(0), write.input(1), (write.input(4), write.input(5)))
    write.give(_scaled(write, product, write("Mul", write.input(2), write.input(3)), write.input(6)))


def _dynamic(write: Decomposition) -> None:
    """DynamicQuantizeMatMul(A, B, B's scale, B's zero point, bias): A is quantised to uint8 by its own range."""
    codes, scale, point = write.several("DynamicQuantizeLinear", 3, write.input(0))
    product = integer_product(write, codes, write.input(1), (point, write.input(3)))
    write.give(_scaled(write, product, write("Mul", scale, write.input(2)), write.input(4)))


def _n_bits(write: Decomposition) -> None:
    """MatMulNBits: B is uint8 [N, blocks, bytes], its 4-bit numbers the low half of a byte first."""
    attrs = write.attrs
    bits, size, rows, columns = (
        attrs.get(key, default) for key, default in (("bits", 4), ("block_size", 0), ("N", 0), ("K", 0))
    )
    if bits not in (4, 8) or size < 16:
        raise Unsupported(f"{bits} bits in blocks of {size} are not supported")
    write.refuse(**{"g_idx": write.input(4)})
    blocks = -(-columns // size)
    codes = _unpacked(write.state.value_of(write.input(1), "B"), bits).reshape(rows, blocks * size)[:, :columns]
    scales = write.state.value_of(write.input(2), "scales").reshape(rows, blocks)
    points = np.full((rows, blocks), 1 << (bits - 1), np.float32)
    if write.input(3):
        packed = write.state.value_of(write.input(3), "zero_points")
        if packed.dtype == np.uint8:
            packed = _unpacked(packed.reshape(rows, -1), bits)[:, :blocks]
        points = packed.reshape(rows, blocks).astype(np.float32)
    each = np.repeat(np.arange(blocks), size)[:columns]
    weights = (codes.astype(np.float32) - points[:, each]) * scales[:, each].astype(np.float32)
    dtype = write.dtype(write.input(0))
    result = write("MatMul", write.input(0), write.constant(np.ascontiguousarray(weights.T), dtype))
    write.give(write("Add", result, write.input(5)) if write.input(5) else result)


def _unpacked(data: Array, bits: int) -> Array:
    """Return the numbers in the bytes of the last axis."""
    if bits == 8:
        return data
    return np.stack([data & 15, data >> 4], axis=-1).reshape(*data.shape[:-1], -1)


def _lstm(write: Decomposition) -> None:
    """DynamicQuantizeLSTM: an LSTM with 8-bit weights [directions, columns, rows], W and R.

    The input is quantised to uint8 by its range over all steps, the state by its range at each step.
    """
    state, proto = write.state, onnx.NodeProto()
    proto.CopyFrom(write.proto)
    proto.op_type, proto.domain = "LSTM", ""
    codes, scale, point = write.several("DynamicQuantizeLinear", 3, write.input(0))
    del proto.input[:]
    proto.input.extend([write("DequantizeLinear", codes, scale, point), "", "", *write.proto.input[3:8]])
    weights = {}
    for name, index, first in (("w", 1, 8), ("r", 2, 10)):
        data = state.value_of(write.input(index), name.upper())
        scales, zeros = (state.value_of(write.input(first + n), what) for n, what in ((0, "scale"), (1, "zero point")))
        if not (zeros == zeros.reshape(-1)[0]).all():
            raise Unsupported("its weights have more than one zero point")
        directions, _, rows = data.shape
        proto.input[index] = write.constant(data.transpose(0, 2, 1), data.dtype)
        per_row = scales.reshape(directions, -1) if scales.size > 1 else scales.reshape(1, 1)
        full = np.broadcast_to(per_row, (directions, rows)) if scales.size > 1 else per_row
        weights[name] = full.reshape(-1).astype(np.float32), int(zeros.reshape(-1)[0])
    (steps, batch, _), (directions, hidden, _) = write.kind(write.input(0)).shape, write.kind(write.input(2)).shape
    shapes = [(steps, directions, batch, hidden), (directions, batch, hidden), (directions, batch, hidden)]
    for output, shape in zip(proto.output, shapes, strict=False):
        state.types[output] = TensorType(DType.FLOAT32, shape)
    recurrent(state, proto, write.origin, {**write.attrs, "weights": weights, "dynamic_state": True}, 14)


DYNAMIC: dict[str, Contrib] = {
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic,
    "MatMulNBits": _n_bits,
    "DynamicQuantizeLSTM": _lstm,
}
