"""Fold constant padding into the windows that read it: convolutions and pools pad while they read.

A Pad is removed if all readers can do without it: each is a window, or a transposition, a view, a cast, a quantization
or a dequantization before a window. If one reader needs the padded tensor, it is in memory anyway, and all read it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, Attributes, DType, Graph, Node, Rewriter, rewritten
from mtool.compiler.operators.movement import Pad, Permutation
from mtool.compiler.operators.quantize import Quantization
from mtool.compiler.operators.rescale import Limits
from mtool.compiler.operators.window import CONV, Pool, Window

MAX_NODES = 64  # nodes to examine after a Pad, and before one
Sides = tuple[int, ...]


@frozen
class Border:
    """The border that a Pad adds to a tensor: elements of one value at both ends of each dimension."""

    before: Sides
    behind: Sides
    value: Array

    def inside(self, shape: Iterable[int]) -> Sides:
        """Return the shape of a tensor without the border."""
        return tuple(size - a - b for size, a, b in zip(shape, self.before, self.behind, strict=True))


def fold_pads(graph: Graph) -> Graph:
    """Move padding into windows, wherever that removes a Pad."""
    pads = [node for node in graph.nodes if isinstance(node.attrs, Pad)]
    if not pads:
        return graph
    facts = _Facts(graph)
    removed: set[str] = set()
    shapes: dict[str, Sides] = {}
    windows: dict[str, Attributes] = {}
    for pad in pads:
        result = _without(pad, graph, facts) if pad.name not in removed else None
        if result is not None:
            removed |= {pad.name, *(node.name for node in pads if node.outputs[0] in result[0])}
            shapes |= result[0]
            windows |= result[1]
    return _rewritten(graph, removed, shapes, windows) if removed else graph


def _rewritten(graph: Graph, removed: set[str], shapes: dict[str, Sides], windows: dict[str, Attributes]) -> Graph:
    """Return the graph without some Pads; `shapes`: the new shapes of the values after them."""
    inner: dict[str, str] = {}

    def change(rewriter: Rewriter, node: Node) -> Node | None:
        inputs, out = tuple(inner.get(value, value) for value in node.inputs), node.outputs[0]
        if node.name in removed:
            inner[out] = inputs[0]
            return None
        outputs = node.outputs
        if out in shapes:
            inner[out] = rewriter.value(f"{out}.inside", graph.types[out].dtype, shapes[out])
            if out in graph.quant:
                rewriter.quant[inner[out]] = graph.quant[out]
            outputs = (inner[out],)
        return replace(node, inputs=inputs, outputs=outputs, attrs=windows.get(node.name, node.attrs))

    return rewritten(graph, change)


def _border(pad: Node, graph: Graph) -> Border | None:
    """Return the border that a Pad adds; None: it does not add a constant around all of its input."""
    attrs = Pad.of(pad)
    shape, padded = (graph.types[value].shape for value in (pad.inputs[0], pad.outputs[0]))
    behind = tuple(total - size - n for total, size, n in zip(padded, shape, attrs.before, strict=True))
    if attrs.mode != "constant" or len(pad.inputs) > 1 or min((*attrs.before, *behind), default=0) < 0 or 0 in shape:
        return None
    return Border(attrs.before, behind, np.asarray(attrs.value, graph.types[pad.inputs[0]].dtype.numpy))


def _without(pad: Node, graph: Graph, facts: "_Facts") -> tuple[dict[str, Sides], dict[str, Attributes]] | None:
    """Return the shapes of values and attributes of windows that make a Pad unnecessary; None: impossible."""
    border = _border(pad, graph)
    if border is None:
        return None
    waiting, seen = [(pad, border)], 0
    shapes, windows = dict[str, Sides](), dict[str, Attributes]()
    while waiting:
        node, border = waiting.pop()
        value = node.outputs[0]
        readers = facts.readers.get(value, [])
        seen += len(readers)
        if value in graph.outputs or not readers or seen > MAX_NODES:
            return None
        for reader in readers:
            if value in reader.inputs[1:]:
                return None
            attrs = _window(reader, border, facts)
            if attrs is not None:
                windows[reader.name] = attrs
                continue
            moved = _moved(reader, border, graph)
            if moved is None:
                return None
            shapes[reader.outputs[0]] = moved.inside(graph.types[reader.outputs[0]].shape)
            waiting.append((reader, moved))
    return shapes, windows


def _moved(node: Node, border: Border, graph: Graph) -> Border | None:
    """Return the border of a node's result for a bordered input; None: it is no longer a border."""
    kind = graph.types[node.outputs[0]]
    if node.op == "Transpose":
        perm = Permutation.of(node).perm
        before, behind = (tuple(side[dim] for dim in perm) for side in (border.before, border.behind))
        return Border(before, behind, border.value)
    if node.op == "Reshape":
        return _reshaped(border, graph.types[node.inputs[0]].shape, kind.shape)
    if node.op == "Cast" and kind.dtype is DType.FLOAT32 and border.value.dtype.itemsize <= 2:
        return replace(border, value=border.value.astype(np.float32))
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        value = _converted(node, border.value, graph)
        return None if value is None else replace(border, value=value)
    padding = _border(node, graph) if isinstance(node.attrs, Pad) else None
    if padding is not None and np.array_equal(padding.value, border.value):
        before = tuple(a + b for a, b in zip(padding.before, border.before, strict=True))
        return Border(before, tuple(a + b for a, b in zip(padding.behind, border.behind, strict=True)), border.value)
    return None


