"""Weights of 4 and 2 bits without training: each layer is rounded so that its output changes least.

A layer computes y = W x + b in the float model, and V z + c in the quantized one, whose input z has the errors of the
layers before it. From the calibration data this module has the means of y and z, and the covariances A of y and z, and
H of z. The output's mean square error is least for

  bias      c = mean(y) - V mean(z), whatever V is (bias correction)
  weights   V = A / H, without rounding (least squares)

and rounding V adds e H e' for a row's error e. The columns are rounded one after another, and the columns to the right
make up for each one's error (GPTQ, Frantar et al. 2022; Optimal Brain Surgeon before that); then each is chosen again
for what all others have become, by turns with the scale, as long as it pays. The scale is the best of many.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from mtool.base.tensors import Array, Sample
from mtool.compiler.frontend.inference import attributes
from mtool.compiler.frontend.tensors import read_names
from mtool.compiler.operators.window import CONV
from mtool.verification import reference

_DAMPING = 0.05  # of the mean variance of an input, added to each: weights without effect stay near the float model's
FLOAT = 32  # bits of the weights of a layer that is left in float
_ROUNDING = 1e-8  # of the mean square, added too: a constant input has no variance
_MOVES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "MaxPool", "GlobalMaxPool")
_FINER = 257  # steps of 16 bits in one of 8: both have the same range
_WIDE_DOMAIN = "com.microsoft"  # its QuantizeLinear has 16 bits in opsets before 21 too
_BLOCK = 64  # columns
_SHARES = 20  # ranges that are tried, as parts of the largest weight
_SWEEPS = 6  # at most
_AT_ONCE = 16  # samples in a call of onnxruntime
_UNEVEN = 16.0  # between the factors of channels that are equalized: for less, the scale of each row does as well
_UNUSED = 1e-6  # of the largest channel's weights: one with less is not equalized, and rounded to zeros
_ROUNDS = 10  # of equalization: each changes the ranges of the next
_ROWS = 1 << 15  # of a layer's input, over all samples

Pairs = Sequence[tuple[Array, Array]]
"""Samples of a layer's input: in the float model, and in the quantized one."""


# Rounding.


def rounded(target: Array, hessian: Array, bits: int) -> tuple[Array, Array]:
    """Round weights to integers of few bits with a scale for each row.

    Args:
        target: [groups, rows, columns], the best weights without rounding.
        hessian: [groups, columns, columns], the covariance of the columns' inputs; positive definite.
        bits: 2 to 8.

    Returns:
        The integers, and the scales [groups, rows]: `codes * scale` approximates `target`.
    """
    high = 2 ** (bits - 1) - 1
    low = -high if bits == 8 else -high - 1
    # The triangle whose product with itself is the inverse, without the inverse, which would lose digits.
    upper = np.linalg.inv(np.linalg.cholesky(hessian[:, ::-1, ::-1])[:, ::-1, ::-1])
    hessian = hessian / np.einsum("gkk->gk", hessian).mean(-1)[:, None, None]  # float32 could overflow
    target, hessian, upper = (array.astype(np.float32) for array in (target, hessian, upper))
    largest = np.abs(target).max(-1)
    is_unused = largest <= _UNUSED * largest.max()  # zeros are not stored or computed, and 0 needs no scale of its own
    target[is_unused], largest[is_unused] = 0, largest.max() or 1.0
    codes, scale, best = np.zeros_like(target), np.ones_like(largest), np.full(largest.shape, np.inf)

    def tried(start: Array, its_scale: Array) -> bool:
        """Keep the integers of the rows that get better than the best so far; return whether there are any."""
        new_codes, error = _descended(target, hessian, start, its_scale, low, high)
        is_better = error < best
        for old, new in ((codes, new_codes), (scale, its_scale), (best, error)):
            old[is_better] = new[is_better]
        return bool(is_better.any())

    for share in np.linspace(0.2, 1, _SHARES) if bits < 8 else (1.0,):
        its_scale = (share * largest / high).astype(np.float32)
        tried(_with_feedback(target, upper, its_scale, low, high), its_scale)
    for _ in range(_SWEEPS):
        if not tried(codes, _refitted(target, hessian, codes, scale)):
            break
    return codes.astype(np.float64), scale.astype(np.float64)


