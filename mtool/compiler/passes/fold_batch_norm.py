"""Fold BatchNormalization into the product before it: a convolution with constant weights, or any quantized ones.

Quantized weights stay integers: their scales are multiplied, and where a factor is negative, the integers are negated.
"""

from collections.abc import Mapping

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, Graph, Node, Rewriter, rewritten
from mtool.compiler.operators.epilogue import real_numbers
from mtool.compiler.operators.gemm import Gemm
from mtool.compiler.operators.lowering import Epsilon
from mtool.compiler.operators.movement import Permutation
from mtool.compiler.operators.quantize import Quantization, stored_constant
from mtool.compiler.operators.window import CONV


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold BatchNormalization into constant weights and bias, if nothing else reads the product."""
    producers, consumers = graph.producers(), graph.consumers()
    folded: dict[str, Node] = {}
    gone: set[str] = set()
    for norm in graph.nodes:
        product = producers.get(norm.inputs[0]) if norm.op == "BatchNormalization" else None
        if product is None or product.outputs[0] in graph.outputs or len(consumers[product.outputs[0]]) > 1:
            continue
        if all(value in graph.constants for value in norm.inputs[1:]) and _Scaled.of(product, norm, graph, producers):
            folded[product.name] = norm
            gone.add(norm.name)

    def change(rewriter: Rewriter, node: Node) -> Node | None:
        scaled = _Scaled.of(node, folded[node.name], graph, producers) if node.name in folded else None
        if scaled is not None:
            scaled.append(rewriter, folded[node.name])
        return None if scaled is not None or node.name in gone else node

    return rewritten(graph, change)


@frozen
class _Scaled:
    """A product whose weights are multiplied by the factors of a BatchNormalization.

    data: the weights, or the integers that `dequantize` makes real; `scale` and `axis` are theirs then.
    turn: the transposition behind that, if there is one.
    bias: what is added to each channel.
    """

    product: Node
    data: Array
    bias: Array
    dequantize: Node | None = None
    turn: Node | None = None
    scale: Array | None = None
    axis: int = 0

    @classmethod
    def of(cls, product: Node, norm: Node, graph: Graph, producers: Mapping[str, Node]) -> "_Scaled | None":
        """Return a product with a BatchNormalization folded in; None: it has no constant weights or bias."""
        channel = _channel_axis(product, graph)
        if channel is None:
            return None
        bias_name = product.inputs[2] if len(product.inputs) > 2 else ""
        bias = _bias(bias_name, graph, producers) if bias_name else np.zeros(1)
        if bias is None:
            return None
        gamma, shift, mean, variance = (graph.constants[value].astype(np.float64) for value in norm.inputs[1:])
        factor = gamma / np.sqrt(variance + Epsilon.of(norm).epsilon)
        added = ((bias - mean) * factor + shift).astype(np.float32)
        weights = graph.constants.get(product.inputs[1])
        if weights is not None:
            if product.op != CONV:
                return None
            filters = weights.astype(np.float64) * factor.reshape(-1, *[1] * (weights.ndim - 1))
            return cls(product, filters.astype(np.float32), added)
        turn = producers.get(product.inputs[1])
        dequantize = turn
        if turn is not None and turn.op == "Transpose":
            dequantize, channel = producers.get(turn.inputs[0]), Permutation.of(turn).perm[channel]
        else:
            turn = None
        integers = None if dequantize is None else _integers(dequantize, channel, graph)
        if integers is None:
            return None
        data, scale = integers
        scale = (scale * np.where(factor == 0, 1, np.abs(factor))).astype(np.float32)
        if not (np.isfinite(scale) & (scale > 0)).all():
            return None
        signs = np.sign(factor).astype(np.int8).reshape([-1 if dim == channel else 1 for dim in range(data.ndim)])
        if data.min(initial=0) == -128 and (signs < 0).any():
            return None
        return cls(product, data * signs, added, dequantize, turn, scale, channel)

    def append(self, rewriter: Rewriter, norm: Node) -> None:
        """Append the product to a graph, with the BatchNormalization's output."""
        product = self.product
        weights = rewriter.constant(f"{product.name}/filters", self.data)
        if self.dequantize is not None and self.scale is not None:
            scale = rewriter.constant(f"{product.name}/scale", self.scale)
            real = rewriter.like(f"{product.name}/real", rewriter.types[self.dequantize.outputs[0]])
            attrs = Quantization(axis=self.axis)
            rewriter.node("DequantizeLinear", [weights, scale], [real], attrs, like=self.dequantize)
            weights = real
        if self.turn is not None:
            turned = rewriter.like(f"{product.name}/turned", rewriter.types[self.turn.outputs[0]])
            rewriter.node("Transpose", [weights], [turned], self.turn.attrs, like=self.turn)
            weights = turned
        source, shift = rewriter.resolve(product.inputs[0]), rewriter.constant(f"{product.name}/shift", self.bias)
        if product.op != "MatMul":
            inputs = [source, weights, shift]
            rewriter.node(product.op, inputs, norm.outputs, product.attrs, like=product, origins=norm.origins)
            return
        sums = rewriter.like(f"{product.name}/sums", rewriter.types[product.outputs[0]])
        rewriter.node("MatMul", [source, weights], [sums], product.attrs, like=product)
        rewriter.node("Add", [sums, shift], norm.outputs, like=norm)


def _channel_axis(product: Node, graph: Graph) -> int | None:
    """Return the dimension of the weights that the output's channels lie along; None: it is not such a product."""
    if product.op == CONV:
        return 0
    if product.op == "MatMul":
        return 1 if all(len(graph.types[value].shape) == 2 for value in product.inputs) else None
    attrs = Gemm.of(product) if product.op == "Gemm" else None
    if attrs is None or attrs.alpha != 1 or attrs.beta != 1:
        return None
    return 0 if attrs.transB else 1


def _bias(value: str, graph: Graph, producers: Mapping[str, Node]) -> Array | None:
    """Return a constant bias, one number per channel, or one number for all; None: it is not constant."""
    data = graph.constants.get(value)
    maker = producers.get(value)
    if data is None and maker is not None and (stored := _integers(maker, 0, graph, np.int32)):
        data = real_numbers(stored[0], stored[1], np.zeros(1, np.int32), 0)
    if data is None or data.size not in (1, *data.shape[-1:]):
        return None
    return data.reshape(-1).astype(np.float64)


def _integers(node: Node, axis: int, graph: Graph, kind: type = np.int8) -> tuple[Array, Array] | None:
    """Return the constant integers that a node dequantizes, less their zero point, and their scales along an axis.

    None: it is another node, or they are not of this type then.
    """
    stored = stored_constant(node, graph.constants)
    if stored is None or (stored[1].size > 1 and (stored[3] != axis or stored[1].size != stored[0].shape[axis])):
        return None
    data, scale, point, _ = stored
    view = [-1 if dim == axis and point.size > 1 else 1 for dim in range(data.ndim)]
    centred = data.astype(np.int64) - point.astype(np.int64).reshape(view)
    limits = np.iinfo(kind)
    if centred.size and (centred.min() < limits.min or centred.max() > limits.max):
        return None
    return centred.astype(kind), scale.reshape(-1)
