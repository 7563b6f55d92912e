"""Reads operations: the operators of an imported graph with the quantization and layout around them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.backends.interface import Activation, Operand, Operation
from mtool.compiler.ir import Graph, Node, Quant
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.operators.elementwise import BINARY, UNARY
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, AlongAxis
from mtool.compiler.operators.movement import Permutation
from mtool.compiler.operators.quantize import WHOLE_MOVES, Quantization
from mtool.compiler.operators.window import CONV

SPATIAL = frozenset({CONV, "ConvTranspose", "Pool", "Resize", "DepthToSpace", "SpaceToDepth", "LRN"})
"""Operators with ONNX's layout: the channels after the batch."""
_TO_NCHW = (NCHW_OF_NHWC, (0, 2, 1))
_TO_NHWC = (NHWC_OF_NCHW, (0, 2, 1))
_CLIPS = frozenset({"Relu", "Clip"})


def operations_of(graph: Graph) -> list[Operation]:
    """Return the operations of a graph as the frontend leaves it, in its order.

    Every node is part of one, except for dequantizations, transpositions and constants that operations absorb.
    """
    return _Reader(graph).operations()


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers, self.consumers = graph.producers(), graph.consumers()
        self.absorbed: set[str] = set()  # the nodes that are part of an operation
        self.grids: dict[str, Quant] = {}  # of quantized values, including moves after quantization
        for node in graph.nodes:
            if node.op in ("QuantizeLinear", "DequantizeLinear") and (grid := self._grid(node)) is not None:
                self.grids.setdefault(node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0], grid)
            elif node.op in WHOLE_MOVES and (grid := self.grids.get(node.inputs[0])) and grid.axis is None:
                self.grids[node.outputs[0]] = grid
        self.through: dict[str, set[str]] = {}  # by value that an operation saw through: the operations' nodes

    def operations(self) -> list[Operation]:
        graph = self.graph
        operations: dict[str, Operation] = {}
        for node in graph.nodes:
            if node.name not in self.absorbed and not self._is_wrapper(node):
                operations[node.name] = self._operation(node)
        for node in graph.nodes:  # wrappers that something reads as they are
            if node.name in self.absorbed or node.name in operations:
                continue
            seen = self.through.get(node.outputs[0], set())
            readers = {reader.name for reader in self.consumers.get(node.outputs[0], ())}
            if node.outputs[0] in graph.outputs or readers - seen:
                operations[node.name] = self._single(node)
                for value in node.inputs:  # it reads the value after it unchanged
                    self.through.get(value, set()).discard(node.name)
        order = {node.name: number for number, node in enumerate(graph.nodes)}
        return sorted(operations.values(), key=lambda operation: order[operation.name])

    def _is_wrapper(self, node: Node) -> bool:
        """Whether a node only changes quantization or layout, which the operations after it may absorb."""
        return (node.op == "DequantizeLinear" and self._grid(node) is not None) or self._is_layout(node, _TO_NCHW)

    def _is_layout(self, node: Node | None, perms: tuple[tuple[int, ...], ...]) -> bool:
        return node is not None and node.op == "Transpose" and Permutation.of(node).perm in perms

    def _single(self, node: Node) -> Operation:
        """Return a node as an operation, with nothing around it."""
        inputs = tuple(self._operand(value) if value else None for value in node.inputs)
        outputs = tuple(self._operand(value) for value in node.outputs if value)
        self.absorbed.add(node.name)
        macs = _macs(node, [operand for operand in inputs if operand], outputs[0]) if outputs else 0
        return Operation(node.op, node.name, node.origins, inputs, outputs, node.attrs, macs=macs)

    def _operation(self, node: Node) -> Operation:
        layout = "NCHW" if node.op in SPATIAL else ""
        if layout and self._is_channels_last(node):
            layout = "NHWC"
        if len(node.outputs) != 1 or not node.inputs:
            return self._single(node)
        behind, activation, biases = self._behind(node, layout == "NHWC")
        value = behind[-1].outputs[0] if behind else node.outputs[0]
        is_stored = not self.graph.types[value].dtype.is_float
        inputs: list[Operand | None] = []
        for number, (reader, source) in enumerate([*((node, value) for value in node.inputs), *biases]):
            sees = is_stored or self._is_constant(source)
            is_image = layout == "NHWC" and number == 0
            inputs.append(self._seen_through(reader, source, sees_grids=sees, is_image=is_image) if source else None)
        origins = tuple(dict.fromkeys(origin for member in (node, *behind) for origin in member.origins))
        nodes = {member.name for member in (node, *behind)}
        self.absorbed |= nodes
        output = self._operand(value)
        macs = _macs(node, [operand for operand in inputs if operand], output)
        return Operation(node.op, node.name, origins, tuple(inputs), (output,), node.attrs, activation, layout, macs)

    def _behind(self, node: Node, back: bool) -> tuple[list[Node], Activation | None, list[tuple[Node, str]]]:
        """Return the nodes after an operator that belong to it, their clipping, and the bias that they add."""
        value, activation, quantized = node.outputs[0], None, False
        nodes: list[Node] = []
        biases: list[tuple[Node, str]] = []
        while (reader := self._only_reader(value)) is not None:
            if back and self._is_layout(reader, _TO_NHWC):
                back = False
            elif quantized:
                break
            elif reader.op == "QuantizeLinear" and self._grid(reader) is not None:
                quantized = True
            elif not biases and activation is None and self._is_bias(node, reader, value):
                biases.append((reader, reader.inputs[1] if reader.inputs[0] == value else reader.inputs[0]))
            elif reader.op in _CLIPS and (clip := self._clip(reader)) is not None:
                activation = _both(activation, clip)
            else:
                break
            nodes.append(reader)
            value = reader.outputs[0]
        assert not back, f"{node.name} has lost its layout"
        return nodes, activation, biases

    def _is_channels_last(self, node: Node) -> bool:
        """Whether an operator on images is between a transposition to ONNX's layout and one back."""
        source = self.producers.get(node.inputs[0])
        while source is not None and source.op == "DequantizeLinear" and self._grid(source) is not None:
            source = self.producers.get(source.inputs[0])
        if not self._is_layout(source, _TO_NCHW):
            return False
        value = node.outputs[0]
        while (reader := self._only_reader(value)) is not None:
            if self._is_layout(reader, _TO_NHWC):
                return True
            if reader.op not in ("QuantizeLinear", *_CLIPS):
                return False
            value = reader.outputs[0]
        return False

    def _is_constant(self, value: str) -> bool:
        """Whether a value is a constant, quantized or not."""
        source = self.producers.get(value)
        return (source.inputs[0] if source and source.op == "DequantizeLinear" else value) in self.graph.constants

    def _seen_through(self, reader: Node, value: str, *, sees_grids: bool, is_image: bool) -> Operand:
        """Return the operand before a dequantization and, for an image, before a transposition."""
        quant: Quant | None = None
        while (source := self.producers.get(value)) is not None:
            if (
                sees_grids
                and quant is None
                and source.op == "DequantizeLinear"
                and (grid := self._grid(source)) is not None
            ):
                quant = grid
            elif is_image and self._is_layout(source, _TO_NCHW):
                is_image = False
            else:
                break
            self.through.setdefault(value, set()).add(reader.name)
            reader, value = source, source.inputs[0]
        return self._operand(value, quant)

    def _only_reader(self, value: str) -> Node | None:
        """Return the one node that reads a value; None: several do, or none, or the caller."""
        readers = self.consumers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self.graph.outputs else None

    def _operand(self, value: str, quant: Quant | None = None) -> Operand:
        graph = self.graph
        source = graph.sources.get(value)
        quant = quant or self.grids.get(value) or graph.quant.get(value)
        return Operand(value, source.tensor if source else value, graph.types[value], quant, graph.constants.get(value))

    def _grid(self, node: Node) -> Quant | None:
        """Return the constant quantization of a QuantizeLinear or DequantizeLinear, per tensor or along a dimension."""
        graph, attrs = self.graph, Quantization.of(node)
        if any(value and value not in graph.constants for value in node.inputs[1:]) or attrs.block_size:
            return None
        scale = graph.constants[node.inputs[1]]
        points = graph.constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None
        if scale.ndim > 1:
            return None
        rank = len(graph.types[node.inputs[0]].shape)
        axis = None if scale.size == 1 else attrs.axis % rank
        zeros = (0,) * scale.size if points is None else tuple(map(int, points.reshape(-1)))
        return Quant(tuple(map(float, scale.reshape(-1))), zeros, axis)

    def _is_bias(self, node: Node, reader: Node, value: str) -> bool:
        """Whether a node adds a constant per column to a matrix product."""
        if node.op != "MatMul" or reader.op != "Add":
            return False
        other = reader.inputs[1] if reader.inputs[0] == value else reader.inputs[0]
        source = self.producers.get(other)
        if source is not None and source.op == "DequantizeLinear":
            other = source.inputs[0]
        shape = self.graph.types[other].shape
        return other in self.graph.constants and shape == self.graph.types[value].shape[-1:]

    def _clip(self, node: Node) -> Activation | None:
        """Return the limits of a node that clips; None: they are not constant."""
        if node.op == "Relu":
            return Activation(low=0.0)
        limits: list[float | None] = []
        for number in (1, 2):
            value = node.inputs[number] if len(node.inputs) > number else ""
            data = self.graph.constants.get(value) if value else None
            if value and data is None:
                return None
            limits.append(None if data is None else float(data.reshape(-1)[0]))
        return Activation(*limits)


