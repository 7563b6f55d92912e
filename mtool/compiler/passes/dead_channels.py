"""Remove channels that have the same value at every pixel, or that are never read.

Training leaves such channels: a dead depthwise filter outputs its bias, whatever the image. Such a channel is added to
the bias of its readers, and its own weights and multiply-accumulates are removed. With padding, a channel is constant
only if the result is equal for every possible set of taps inside the image: all are computed.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Graph, Node, Rewriter, View, WithEpilogue
from mtool.compiler.ir.scalar import evaluate
from mtool.compiler.ir.types import Array, TensorType, row_blocks
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.specification import Channels
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import WeightedSum

MAX_PRODUCTS = 2**22  # products of weights that may be examined to find an operator's constant channels
Constants = dict[int, int]  # channel -> its value at every pixel


def remove_dead_channels(graph: Graph, target: Target) -> Graph:
    """Drop constant and unread channels of integer convolutions if every reader can do without them.

    The remaining number of channels is a multiple of the target's vector length.
    """
    analysis = _Channels(graph)
    multiple = 16 if "mve" in target.features else 4 if "dsp" in target.features else 2
    choices = {value: analysis.to_keep(value, multiple) for value in graph.types}
    channels = _agreed(graph, {value: keep for value, keep in choices.items() if keep is not None})
    return _removed(graph, analysis, channels) if channels else graph


def _agreed(graph: Graph, channels: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Keep the same channels before and after a depthwise, a pool or a view: the union, or all."""
    first: dict[str, str] = {}  # the representative of all values that have to agree
    for node in graph.nodes:
        if _is_channelwise(node, graph):
            before = node.inputs[0]
            first[node.outputs[0]] = first.setdefault(before, before)
    groups: dict[str, list[str]] = {}
    for value in {**first, **channels}:
        groups.setdefault(first.get(value, value), []).append(value)
    unions = {
        start: sorted({channel for value in values for channel in channels[value]})
        for start, values in groups.items()
        if all(value in channels for value in values)
    }
    return {value: unions[start] for value in channels if (start := first.get(value, value)) in unions}


def _channels(node: Node, graph: Graph) -> Channels:
    """Return the dependence of output channels on input channels."""
    return registry.SPECIFICATIONS[node.op].channels(node, graph)


def _is_channelwise(node: Node, graph: Graph) -> bool:
    """Whether each output channel depends only on the input channel with the same number."""
    return _channels(node, graph) is Channels.EACH


def _mixes(node: Node, graph: Graph) -> bool:
    """Whether each output channel is a weighted sum of all input channels."""
    return _channels(node, graph) is Channels.ALL


def _filters(node: Node, graph: Graph) -> Array:
    """Return a kernel's weights as [O, taps, C/group]."""
    weights = graph.constants[node.inputs[1]]
    return weights.reshape(weights.shape[0], math.prod(weights.shape[1:-1]), weights.shape[-1])


def _products(weights: Array, inputs: Array) -> Array:
    """Return int64 [O, taps]: the sums over channels of weights [O, taps, C] times inputs [C]."""
    sums = np.zeros(weights.shape[:2], np.int64)
    for rows in row_blocks(weights):
        sums[rows] = weights[rows].astype(np.int64) @ inputs
    return sums


def _without(weights: Array, channels: list[int]) -> Array:
    """Return bool [O]: the filters of weights [O, taps, C] that are 0 at these channels."""
    is_zero = np.zeros(len(weights), bool)
    for rows in row_blocks(weights):
        is_zero[rows] = ~weights[rows][:, :, channels].any(axis=(1, 2))
    return is_zero


def _inside(node: Node, graph: Graph) -> tuple[Array, Array]:
    """Return bool [classes, taps] for rows and for columns: the possible sets of taps inside the image."""
    if not isinstance(node.attrs, Conv2d):
        return np.ones((1, 1), bool), np.ones((1, 1), bool)
    conv = Conv.of(node, graph)
    sides = []
    for axis in (0, 1):
        taps = np.arange(conv.kernel[axis]) * conv.dilation[axis]
        first = np.arange(conv.out_size[axis]) * conv.stride[axis] - conv.pad[axis]
        positions = first[:, None] + taps
        inside = (positions >= 0) & (positions < conv.size[axis])
        sides.append(np.array(sorted({tuple(row) for row in inside.tolist()})))
    return sides[0], sides[1]