def _reshaped(border: Border, shape: Sides, result: Sides) -> Border | None:
    """Return the border after a view that adds and drops dimensions of one element."""
    sizes = [size for size in shape if size != 1]
    if sizes != [size for size in result if size != 1]:
        return None
    sides = iter([pair for size, *pair in zip(shape, border.before, border.behind, strict=True) if size != 1])
    pairs = [next(sides) if size != 1 else [0, 0] for size in result]
    return Border(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), border.value)


def _converted(node: Node, value: Array, graph: Graph) -> Array | None:
    """Apply a quantization or dequantization with one constant scale to a number."""
    data = [graph.constants.get(name) for name in node.inputs[1:] if name]
    constants = [array.reshape(-1)[0] for array in data if array is not None and array.size == 1]
    before, after = (graph.types[name].dtype for name in (node.inputs[0], node.outputs[0]))
    real, integer = (before, after) if node.op == "QuantizeLinear" else (after, before)
    is_plain = real is DType.FLOAT32 and integer.is_integer and integer.size <= 2
    if len(constants) < len(data) or Quantization.of(node).block_size or not is_plain:
        return None
    scale, point = constants[0], int(constants[1]) if len(constants) > 1 else 0
    if node.op == "DequantizeLinear":
        return np.asarray(np.float32(int(value) - point) * np.float32(scale))
    with np.errstate(over="ignore"):
        steps = np.rint(value / np.float32(scale)) + point
    return None if np.isnan(steps) else np.asarray(np.clip(steps, *integer.limits)).astype(integer.numpy)


def _window(node: Node, border: Border, facts: "_Facts") -> Attributes | None:
    """Return the attributes of a window that does the padding itself; None: it can't, or is not a window."""
    attrs, graph = node.attrs, facts.graph
    if not isinstance(attrs, Window) or any((*border.before[:2], *border.behind[:2])):
        return None  # images or channels
    shape, result_shape = (graph.types[value].shape for value in (node.inputs[0], node.outputs[0]))
    inner = border.inside(shape)[2:]
    if node.op == "Pool" and isinstance(attrs, Pool):
        return _pool(attrs, border, inner, result_shape[2:], lambda: facts.least(node.inputs[0]))
    if node.op == "ConvTranspose":  # its own pads remove padding again
        pads = tuple(p - b * s for p, b, s in zip(attrs.pads, border.before[2:], attrs.strides, strict=True))
        return replace(attrs, pads=pads) if border.value == 0 and min(pads) >= 0 else None
    if node.op not in (CONV, "ConvInteger") or border.value != _zero(node, graph):
        return None
    return replace(attrs, pads=_pads(attrs, border, inner, result_shape[2:]))