def _both(first: Activation | None, second: Activation) -> Activation:
    """Combine two successive clips."""
    if first is None:
        return second

    low = -math.inf if second.low is None else second.low
    high = math.inf if second.high is None else second.high

    def clipped(limit: float | None, otherwise: float | None) -> float | None:
        return otherwise if limit is None else min(max(limit, low), high)

    return Activation(clipped(first.low, second.low), clipped(first.high, second.high))


def _macs(node: Node, inputs: list[Operand], output: Operand) -> int:
    """Return the multiply-accumulates of a convolution, a matrix product or a recurrent operator of integers."""
    if node.op.startswith("Integer"):  # each row of x is multiplied by each of its matrices once
        x, *others = inputs
        rows = x.type.count // x.shape[-1]
        return rows * sum(other.type.count for other in others if other.is_constant and len(other.shape) == 2)
    if node.op not in (CONV, "ConvTranspose", "Gemm", "MatMul") or len(inputs) < 2:
        return 0
    weights = inputs[1].shape
    if node.op == CONV:
        return output.type.count * math.prod(weights[1:])
    return inputs[0].type.count * math.prod(weights[1:] if node.op == "ConvTranspose" else output.shape[-1:])


_FOLLOWING = frozenset({*UNARY, *BINARY, "Clip", "LeakyRelu", "HardSigmoid", "Elu", "QuantizeLinear",
                        "DequantizeLinear", "Concat"})  # fmt: skip