def _with_feedback(target: Array, upper: Array, scale: Array, low: int, high: int) -> Array:
    """Round column by column; those to the right make up for the error."""
    rest, codes = np.array(target), np.empty_like(target)

    def error(column: int) -> Array:
        codes[..., column] = np.clip(np.rint(rest[..., column] / scale), low, high)
        return np.asarray((rest[..., column] - codes[..., column] * scale) / upper[:, None, column, column])

    _sweep(rest, upper, error)
    return codes


def _descended(target: Array, hessian: Array, start: Array, scale: Array, low: int, high: int) -> tuple[Array, Array]:
    """Choose each column's integers once more for what the others are; return them, and each row's error."""
    codes = start.copy()
    gradient = (target - codes * scale[..., None]) @ hessian

    def change(column: int) -> Array:
        step = gradient[..., column] / (scale * hessian[:, None, column, column])
        codes[..., column] = np.clip(np.rint(start[..., column] + step), low, high)
        return np.asarray((codes[..., column] - start[..., column]) * scale)

    _sweep(gradient, hessian, change)
    off = target - codes * scale[..., None]
    return codes, ((off @ hessian) * off).sum(-1)


def _sweep(rest: Array, matrix: Array, change: Callable[[int], Array]) -> None:
    """Call a function for each column, and subtract its result, times the matrix's row, from the columns to the right.

    One matrix product applies the changes of a block of columns to all columns behind it.
    """
    changes, columns = np.empty_like(rest), rest.shape[-1]
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        for column in range(start, stop):
            changes[..., column] = change(column)
            rest[..., column + 1 : stop] -= changes[..., column, None] * matrix[:, None, column, column + 1 : stop]
        rest[..., stop:] -= changes[..., start:stop] @ matrix[:, start:stop, stop:]


def _refitted(target: Array, hessian: Array, codes: Array, scale: Array) -> Array:
    """Return the best scale for the integers as they are."""
    weighted = codes @ hessian
    power, product = (weighted * codes).sum(-1), (weighted * target).sum(-1)
    result: Array = np.divide(product, power, out=scale.copy(), where=(power > 0) & (product > 0))
    return result