def _zero(node: Node, graph: Graph) -> int | None:
    """Return the padding value of a convolution; None: it is only known at run time."""
    if node.op == CONV or len(node.inputs) < 3 or not node.inputs[2]:
        return 0
    point = graph.constants.get(node.inputs[2])
    return int(point.reshape(-1)[0]) if point is not None and point.size == 1 else None


def _pads(attrs: Window, border: Border, inner: Sides, out_size: Sides) -> Sides:
    """Return a window's pads plus a border's; at the end only as far as `out_size` windows reach beyond `inner`."""
    before = tuple(pad + more for pad, more in zip(attrs.pads, border.before[2:], strict=False))
    ends = replace(attrs, pads=before).ends(out_size)
    return (*before, *(max(end - size, 0) for end, size in zip(ends, inner, strict=True)))


def _pool(attrs: Pool, border: Border, inner: Sides, out_size: Sides, least: Callable[[], Array]) -> Pool | None:
    """Return a pool that does the padding itself, if none of its windows lies entirely in the padding.

    Padding does not change a maximum if no element is below it; an average may be padded with zeros if it counts them.
    """
    limits = tuple(limit - more for limit, more in zip(attrs.limits, border.before[2:], strict=True))
    pool = replace(attrs, pads=_pads(attrs, border, inner, out_size), limits=limits)
    if not all(counts.all() for counts in pool.inside(inner, out_size)):
        return None
    if attrs.kind == "max" and border.value <= least():
        return pool
    counted = attrs.kind == "average" and (attrs.count_pads or not any(attrs.pads))
    return replace(pool, count_pads=True) if counted and border.value == 0 else None


class _Facts:
    """Facts about a graph's values: their readers, and a lower bound of their elements."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.readers = graph.consumers()
        self._makers = graph.producers()

    def least(self, value: str) -> Array:
        """Return a lower bound of a value's elements, borders excluded."""
        path: list[Node] = []
        while value in self._makers and len(path) < MAX_NODES:
            node = self._makers[value]
            if not node.inputs or len(node.outputs) > 1:
                break
            path.append(node)
            value = node.inputs[0]
        bound = _lowest(self.graph.types[value].dtype)
        for node in reversed(path):
            after = self._after(node, bound)
            bound = _lowest(self.graph.types[node.outputs[0]].dtype) if after is None else after
        return bound

    def _after(self, node: Node, least: Array) -> Array | None:
        """Return the lower bound of a node's result from that of its input; None: unbounded."""
        kind = self.graph.types[node.outputs[0]].dtype
        if node.op in ("Transpose", "Reshape", "Slice", "Pad") or (
            isinstance(node.attrs, Pool) and node.attrs.kind == "max"
        ):
            return least
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            return _converted(node, least, self.graph)
        if node.op == "Cast" and kind is DType.FLOAT32 and least.dtype.itemsize <= 2:
            return least.astype(np.float32)
        if node.op in ("Relu", "Sigmoid"):
            return np.maximum(least, 0).astype(kind.numpy)
        if node.op == "Clip":
            low = self.graph.constants.get(node.inputs[1])
            return np.maximum(least, low.reshape(-1)[0]) if low is not None and low.size == 1 else least
        if isinstance(node.attrs, Limits):
            return np.asarray(node.attrs.low, kind.numpy)
        return None


def _lowest(dtype: DType) -> Array:
    return np.asarray(dtype.limits[0] if dtype.is_integer else np.finfo(np.float32).min, dtype.numpy)