_FIRST = {3: (0, 2, 1), 4: NCHW_OF_NHWC}
_LAST = {3: (0, 2, 1), 4: NHWC_OF_NCHW}
"""By rank: the permutation from one layout to the other."""


def put_channels_last(graph: Graph) -> Graph:
    """Return a graph with operators on images and sequences between transpositions, as few as possible."""
    return _ChannelsLast(graph).run()


class _ChannelsLast(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.producers = graph.producers()
        self.last: dict[str, str] = {}  # values that exist with their channels last
        self.first: dict[str, str] = {}  # the values that those with channels last are transpositions of

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if self._is(node, _LAST) and node.inputs[0] in self.last:
                self.rename(node.outputs[0], self.last[node.inputs[0]])
            elif self._is(node, _FIRST):
                self.last[node.outputs[0]] = self.resolve(node.inputs[0])
                self.keep(node)
            elif node.op in SPATIAL and self._rank(node.inputs[0]) in _LAST and len(node.outputs) == 1:
                self._spatial(node)
            elif node.op in _FOLLOWING and self._can_follow(node):
                self._follow(node)
            else:
                self.nodes.append(replace(node, inputs=tuple(self._in_onnx_layout(value) for value in node.inputs)))
        for value in self.outputs:
            self._channels_first(value)
        return self.finish()

    def _rank(self, value: str) -> int:
        return len(self.types[value].shape)

    def _is(self, node: Node, perms: Mapping[int, tuple[int, ...]]) -> bool:
        """Whether a node is a transposition to a layout; of three dimensions, it may be one to either."""
        return node.op == "Transpose" and tuple(Permutation.of(node).perm) == perms.get(self._rank(node.inputs[0]))

    def _spatial(self, node: Node) -> None:
        """Put an operator on images between a transposition to ONNX's layout and one back."""
        source = self._channels_last(node.inputs[0], node)
        inner = self._transposed(node, source, _FIRST[self._rank(node.inputs[0])])
        others = [self._in_onnx_layout(value) for value in node.inputs[1:]]
        output = self.value(f"{node.outputs[0]}.first", self.types[node.outputs[0]].dtype,
                            self.types[node.outputs[0]].shape)  # fmt: skip
        self.nodes.append(replace(node, inputs=(inner, *others), outputs=(output,)))
        self._add_channels_last(node.outputs[0], self._transposed(node, output, _LAST[self._rank(node.outputs[0])]))

    def _can_follow(self, node: Node) -> bool:
        """Whether an operator may be computed with its channels last: its images exist so, all else is constant."""
        rank, others = self._rank(node.outputs[0]), [value for value in node.inputs if value and value not in self.last]
        return rank in _LAST and any(value in self.last for value in node.inputs) and all(
            value in self.graph.constants and (node.op != "Concat" or self._rank(value) == rank) for value in others
        )  # fmt: skip

    def _follow(self, node: Node) -> None:
        inputs, attrs = [], node.attrs
        kind = self.types[node.outputs[0]]
        rank = len(kind.shape)
        grid = node.op in ("QuantizeLinear", "DequantizeLinear")
        for number, value in enumerate(node.inputs):
            if value in self.last:
                inputs.append(self.last[value])
            elif not value or (grid and number) or node.op == "Clip" or self.constants[value].size == 1:
                inputs.append(value)
            else:
                data = self.constants[value]
                whole = data.reshape((1,) * (rank - data.ndim) + data.shape).transpose(_LAST[rank])
                inputs.append(self.constant(f"{value}.last", np.ascontiguousarray(whole)))
        if isinstance(attrs, Quantization | AlongAxis):
            attrs = replace(attrs, axis=_FIRST[rank][attrs.axis % rank])
        output = self.value(f"{node.outputs[0]}.last", kind.dtype, [kind.shape[dim] for dim in _LAST[rank]])
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=(output,), attrs=attrs))
        self._add_channels_last(node.outputs[0], output)

    def _has_one_grid(self, node: Node) -> bool:
        """Whether a node dequantizes with one scale, so that a transposition may precede it."""
        return node.op == "DequantizeLinear" and self.types[node.inputs[1]].count == 1

    def _add_channels_last(self, value: str, last: str) -> None:
        """Note that a value exists with its channels last, but not yet in ONNX's layout."""
        self.last[value] = last
        self.first[value] = ""
        rank = self._rank(value)
        if value in self.sources:
            self.sources[last] = self.sources[value].then(("transpose", _LAST[rank]))
        if value in self.quant:
            quant = self.quant[value]
            axis = None if quant.axis is None else _FIRST[rank][quant.axis % rank]
            self.quant[last] = replace(quant, axis=axis)

    def _in_onnx_layout(self, value: str) -> str:
        """Return a value as an operator of ONNX's layout reads it."""
        return self._channels_first(value) if value in self.first else self.resolve(value)

    def _channels_first(self, value: str) -> str:
        if value in self.first and not self.first[value]:
            source = self.producers[value]
            if self._has_one_grid(source) and source.inputs[0] in self.first:  # of the integers, which are smaller
                inner = self._channels_first(source.inputs[0])
                self.node("DequantizeLinear", [inner, *source.inputs[1:]], [value], source.attrs, like=source)
                self.first[value] = value
                return value
            self._append_transposition(self.last[value], value, _FIRST[self._rank(value)])
            self.first[value] = value
        return self.resolve(value)

    def _channels_last(self, value: str, reader: Node) -> str:
        source = self.producers.get(value)
        if value not in self.last and source is not None and self._has_one_grid(source):
            self.last[source.inputs[0]] = self._channels_last(source.inputs[0], source)
            self._follow(source)
        elif value not in self.last:
            perm = _LAST[self._rank(value)]
            self.last[value] = self._transposed(reader, self.resolve(value), perm)
            if value in self.sources:
                self.sources[self.last[value]] = self.sources[value].then(("transpose", perm))
            if value in self.quant and self.quant[value].axis is None:
                self.quant[self.last[value]] = self.quant[value]
        return self.last[value]

    def _transposed(self, node: Node, value: str, perm: Sequence[int]) -> str:
        kind = self.types[value]
        output = self.value(f"{value}.t", kind.dtype, [kind.shape[dim] for dim in perm])
        self._append_transposition(value, output, perm, node)
        return output

    def _append_transposition(self, value: str, output: str, perm: Sequence[int], like: Node | None = None) -> None:
        self.node("Transpose", [value], [output], Permutation(perm=tuple(perm)), like=like)