# Layers.


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution or matrix product of constant weights: its nodes in both models, and its constants.

    Attributes:
        node, before: the node in the QDQ model and in the float model.
        weights: [groups, rows, columns], of the float model.
        kernel: the size of a convolution's window.
        bias: [groups, rows]; None: it has none.
        input_scale: of its quantized input.
    """

    node: onnx.NodeProto
    before: onnx.NodeProto
    weights: Array
    kernel: tuple[int, ...]
    bias: Array | None
    input_scale: float

    def rows(self, x: Array) -> Array:
        """Return the rows of an input that its products read: [groups, positions, columns]."""
        groups, _, columns = self.weights.shape
        if self.node.op_type != CONV:
            return x.reshape(1, -1, columns)
        windows = _windows(x, self.kernel, attributes(self.node))
        windows = windows.reshape(len(x), groups, -1, *windows.shape[2:])
        rank = len(self.kernel)
        order = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
        return windows.transpose(order).reshape(groups, -1, columns)


def _windows(x: Array, kernel: Sequence[int], attrs: Mapping[str, Any]) -> Array:
    """Return a convolution's windows: [batch, channels, *output, *kernel]."""
    rank, kind = len(kernel), attrs.get("auto_pad", "NOTSET")
    strides, dilations = (attrs.get(name, [1] * rank) for name in ("strides", "dilations"))
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    pads = np.reshape(attrs.get("pads", [0] * 2 * rank), (2, rank)).T
    if kind.startswith("SAME"):
        sizes = zip(x.shape[2:], strides, extents, strict=True)
        total = np.array([max((-(-size // stride) - 1) * stride + extent - size, 0) for size, stride, extent in sizes])
        less, more = total // 2, total - total // 2
        pads = np.stack((less, more) if kind == "SAME_UPPER" else (more, less), axis=1)
    windows = sliding_window_view(np.pad(x, [(0, 0), (0, 0), *pads]), extents, axis=tuple(range(2, 2 + rank)))
    steps: tuple[Any, ...] = (..., *(slice(None, None, step) for step in (*strides, *dilations)))
    return np.asarray(windows[steps])


def layers_of(model: onnx.ModelProto, before: onnx.ModelProto) -> list[Layer]:
    """Return the layers of a QDQ model that can have few bits, in the order in which they run."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    floats = {tensor.name: tensor for tensor in before.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    originals = {node.name: node for node in before.graph.node}
    readers = [name for node in model.graph.node for name in node.input]
    result = []
    for node in model.graph.node:
        attrs, original = attributes(node), originals.get(node.name)
        if node.op_type not in (CONV, "Gemm", "MatMul") or original is None or original.input[1] not in floats:
            continue
        points = [makers[name] for name in node.input if name in makers]
        if len(points) < len(node.input) or any(point.op_type != "DequantizeLinear" for point in points):
            continue
        read, *held = points
        scale, weights = constants.get(read.input[1]), numpy_helper.to_array(floats[original.input[1]])
        names = [*node.input[1:], *(name for point in held for name in point.input)]
        is_own = all(readers.count(name) == 1 for name in names) and all(point.input[0] in constants for point in held)
        is_plain = not attrs.get("transA") and attrs.get("alpha", 1) == attrs.get("beta", 1) == 1
        if scale is None or scale.size != 1 or not (is_own and is_plain) or weights.ndim < 2:
            continue
        if node.op_type != CONV and weights.ndim > 2:
            continue
        groups = attrs.get("group", 1)
        rows = weights if node.op_type == CONV or attrs.get("transB") else weights.T
        rows = rows.reshape(groups, len(rows) // groups, -1).astype(np.float64)
        bias = numpy_helper.to_array(floats[original.input[2]]).astype(np.float64) if len(held) > 1 else None
        if bias is None or bias.size == rows[..., 0].size:
            bias = bias if bias is None else bias.reshape(rows.shape[:2])
            result.append(Layer(node, original, rows, weights.shape[2:], bias, scale.item()))
    return result


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """A layer's weights: [groups, rows, columns], the scale of each row, and the bias."""

    codes: Array
    scale: Array
    bias: Array | None


def fitted(layer: Layer, pairs: Pairs, choices: Sequence[int]) -> list[LayerWeights]:
    """Round a layer's weights to each of several numbers of bits.

    Args:
        layer: the layer.
        pairs: samples of its input in the float model, and in the quantized one.
        choices: numbers of bits.
    """
    groups, rows, columns = layer.weights.shape
    # Sums, then means: of the quantized input, the float output, and products of the input with both.
    z, y = np.zeros((groups, columns)), np.zeros((groups, rows))
    h, a = np.zeros((groups, columns, columns)), np.zeros((groups, rows, columns))
    count, most = 0, max(_ROWS // len(pairs), 1)
    for pair in pairs:
        real, quantized = (layer.rows(array) for array in pair)
        step = -(-real.shape[1] // most)
        real, quantized = (array[:, ::step].astype(np.float64) for array in (real, quantized))
        output = real @ layer.weights.swapaxes(1, 2)
        count += real.shape[1]
        h += quantized.swapaxes(1, 2) @ quantized
        a += output.swapaxes(1, 2) @ quantized
        z += quantized.sum(1)
        y += output.sum(1)
    h, a, z, y = (array / count for array in (h, a, z, y))
    variance, square = (np.einsum("gkk->g", array) / columns for array in (h - z[..., None] * z[:, None], h))
    damping = _DAMPING * variance + _ROUNDING * square
    damping = np.where(damping > np.finfo(np.float32).tiny, damping, 1.0)[:, None, None]
    if layer.bias is None:  # nothing makes up for the means
        z, y = np.zeros_like(z), np.zeros_like(y)
    hessian = h - z[..., None] * z[:, None] + damping * np.eye(columns)
    rhs = a - y[..., None] * z[:, None] + damping * layer.weights
    target = np.linalg.solve(hessian, rhs.swapaxes(1, 2)).swapaxes(1, 2)
    result = []
    for bits in choices:
        codes, scale = rounded(target, hessian, bits)
        quantized_mean = (codes * scale[..., None] @ z[..., None])[..., 0]
        result.append(LayerWeights(codes, scale, None if layer.bias is None else layer.bias + y - quantized_mean))
    return result


def put(model: onnx.ModelProto, layer: Layer, fit: LayerWeights) -> None:
    """Replace a layer's constants in its QDQ model."""
    graph, node = model.graph, layer.node
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    is_turned = node.op_type != CONV and not attributes(node).get("transB")
    shape = tuple(constants[makers[node.input[1]].input[0]].dims)
    flat = fit.codes.reshape(fit.scale.size, -1)
    codes = (flat.T if is_turned else flat).reshape(shape).astype(np.int8)
    scale = fit.scale.reshape(-1).astype(np.float32)
    written = [(1, codes, scale, int(is_turned))]
    if fit.bias is not None:
        steps = scale * np.float32(layer.input_scale)
        written.append((2, _int32(np.rint(fit.bias.reshape(-1) / steps)), steps, 0))
    for place, data, scales, axis in written:
        point = makers[node.input[place]]
        zeros = np.zeros(scales.shape, data.dtype)
        for name, values in zip(point.input, (data, scales, zeros), strict=False):
            constants[name].CopyFrom(numpy_helper.from_array(values, name))
        del point.attribute[:]
        point.attribute.append(helper.make_attribute("axis", axis))


def keep_float(model: onnx.ModelProto, before: onnx.ModelProto, layer: Layer) -> None:
    """Give a layer its float weights and bias again."""
    graph = model.graph
    node = next(node for node in graph.node if node.name == layer.node.name)
    floats = {tensor.name: tensor for tensor in before.graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    for place in range(1, len(node.input)):
        graph.node.remove(makers[node.input[place]])
        node.input[place] = layer.before.input[place]
        if all(tensor.name != node.input[place] for tensor in graph.initializer):
            graph.initializer.append(floats[node.input[place]])
    drop_unread(model)


def activations_of(model: onnx.ModelProto) -> list[tuple[str, ...]]:
    """Return the quantized tensors of a QDQ model, those together that nodes only move from one to another."""
    makers = {name: node for node in model.graph.node for name in node.output}
    there = {tensor.name for tensor in model.graph.initializer}
    groups: dict[str, list[str]] = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in there:
            continue
        source = node.input[0]
        while source in makers and makers[source].op_type in _MOVES:
            source = makers[source].input[0]
            dequantize = makers.get(source)
            if dequantize is not None and dequantize.op_type == "DequantizeLinear" and dequantize.input[0] in makers:
                source = makers[dequantize.input[0]].input[0]
        groups.setdefault(source, []).append(node.input[0])
    return [tuple(group) for group in groups.values()]


def widen(model: onnx.ModelProto, tensors: AbstractSet[str]) -> None:
    """Give quantized tensors of a QDQ model 16 bits instead of 8, and the biases of their products finer steps."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    changed = set[str]()
    for node in graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] not in tensors:
            continue
        scale, zero = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
        # The range stays the same: its ends may stand for Relu or Clip.
        wide = (scale / _FINER).astype(np.float32)
        zeros = np.asarray((int(zero) - np.iinfo(zero.dtype).min) * _FINER + np.iinfo(np.int16).min, np.int16)
        grid = [(f"{node.output[0]}/wide/{kind}", value) for kind, value in (("scale", wide), ("zero", zeros))]
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in grid)
        changed.add(node.output[0])
        for other in graph.node:
            if other is node or (other.op_type == "DequantizeLinear" and other.input[0] == node.output[0]):
                other.domain = _WIDE_DOMAIN
                other.input[1:] = [name for name, _ in grid]
    for node in graph.node:
        reads = [makers.get(name) for name in node.input]
        held = reads[2] if node.op_type in (CONV, "Gemm") and len(reads) > 2 else None
        if held is None or reads[0] is None or reads[0].input[0] not in changed:
            continue
        steps, scale = (numpy_helper.to_array(constants[name]) for name in held.input[:2])
        finer = _int32(steps * np.float64(_FINER)), (scale / _FINER).astype(np.float32)
        for name, values in zip(held.input, finer, strict=False):
            constants[name].CopyFrom(numpy_helper.from_array(values, name))
    drop_unread(model)
    if changed and all(entry.domain != _WIDE_DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_WIDE_DOMAIN, 1))


def _int32(values: Array) -> Array:
    info = np.iinfo(np.int32)
    return np.clip(values, info.min, info.max).astype(np.int32)


def drop_unread(model: onnx.ModelProto) -> None:
    """Remove the constants that nothing reads."""
    read = read_names(model)
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)


def uniform(layers: Sequence[Layer], bits: int) -> dict[str, int]:
    """Return 4 or 2 bits for each layer; the first, the last and depthwise convolutions, of few weights, have 4."""
    ends = (0, len(layers) - 1)
    return {
        layer.node.name: 4 if number in ends or layer.weights.shape[:2] == (len(layer.weights), 1) else bits
        for number, layer in enumerate(layers)
    }


# The inputs of layers.


class Walk:
    """Some tensors of a model in the order in which it computes them, each computed from those before."""

    def __init__(self, model: onnx.ModelProto, tensors: Sequence[str], samples: Sequence[Sample], folder: Path) -> None:
        """Plan the walk. The model may change behind the tensors that were computed."""
        self.model, self.path = model, folder / "part.onnx"
        self.values: list[dict[str, Array]] = [dict(sample) for sample in samples]
        self.last: dict[str, str] = {}  # the last of the tensors that is computed from each
        stops = {*self.values[0]}
        for tensor in tensors:
            self.last |= dict.fromkeys([*self._part(tensor, stops)[1], tensor], tensor)
            stops.add(tensor)

    def _part(self, tensor: str, stops: AbstractSet[str]) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return the nodes that compute a tensor from others, and those."""
        waiting, first, nodes = {tensor}, list[str](), []
        for node in reversed(self.model.graph.node):
            first += waiting & stops
            waiting -= {*stops}
            if waiting & {*node.output}:
                nodes.append(node)
                waiting |= _reads([node])
        return nodes[::-1], [*dict.fromkeys([*first, *(waiting & stops)])]

    def at(self, tensor: str) -> list[Array]:
        """Return a tensor's values for all samples."""
        if tensor not in self.values[0]:
            self._compute(tensor)
        return [values[tensor] for values in self.values]

    def forget(self, tensor: str) -> None:
        """Drop the values that are not read behind a tensor."""
        for name in [name for name, last in self.last.items() if last == tensor]:
            for values in self.values:
                values.pop(name, None)

    def _compute(self, tensor: str) -> None:
        nodes, first = self._part(tensor, {*self.values[0]})
        arrays, info = self.values[0], helper.make_tensor_value_info
        ins = [info(name, helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape) for name in first]
        read = _reads(nodes)
        held = [constant for constant in self.model.graph.initializer if constant.name in read]
        graph = helper.make_graph(nodes, "part", ins, [info(tensor, TensorProto.FLOAT, None)], held)
        versions = {"opset_imports": self.model.opset_import, "ir_version": self.model.ir_version}
        onnx.save(helper.make_model(graph, **versions), str(self.path))
        for start in range(0, len(self.values), _AT_ONCE):
            some = self.values[start : start + _AT_ONCE]
            results = reference.outputs(self.path, [{name: sample[name] for name in first} for sample in some])
            for sample, result in zip(some, results, strict=True):
                sample[tensor] = result[tensor]


def _reads(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    return read_names(helper.make_model(helper.make_graph(nodes, "part", [], [])))


# Changes of the float model that keep its results.


def prepare(model: onnx.ModelProto) -> None:
    """Give each convolution and Gemm a bias of its own, to be corrected, and equalize channels that differ a lot."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    readers = [name for node in model.graph.node for name in node.input]
    for node in model.graph.node:
        has_bias = len(node.input) > 2 and bool(node.input[2])
        if node.op_type not in (CONV, "Gemm") or not constants.keys() >= {*node.input[1 : 2 + has_bias]}:
            continue
        if not has_bias or readers.count(node.input[2]) > 1:
            weights = constants[node.input[1]]
            rows = weights.dims[int(node.op_type == "Gemm" and not attributes(node).get("transB"))]
            data = numpy_helper.to_array(constants[node.input[2]]) if has_bias else np.zeros(rows, np.float32)
            del node.input[2:]
            node.input.append(f"{node.name}/bias")
            model.graph.initializer.append(numpy_helper.from_array(data, node.input[2]))
    _equalize(model.graph)


def _equalize(graph: onnx.GraphProto) -> None:
    """Make the channels between two convolutions alike: cross-layer equalization, Nagel et al. 2019.

    A channel is divided by a factor, and the weights that read it are multiplied; ReLU lets both through.
    """
    inits = {tensor.name: tensor for tensor in graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    ends = {value.name for value in graph.output}
    pairs = []
    for node in graph.node:
        value, after = node.output[0], readers.get(node.output[0], [])
        if len(after) == 1 and after[0].op_type == "Relu" and value not in ends:
            value = after[0].output[0]
            after = readers.get(value, [])
        names = [name for part in (node, *after[:1]) for name in part.input[1:]]
        is_chain = len(after) == 1 and node.op_type == after[0].op_type == CONV and value not in ends
        if is_chain and all(name in inits and len(readers[name]) == 1 for name in names):
            pairs.append((node, after[0]))
    values = {name: numpy_helper.to_array(inits[name]) for pair in pairs for node in pair for name in node.input[1:]}
    spread = [np.percentile(_factors(values, *pair), (10, 90)) for pair in pairs]  # few odd channels do no harm
    uneven = [pair for pair, (low, high) in zip(pairs, spread, strict=True) if high > _UNEVEN * low]
    for layer, other in uneven * _ROUNDS:
        factors = _factors(values, layer, other)
        weights, next_weights = values[layer.input[1]], values[other.input[1]]
        groups = attributes(other).get("group", 1)
        ones = [1] * (weights.ndim - 2)
        values[layer.input[1]] = weights / factors.reshape(-1, 1, *ones)
        if len(layer.input) > 2:
            values[layer.input[2]] = values[layer.input[2]] / factors
        by_group = next_weights.reshape(groups, -1, *next_weights.shape[1:]) * factors.reshape(groups, 1, -1, *ones)
        values[other.input[1]] = by_group.reshape(next_weights.shape)
    for name in {name for pair in uneven for node in pair for name in node.input[1:]}:
        inits[name].CopyFrom(numpy_helper.from_array(values[name].astype(np.float32), name))


def _factors(values: Mapping[str, Array], node: onnx.NodeProto, other: onnx.NodeProto) -> Array:
    """Return the factor of each channel between two convolutions that gives its weights the same range in both."""
    weights, read = values[node.input[1]].astype(np.float64), values[other.input[1]].astype(np.float64)
    by_group = np.abs(read.reshape(attributes(other).get("group", 1), -1, *read.shape[1:]))
    reads = by_group.max((1, *range(3, by_group.ndim))).reshape(-1)
    makes = np.abs(weights).reshape(len(weights), -1).max(1)
    if len(node.input) > 2:  # of a channel without weights, the bias alone makes the range
        makes = np.maximum(makes, np.abs(values[node.input[2]]))
    is_used = (makes > _UNUSED * makes.max()) & (reads > _UNUSED * reads.max())
    factors: Array = np.sqrt(np.divide(makes, reads, out=np.ones(len(weights)), where=is_used))
    return factors
