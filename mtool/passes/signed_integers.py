"""Activations in uint8 become int8 with the same scale: the SIMD schedules compute with signed bytes.

A quantisation rounds before it adds the zero point, so q - 128 with a zero point 128 less is the same number.
"""

from dataclasses import replace

import numpy as np

from mtool.ir import DType, Graph, Node
from mtool.ir.graph import Rewriter
from mtool.ops.schedule import Target

OFFSET = 128


def use_signed_integers(graph: Graph, target: Target) -> Graph:
    """Move the uint8 values between QuantizeLinear and DequantizeLinear to int8.

    Inputs and outputs of the model stay uint8: they are requantised, which later passes find to be a shift.
    """
    if not (target.has_dsp or target.has_mve):
        return graph
    consumers, producers = graph.consumers(), graph.producers()
    moved = {value for value in graph.types if _is_moved(graph, value, producers.get(value), consumers.get(value, []))}
    rewriter = Rewriter(graph)
    inner = {value: rewriter.value(f"{value}.signed", DType.INT8, graph.types[value].shape) for value in sorted(moved)}
    for value, signed in inner.items():
        if value in rewriter.sources:
            rewriter.sources[signed] = rewriter.sources[value].then(("signed", (OFFSET,)))
    for value in graph.inputs:
        if value in moved:
            _requantise(rewriter, consumers[value][0], value, inner[value], inwards=True)
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and node.inputs[0] in moved:
            _append(rewriter, node, inner[node.inputs[0]], node.outputs[0])
        elif node.op == "QuantizeLinear" and node.outputs[0] in moved:
            _append(rewriter, node, node.inputs[0], inner[node.outputs[0]])
            if node.outputs[0] in graph.outputs:
                _requantise(rewriter, node, inner[node.outputs[0]], node.outputs[0], inwards=False)
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _is_moved(graph: Graph, value: str, producer: Node | None, readers: list[Node]) -> bool:
    """Whether a value is uint8, an input or quantised, and read by nothing but dequantisations."""
    if graph.types[value].dtype is not DType.UINT8 or value in graph.constants:
        return False
    made = producer is not None and _has_parameters(graph, producer, "QuantizeLinear")
    given = value in graph.inputs and bool(readers)
    return (made or given) and all(_has_parameters(graph, node, "DequantizeLinear") for node in readers)


def _has_parameters(graph: Graph, node: Node, op: str) -> bool:
    """Whether a node is this operator with one constant scale and zero point."""
    return node.op == op and all(
        value in graph.constants and graph.constants[value].size == 1 for value in node.inputs[1:] if value
    )


def _append(rewriter: Rewriter, node: Node, source: str, output: str) -> None:
    """Append a quantisation or dequantisation with its zero point 128 less."""
    point = _signed_point(rewriter, node)
    rewriter.nodes.append(replace(node, inputs=(rewriter.resolve(source), node.inputs[1], point), outputs=(output,)))


def _signed_point(rewriter: Rewriter, node: Node) -> str:
    point = rewriter.constants[_point(rewriter, node)].astype(np.int32) - OFFSET
    return rewriter.constant(f"{node.name}/zero_point", point.astype(np.int8))


def _point(rewriter: Rewriter, node: Node) -> str:
    if len(node.inputs) > 2 and node.inputs[2]:
        return node.inputs[2]
    return rewriter.constant(f"{node.name}/zero_point", np.zeros(rewriter.types[node.inputs[1]].shape, np.uint8))


def _requantise(rewriter: Rewriter, like: Node, source: str, output: str, *, inwards: bool) -> None:
    """Append the dequantisation of uint8 and the quantisation to int8, or the other way round."""
    scale = like.inputs[1]
    points = (_point(rewriter, like), _signed_point(rewriter, like))
    old, new = points if inwards else points[::-1]
    real = rewriter.value(f"{source}.real", DType.FLOAT32, rewriter.types[source].shape)
    attrs = {key: value for key, value in like.attrs.items() if key == "axis"}
    rewriter.node("DequantizeLinear", [source, scale, old], [real], attrs, like=like)
    rewriter.node("QuantizeLinear", [real, scale, new], [output], attrs, like=like)