class _Channels:
    """Facts about each value's channels, and which channels can be removed.

    `unread` has the channels of a value that no reader needs; values that are not in it keep all channels.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.consumers = graph.consumers()
        self.makers = graph.producers()
        self.outputs = {*graph.outputs}
        self.constants: dict[str, Constants] = {}
        for node in graph.nodes:
            self.constants[node.outputs[0]] = self._constants_of(node)
        self.unread: dict[str, Array] = {}
        for node in reversed(graph.nodes):
            if (unread := self._unread_channels(node.outputs[0])) is not None and unread.any():
                self.unread[node.outputs[0]] = unread

    def _constants_of(self, node: Node) -> Constants:
        graph = self.graph
        constants = self.constants.get(node.inputs[0], {}) if node.inputs else {}
        if isinstance(node.attrs, View):
            return constants if constants and _is_channelwise(node, graph) else {}
        if not _is_integer(node, graph) or not _reads_only_itself(node, graph):
            return {}
        if isinstance(node.attrs, Pool2d):
            return self._pooled(node, node.attrs, constants)
        weights = _filters(node, graph)
        pad = WeightedSum.of(node).pad_value
        if _mixes(node, graph):
            inputs = np.array([constants.get(c, pad) for c in range(weights.shape[2])], np.int64)
            unknown = [c for c in range(weights.shape[2]) if c not in constants]
            is_constant = _without(weights, unknown)
            if not is_constant.any():
                return {}
            inside, outside = _products(weights, inputs), _products(weights, np.full_like(inputs, pad))
        else:
            if weights.shape[2] != 1 or weights.shape[0] != graph.types[node.inputs[0]].shape[-1]:
                return {}
            values = np.array([constants.get(o, pad) for o in range(weights.shape[0])], np.int64)
            is_constant = np.array([o in constants or not weights[o].any() for o in range(weights.shape[0])])
            taps = weights[:, :, 0].astype(np.int64)
            inside, outside = taps * values[:, None], taps * pad
        rows, columns = _inside(node, graph)
        if not is_constant.any() or len(rows) * len(columns) * inside.size > MAX_PRODUCTS:
            return {}
        masks = np.array([np.outer(y, x).reshape(-1) for y, x in itertools.product(rows, columns)])  # [classes, taps]
        bias = graph.constants[node.inputs[2]].astype(np.int64)
        sums = np.where(masks[:, None, :], inside, outside).sum(axis=2) + bias
        if graph.constants[node.inputs[2]].dtype == np.int32:
            sums = sums.clip(-(2**31), 2**31 - 1).astype(np.int32)
        results = self._finished(node, sums)
        equal = (results == results[0]).all(axis=0)
        return {o: int(results[0, o]) for o in np.nonzero(is_constant & equal)[0].tolist()}

    def _pooled(self, node: Node, attrs: Pool2d, constants: Constants) -> Constants:
        if not constants or any(attrs.pads) or self.graph.types[node.inputs[0]].dtype.is_float:
            return {}
        channels = self.graph.types[node.inputs[0]].shape[-1]
        count = int(np.prod(attrs.kernel)) if attrs.kind == "average" else 1
        sums = np.array([[constants.get(c, 0) * count for c in range(channels)]])
        results = self._finished(node, sums)
        return {c: int(results[0, c]) for c in constants}

    def _finished(self, node: Node, sums: Array) -> Array:
        """Apply the epilogue to sums [classes, O]."""
        rank = len(self.graph.types[node.outputs[0]].shape)
        shape = (*(1,) * (rank - 2), *sums.shape)
        operands = [self.graph.constants.get(value, np.zeros(0)) for value in node.inputs]
        return evaluate(WithEpilogue.of(node).epilogue, operands, shape, sums.reshape(shape)).reshape(sums.shape)

    def _unread_channels(self, value: str) -> Array | None:
        """Return bool [channels]: a value's channels that no reader needs; None: none."""
        readers = {node.name: node for node in self.consumers.get(value, ())} if value not in self.outputs else {}
        masks: list[Array] = []
        for node in readers.values():
            if (absorbed := self._absorbed(node, value)) is None:
                return None
            masks.append(absorbed)
        return np.asarray(np.logical_and.reduce(masks)) if masks else None

    def _absorbed(self, node: Node, value: str) -> Array | None:
        """Return bool [channels]: a value's channels that one reader can do without; None: none."""
        if _channels(node, self.graph) is Channels.MIXED or value in node.inputs[1:]:
            return None
        if _is_channelwise(node, self.graph):
            return self.unread.get(node.outputs[0]) if _reads_only_itself(node, self.graph) else None
        if not _mixes(node, self.graph) or not _is_integer(node, self.graph):
            return None
        absorbed = ~np.asarray(_filters(node, self.graph).any(axis=(0, 1)))
        everywhere = all(side.all() for side in _inside(node, self.graph))
        for channel, constant in self.constants.get(value, {}).items():
            absorbed[channel] = everywhere or constant == WeightedSum.of(node).pad_value
        return absorbed

    def to_keep(self, value: str, multiple: int) -> list[int] | None:
        """Return the channels of a value to keep; None: all."""
        maker, unread = self.makers.get(value), self.unread.get(value)
        if maker is None or unread is None or not _reads_only_itself(maker, self.graph):
            return None
        if not (_mixes(maker, self.graph) or _is_channelwise(maker, self.graph)):
            return None
        needed, spare = np.nonzero(~unread)[0].tolist(), np.nonzero(unread)[0].tolist()
        count = min(max(-(-len(needed) // multiple) * multiple, multiple), len(unread))
        return sorted([*needed, *spare[: count - len(needed)]]) if count < len(unread) else None


def _is_integer(node: Node, graph: Graph) -> bool:
    return isinstance(node.attrs, WeightedSum | Pool2d) and graph.types[node.inputs[0]].dtype.is_integer


def _reads_only_itself(node: Node, graph: Graph) -> bool:
    """Whether the epilogue reads only constants."""
    if not isinstance(node.attrs, WithEpilogue):
        return True
    return all(node.inputs[number] in graph.constants for number in node.attrs.epilogue.operands())


def _removed(graph: Graph, analysis: _Channels, channels: Mapping[str, list[int]]) -> Graph:
    rewriter = Rewriter(graph)
    for value, keep in channels.items():
        kind = graph.types[value]
        rewriter.types[value] = TensorType(kind.dtype, (*kind.shape[:-1], len(keep)))
        if value in rewriter.sources:
            rewriter.sources[value] = rewriter.sources[value].then(("take", tuple(keep)))
    for node in graph.nodes:
        before, after = channels.get(node.inputs[0] if node.inputs else ""), channels.get(node.outputs[0])
        if before is None and after is None:
            rewriter.keep(node)
        elif isinstance(node.attrs, WeightedSum):
            rewriter.keep(_narrowed(node, graph, analysis, rewriter, before, after))
        else:
            rewriter.keep(replace(node, inputs=_sliced_operands(node, graph, rewriter, after, first=1)))
    return rewriter.finish()


def _narrowed(
    node: Node, graph: Graph, analysis: _Channels, rewriter: Rewriter, before: list[int] | None, after: list[int] | None
) -> Node:
    """Return a kernel without the removed input and output channels."""
    weights, bias = graph.constants[node.inputs[1]], graph.constants[node.inputs[2]]
    if before is not None and _mixes(node, graph):
        constants = analysis.constants.get(node.inputs[0], {})
        removed = [channel for channel in range(weights.shape[-1]) if channel not in set(before)]
        values = np.array([constants.get(channel, 0) for channel in removed], np.int64)
        share = _products(_filters(node, graph)[:, :, removed], values).sum(axis=1)
        bias = (bias.astype(np.int64) + share).astype(bias.dtype)
        weights = weights[..., before]
    if after is not None:
        weights, bias = weights[after], bias[after]
    inputs = list(_sliced_operands(node, graph, rewriter, after, first=3))
    inputs[1] = rewriter.constant(f"{node.name}/weights", np.ascontiguousarray(weights))
    inputs[2] = rewriter.constant(f"{node.name}/bias", bias)
    attrs = replace(WeightedSum.of(node), macs=registry.KERNELS[node.op].macs(node, graph))
    if isinstance(attrs, Conv2d) and attrs.group > 1 and after is not None:
        attrs = replace(attrs, group=len(after))
    return replace(node, inputs=tuple(inputs), attrs=attrs)


def _sliced_operands(
    node: Node, graph: Graph, rewriter: Rewriter, after: list[int] | None, first: int
) -> tuple[str, ...]:
    """Return the inputs, with the epilogue's per-channel operands reduced to the kept channels."""
    inputs = list(node.inputs)
    if after is None or not isinstance(node.attrs, WithEpilogue):
        return tuple(inputs)
    last = len(graph.types[node.outputs[0]].shape) - 1
    for part in node.attrs.epilogue.walk():
        if part.op != "load" or part.value < first or not part.args:
            continue
        index, data = part.args[-1], graph.constants[node.inputs[part.value]]
        if index.op == "axis" and index.value == last and data.shape[-1] > 1:
            cut = np.ascontiguousarray(data[..., after])
            inputs[part.value] = rewriter.constant(f"{node.name}/parameter", cut)
    return tuple(inputs)
