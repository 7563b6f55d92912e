"""Channels last: operators on images and sequences between transpositions, which then move to where nothing wants them.

A network in ONNX's layout becomes what a TFLite model is once it is imported: each operator on images stands between a
transposition to ONNX's layout and one back, so that backends see it with its channels last, and of the others none is
left but at borders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.backends.reading import SPATIAL
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.operators.elementwise import BINARY, UNARY
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, AlongAxis
from mtool.compiler.operators.movement import Permutation
from mtool.compiler.operators.quantize import Quantisation

_FOLLOWING = frozenset({*UNARY, *BINARY, "Clip", "LeakyRelu", "HardSigmoid", "Elu", "QuantizeLinear",
                        "DequantizeLinear", "Concat"})  # fmt: skip
_FIRST = {3: (0, 2, 1), 4: NCHW_OF_NHWC}
_LAST = {3: (0, 2, 1), 4: NHWC_OF_NCHW}
"""By rank, the dimensions of one layout as the other numbers them."""


def put_channels_last(graph: Graph) -> Graph:
    """Return a graph whose operators on images and sequences stand between transpositions, as few as can be."""
    return _Pass(graph).run()


class _Pass(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.producers = graph.producers()
        self.last: dict[str, str] = {}  # values that are known with their channels last
        self.first: dict[str, str] = {}  # the values that those with channels last are transpositions of

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if self._is(node, _LAST) and node.inputs[0] in self.last:
                self.rename(node.outputs[0], self.last[node.inputs[0]])
            elif self._is(node, _FIRST):
                self._see(node.outputs[0], node.inputs[0])
                self.keep(node)
            elif node.op in SPATIAL and self._rank(node.inputs[0]) in _LAST and len(node.outputs) == 1:
                self._spatial(node)
            elif node.op in _FOLLOWING and self._can_follow(node):
                self._follow(node)
            else:
                self._plain(node)
        for value in self.outputs:
            self._channels_first(value)
        return self.finish()

    def _rank(self, value: str) -> int:
        return len(self.types[value].shape)

    def _is(self, node: Node, perms: Mapping[int, tuple[int, ...]]) -> bool:
        """Whether a node is a transposition to a layout; of three dimensions, it may be one to either."""
        return node.op == "Transpose" and tuple(Permutation.of(node).perm) == perms.get(self._rank(node.inputs[0]))

    def _see(self, value: str, last: str) -> None:
        self.last[value] = self.resolve(last)

    def _spatial(self, node: Node) -> None:
        """Put an operator on images between a transposition to ONNX's layout and one back."""
        source = self._channels_last(node.inputs[0], node)
        inner = self._transposed(node, source, _FIRST[self._rank(node.inputs[0])])
        others = [self._given(value) for value in node.inputs[1:]]
        made = self.value(f"{node.outputs[0]}.first", self.types[node.outputs[0]].dtype,
                          self.types[node.outputs[0]].shape)  # fmt: skip
        self.nodes.append(replace(node, inputs=(inner, *others), outputs=(made,)))
        self._known(node.outputs[0], self._transposed(node, made, _LAST[self._rank(node.outputs[0])]))

    def _can_follow(self, node: Node) -> bool:
        """Whether an operator may be computed with its channels last: its images are known so, all else is constant."""
        images = [value for value in node.inputs if value in self.last]
        shape = self.types[node.outputs[0]].shape
        return bool(images) and len(shape) in _LAST and all(
            value in self.last or not value or self._is_small_constant(node, value) for value in node.inputs
        )  # fmt: skip

    def _is_small_constant(self, node: Node, value: str) -> bool:
        rank = self._rank(node.outputs[0])
        return value in self.graph.constants and (node.op != "Concat" or self._rank(value) == rank)

    def _follow(self, node: Node) -> None:
        inputs, attrs = [], node.attrs
        kind = self.types[node.outputs[0]]
        rank = len(kind.shape)
        grid = node.op in ("QuantizeLinear", "DequantizeLinear")
        for number, value in enumerate(node.inputs):
            if value in self.last:
                inputs.append(self.last[value])
            elif not value or (grid and number) or node.op == "Clip":
                inputs.append(value)
            else:
                inputs.append(self._constant_last(value, rank))
        if isinstance(attrs, Quantisation | AlongAxis):
            attrs = replace(attrs, axis=_FIRST[rank][attrs.axis % rank])
        made = self.value(f"{node.outputs[0]}.last", kind.dtype, [kind.shape[dim] for dim in _LAST[rank]])
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=(made,), attrs=attrs))
        self._known(node.outputs[0], made)

    def _constant_last(self, value: str, rank: int) -> str:
        data = self.constants[value]
        if data.size == 1:
            return value
        whole = data.reshape((1,) * (rank - data.ndim) + data.shape)
        return self.constant(f"{value}.last", np.ascontiguousarray(whole.transpose(_LAST[rank])))

    def _plain(self, node: Node) -> None:
        self.nodes.append(replace(node, inputs=tuple(self._given(value) for value in node.inputs)))

    def _has_one_grid(self, node: Node) -> bool:
        """Whether a node dequantises with one scale, so that a transposition may stand before it."""
        return node.op == "DequantizeLinear" and self.types[node.inputs[1]].count == 1

    def _known(self, value: str, last: str) -> None:
        """Note that a value exists with its channels last, and not in ONNX's layout yet."""
        self.last[value] = last
        self.first[value] = ""
        rank = self._rank(value)
        if value in self.sources:
            self.sources[last] = self.sources[value].then(("transpose", _LAST[rank]))
        if value in self.quant:
            quant = self.quant[value]
            axis = None if quant.axis is None else _FIRST[rank][quant.axis % rank]
            self.quant[last] = replace(quant, axis=axis)

    def _given(self, value: str) -> str:
        """Return a value as an operator of ONNX's layout reads it."""
        return self._channels_first(value) if value in self.first else self.resolve(value)

    def _channels_first(self, value: str) -> str:
        if value in self.first and not self.first[value]:
            source = self.producers[value]
            if self._has_one_grid(source) and source.inputs[0] in self.first:  # of the integers, which are smaller
                made = self._channels_first(source.inputs[0])
                self.node("DequantizeLinear", [made, *source.inputs[1:]], [value], source.attrs, like=source)
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
        made = self.value(f"{value}.t", kind.dtype, [kind.shape[dim] for dim in perm])
        self._append_transposition(value, made, perm, node)
        return made

    def _append_transposition(self, value: str, made: str, perm: Sequence[int], like: Node | None = None) -> None:
        self.node("Transpose", [value], [made], Permutation(perm=tuple(perm)), like=like)
