"""Compute what depends on constants alone."""

import numpy as np

from mtool.ir import Graph
from mtool.ir.graph import Rewriter
from mtool.ir.scalar import evaluate


def fold_constants(graph: Graph) -> Graph:
    """Evaluate loops, views, transpositions and concatenations whose inputs are constants."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = [rewriter.resolve(value) for value in node.inputs]
        if node.op not in ("loop", "view", "transpose", "concat") or not all(v in rewriter.constants for v in inputs):
            rewriter.keep(node)
            continue
        data = [rewriter.constants[value] for value in inputs]
        kind = graph.types[node.outputs[0]]
        if node.op == "loop":
            result = evaluate(node.attrs["expr"], data, kind.shape)
        elif node.op == "view":
            result = data[0].reshape(kind.shape)
        elif node.op == "transpose":
            result = np.ascontiguousarray(data[0].transpose(node.attrs["perm"]))
        else:
            result = np.concatenate(data, axis=node.attrs["axis"])
        rewriter.constants[node.outputs[0]] = result
    return rewriter.finish()
