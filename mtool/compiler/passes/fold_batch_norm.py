"""Fold BatchNormalization into the float convolution before it (both linear a channel)."""

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.operators.lowering import Epsilon
from mtool.compiler.operators.window import CONV


def fold_batch_norm(graph: Graph) -> Graph:
    """Scale the filters and shift the bias; needs constant filters, and nothing else that reads the convolution."""
    producers, consumers = graph.producers(), graph.consumers()
    rewriter = Rewriter(graph)
    folded: dict[str, Node] = {}
    gone, outputs = set(), {*graph.outputs}
    for node in graph.nodes:
        conv = producers.get(node.inputs[0]) if node.op == "BatchNormalization" else None
        constant = conv is not None and all(v in graph.constants for v in [*conv.inputs[1:], *node.inputs[1:]] if v)
        if conv is None or conv.op != CONV or conv.outputs[0] in outputs:
            continue
        if constant and len(consumers[conv.outputs[0]]) == 1:
            folded[conv.name] = node
            gone.add(node.name)
    for node in graph.nodes:
        if node.name in folded:
            _append(rewriter, node, folded[node.name])
        elif node.name not in gone:
            rewriter.keep(node)
    return rewriter.finish()


def _append(rewriter: Rewriter, conv: Node, norm: Node) -> None:
    constants = rewriter.constants
    scale, shift, mean, variance = (constants[value].astype(np.float64) for value in norm.inputs[1:])
    factor = scale / np.sqrt(variance + Epsilon.of(norm).epsilon)
    filters = constants[conv.inputs[1]].astype(np.float64)
    bias = constants[conv.inputs[2]] if len(conv.inputs) > 2 and conv.inputs[2] else np.zeros(filters.shape[0])
    scaled = filters * factor.reshape(-1, *[1] * (filters.ndim - 1))
    inputs = [
        rewriter.resolve(conv.inputs[0]),
        rewriter.constant(f"{conv.name}/filters", scaled.astype(np.float32)),
        rewriter.constant(f"{conv.name}/shift", ((bias - mean) * factor + shift).astype(np.float32)),
    ]
    rewriter.node(CONV, inputs, norm.outputs, conv.attrs, like=conv, origins=norm.origins)
