"""Shapes of operands that onnx's shape inference does not compare: if they disagreed, C would read beyond a tensor."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx

from mtool.compiler.frontend.inference import FIRST_BROADCASTING
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType

Shape = tuple[int, ...]
Shapes = Sequence[Shape | None]
"""Of each input; None: it is not given."""

Check = Callable[[Shapes, Sequence[Shape], Mapping[str, Any]], bool]
"""Whether the shapes of the inputs, those of the outputs and the attributes go together."""


def check_operand_shapes(
    proto: onnx.NodeProto, attrs: Mapping[str, Any], types: Mapping[str, TensorType], version: int
) -> None:
    """Check that the shapes of a node's inputs and outputs agree.

    Raises:
        Unsupported: they do not go together.
    """
    check = CHECKS.get(proto.op_type)
    older = version < FIRST_BROADCASTING and proto.op_type in ("Gemm", "PRelu")
    if check is None or older or any(name and name not in types for name in (*proto.input, *proto.output)):
        return
    inputs = [types[name].shape if name else None for name in proto.input]
    outputs = [types[name].shape for name in proto.output if name]
    try:
        fits = check([*inputs, *[None] * 8], outputs, attrs)
    except (IndexError, TypeError, ValueError):
        fits = False  # too few dimensions, or inputs
    if not fits:
        raise Unsupported(f"the shapes of its inputs do not go together: {[list(shape or ()) for shape in inputs]}")


def _is(shape: Shape | None, *expected: Shape) -> bool:
    """Whether an input is not given, or has one of these shapes."""
    return shape is None or shape in expected


def _spreads(shape: Shape | None, result: Shape) -> bool:
    """Whether an input is not given, or can be broadcast to a shape."""
    try:
        return shape is None or np.broadcast_shapes(shape, result) == result
    except ValueError:
        return False


def _same_count(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return prod(ins[0] or ()) == prod(outs[0])


def _expand(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return _spreads(ins[0], outs[0])


def _tile(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return all((made == 0) if size == 0 else made % size == 0 for size, made in zip(ins[0] or (), outs[0], strict=True))


def _top(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    x, axis = ins[0] or (), attrs.get("axis", -1) % max(len(ins[0] or ()), 1)
    kept = all(n <= size if dim == axis else n == size for dim, (n, size) in enumerate(zip(outs[0], x, strict=True)))
    return kept and all(shape == outs[0] for shape in outs)


def _transpose(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    axes = range(len(ins[0] or ()))
    return sorted(attrs.get("perm", axes)) == [*axes]


def _deform_conv(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    x, w, moved = ins[0] or (), ins[1] or (), (outs[0][0], *outs[0][2:])
    count = attrs.get("offset_group", 1) * prod(w[2:])
    return (
        x[1] == w[1] * attrs.get("group", 1) and ins[2] == (moved[0], 2 * count, *moved[1:])
        and _is(ins[3], (w[0],)) and _is(ins[4], (moved[0], count, *moved[1:]))
    )  # fmt: skip


def _has_kernel(filters: Shape, attrs: Mapping[str, Any]) -> bool:
    return tuple(attrs.get("kernel_shape", filters[2:])) == filters[2:]


def _affine_grid(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return ins[0] == (outs[0][0], outs[0][-1], outs[0][-1] + 1)


def _conv(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    w = ins[1] or ()
    return _has_kernel(w, attrs) and _is(ins[2], w[:1])


def _conv_transpose(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    x, w, group = ins[0] or (), ins[1] or (), attrs.get("group", 1)
    return _has_kernel(w, attrs) and x[1] == w[0] and group > 0 and x[1] % group == 0 and _is(ins[2], (w[1] * group,))


def _scatter_nd(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    data, indices, updates = ins[0] or (), ins[1] or (), ins[2]
    return indices[-1] <= len(data) and updates == (*indices[:-1], *data[indices[-1] :])


def _by_element(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """GatherElements, ScatterElements: indices lie within the data along all axes but one."""
    data, indices = ins[0] or (), ins[1] or ()
    axis = attrs.get("axis", 0) % max(len(data), 1)
    inside = all(n <= size for dim, (n, size) in enumerate(zip(indices, data, strict=False)) if dim != axis)
    return len(data) == len(indices) and inside and _is(ins[2], indices)


def _gather_nd(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    data, indices, batch = ins[0] or (), ins[1] or (), attrs.get("batch_dims", 0)
    return data[:batch] == indices[:batch] and indices[-1] <= len(data) - batch


def _instance_norm(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    channels = (ins[0] or ())[1]
    return ins[1] == (channels,) and ins[2] == (channels,)


def _tensor_scatter(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    past, update = ins[0] or (), ins[1] or ()
    axis = attrs.get("axis", -2) % len(past)
    same = all(n == m for dim, (n, m) in enumerate(zip(past, update, strict=True)) if dim != axis)
    return same and update[axis] <= past[axis] and _is(ins[2], past[:1])


def _layer_norm(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return _spreads(ins[1], ins[0] or ()) and _spreads(ins[2], ins[0] or ())


def _recurrent(gates: int) -> Check:
    def check(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
        (first, second, features), (directions, rows, width) = ins[0] or (), ins[1] or ()
        batch, size = (first if attrs.get("layout") else second), rows // gates
        state = (batch, directions, size) if attrs.get("layout") else (directions, batch, size)
        return (
            rows == gates * size and width == features and attrs.get("hidden_size", size) == size
            and directions == (2 if attrs.get("direction") == "bidirectional" else 1)
            and ins[2] == (directions, rows, size) and _is(ins[3], (directions, 2 * rows)) and _is(ins[4], (batch,))
            and _is(ins[5], state) and _is(ins[6], state) and _is(ins[7], (directions, 3 * size))
        )  # fmt: skip

    return check


def _depth_to_space(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return len(ins[0] or ()) == 4 and _same_count(ins, outs, attrs)


def _one_hot(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return prod(ins[1] or ()) == 1 and ins[2] == (2,)


def _max_unpool(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return ins[0] == ins[1]


def _reverse_sequence(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    batch, along = attrs.get("batch_axis", 1), attrs.get("time_axis", 0)
    return {batch, along} == {0, 1} and ins[1] == ((ins[0] or ())[batch],)


def _grid_sample(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    x, grid = ins[0] or (), ins[1] or ()
    return len(x) == len(grid) > 2 and x[0] == grid[0] and grid[-1] == len(x) - 2


def _roi_align(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    boxes = ins[1] or ()
    return len(ins[0] or ()) == 4 and len(boxes) == 2 and boxes[1] == 4 and ins[2] == boxes[:1]


def _suppression(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    boxes, scores = ins[0] or (), ins[1] or ()
    whole = len(boxes) == len(scores) == 3 and boxes[2] == 4
    return whole and boxes[0] == scores[0] and boxes[1] == scores[2]


def _gemm(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return _spreads(ins[2], outs[0])


def _prelu(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return _spreads(ins[1], ins[0] or ())


def _scalars(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """Clip, Trilu and their like: every input but the first is one number."""
    return all(prod(shape) == 1 for shape in ins[1:] if shape is not None)


def _conv_integer(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    return _has_kernel(ins[1] or (), attrs) and _is(ins[2], (), (1,)) and _is(ins[3], (), (1,), (ins[1] or ())[:1])


def _matmul_integer(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """Zero points for the whole, for each row of A or each column of B, or for those of each matrix of a batch."""
    a, b = ins[0] or (), ins[1] or ()
    rows = ((), (1,), a[-2:-1], (*a[:-1], 1))
    columns = ((), (1,), b[-1:], (*b[:-2], 1, *b[-1:]))
    return _is(ins[2], *rows) and _is(ins[3], *columns)


def _dft(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """The last dimension has a real part, and perhaps an imaginary one."""
    x = ins[0] or ()
    return len(x) >= 2 and x[-1] in (1, 2)


def _stft(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """Batch, samples, and a real part or a complex number of each; a window of one dimension."""
    return len(ins[0] or ()) == 3 and _dft(ins, outs, attrs) and len(ins[2] or (0,)) == 1


_SPATIAL = ("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool")


def _spatial(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """Batch, channels, and at least one spatial dimension."""
    return len(ins[0] or ()) >= 3


def _quantisation(ins: Shapes, outs: Sequence[Shape], attrs: Mapping[str, Any]) -> bool:
    """The zero point is of the scale's shape; one number may be a scalar or a vector."""
    return ins[2] is None or ins[2] == ins[1] or prod(ins[2]) == prod(ins[1] or ()) == 1


CHECKS: dict[str, Check] = {
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], _quantisation),
    **dict.fromkeys(_SPATIAL, _spatial),
    "Expand": _expand,
    "Tile": _tile,
    "TopK": _top,
    "Transpose": _transpose,
    "DeformConv": _deform_conv,
    "Conv": _conv,
    "AffineGrid": _affine_grid,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
    "MatMulInteger": _matmul_integer,
    "ScatterND": _scatter_nd,
    **dict.fromkeys(["GatherElements", "ScatterElements", "Scatter"], _by_element),
    "GatherND": _gather_nd,
    "TensorScatter": _tensor_scatter,
    "InstanceNormalization": _instance_norm,
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], _layer_norm),
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], _depth_to_space),
    "OneHot": _one_hot,
    "MaxUnpool": _max_unpool,
    "ReverseSequence": _reverse_sequence,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    "NonMaxSuppression": _suppression,
    "Gemm": _gemm,
    "PRelu": _prelu,
    "DFT": _dft,
    "STFT": _stft,
    **dict.fromkeys(["Clip", "Trilu"], _scalars),
}
