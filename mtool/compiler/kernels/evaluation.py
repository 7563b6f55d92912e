"""The meaning of internal operators, in NumPy: windows, dense layers, loops and moves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Array, Graph, Node
from mtool.compiler.ir.node import Transpose, View, WithEpilogue
from mtool.compiler.ir.scalar import evaluate
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.pool2d import Pool2d

Accumulated = Callable[[Node, Sequence[Array], tuple[int, ...]], Array]
"""Returns a kernel's accumulators from its inputs and the shape of its output."""


def computed(node: Node, graph: Graph, inputs: Sequence[Array], more: Mapping[str, Accumulated] | None = None) -> Array:
    """Return a node's result; `more` has the accumulators of further kinds of kernel."""
    kind = graph.types[node.outputs[0]]
    if node.op == "loop":
        return evaluate(Loop.of(node).expr, inputs, kind.shape)
    if node.op == "view":
        first = View.of(node).first
        return inputs[0].reshape(-1)[first : first + kind.count].reshape(kind.shape)
    if node.op == "transpose":
        return np.ascontiguousarray(inputs[0].transpose(Transpose.of(node).perm))
    if node.op == "concat":
        return np.concatenate(inputs, axis=Concat.of(node).axis)
    total = {**KERNELS, **(more or {})}[node.op](node, inputs, kind.shape)
    return evaluate(WithEpilogue.of(node).epilogue, inputs, kind.shape, total)


def _patches(x: Array, node: Node, shape: tuple[int, ...], fill: float) -> Array:
    """Return what each tap of a window reads for each pixel: [taps, N, OH, OW, C]."""
    attrs = node.attrs
    assert isinstance(attrs, Conv2d | Pool2d)
    (height, width), (down, right) = attrs.kernel, attrs.strides
    apart, beside = attrs.dilations
    top, left = attrs.pads[:2]
    below = max((shape[1] - 1) * down - top + (height - 1) * apart + 1 - x.shape[1], 0)
    behind = max((shape[2] - 1) * right - left + (width - 1) * beside + 1 - x.shape[2], 0)
    padded = np.pad(x, ((0, 0), (top, below), (left, behind), (0, 0)), constant_values=fill)
    taps = []
    for y in range(height):
        for z in range(width):
            rows = slice(y * apart, y * apart + (shape[1] - 1) * down + 1, down)
            columns = slice(z * beside, z * beside + (shape[2] - 1) * right + 1, right)
            taps.append(padded[:, rows, columns])
    return np.stack(taps)


def _conv2d(node: Node, inputs: Sequence[Array], shape: tuple[int, ...]) -> Array:
    x, weights, bias = (data.astype(np.float64 if data.dtype.kind == "f" else np.int64) for data in inputs[:3])
    group = Conv2d.of(node).group
    taps = _patches(x, node, shape, Conv2d.of(node).pad_value)
    taps = taps.reshape(*taps.shape[:-1], group, -1)  # [taps, N, OH, OW, group, C / group]
    filters = weights.reshape(
        group, len(weights) // group, -1, weights.shape[-1]
    )  # [group, O / group, taps, C / group]
    total: Array = np.einsum("tnhwgc,gotc->nhwgo", taps, filters).reshape(shape) + bias
    return total.astype(inputs[2].dtype)


def _dense(node: Node, inputs: Sequence[Array], shape: tuple[int, ...]) -> Array:
    x, weights, bias = (data.astype(np.float64 if data.dtype.kind == "f" else np.int64) for data in inputs[:3])
    total: Array = x @ weights.T + bias
    return total.astype(inputs[2].dtype)


def _pool2d(node: Node, inputs: Sequence[Array], shape: tuple[int, ...]) -> Array:
    x = inputs[0]
    if Pool2d.of(node).kind == "max":
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        most: Array = _patches(x, node, shape, lowest).max(axis=0)
        return most
    wide = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
    total: Array = _patches(wide, node, shape, 0).sum(axis=0)
    if x.dtype.kind != "f":
        return total.astype(np.int32)
    attrs = Pool2d.of(node)
    count = _patches(np.ones(x.shape), node, shape, 0).sum(axis=0)
    if attrs.count_pads:
        (down, right), (top, left) = attrs.limits, attrs.pads[:2]
        counted = np.ones((1, top + down, left + right, 1))
        count = _patches(counted, replace(node, attrs=replace(attrs, pads=(0, 0, 0, 0))), shape, 0).sum(axis=0)
    mean: Array = (total / count).astype(np.float32)
    return mean


KERNELS: Mapping[str, Accumulated] = {"conv2d": _conv2d, "dense": _dense, "pool2d": _pool2d}
