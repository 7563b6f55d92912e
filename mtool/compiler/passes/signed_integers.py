"""Activations in uint8 become int8 with the same scale, uint16 int16: SIMD schedules compute with signed numbers.

A quantisation rounds before it adds the zero point, so q - 128 with a zero point 128 less is the same number.
"""

from dataclasses import replace

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.kernels.target import Target
from mtool.compiler.operators.quantize import Quantisation

SIGNED = {DType.UINT8: (DType.INT8, 128), DType.UINT16: (DType.INT16, 32768)}  # what becomes of it, and how much less


def wants_signed(target: Target) -> bool:
    """Whether a target's schedules want signed integers."""
    return target.has_dsp or target.has_mve or target.has_rvv


def use_signed_integers(graph: Graph, target: Target) -> Graph:
    """Move the unsigned values between QuantizeLinear and DequantizeLinear to signed ones.

    Inputs and outputs of the model stay unsigned: they are requantised, which later passes find to be a shift.
    """
    if not wants_signed(target):
        return graph
    consumers, producers = graph.consumers(), graph.producers()
    moved = {value for value in graph.types if _is_moved(graph, value, producers.get(value), consumers.get(value, []))}
    rewriter = Rewriter(graph)
    kinds = {value: graph.types[value] for value in sorted(moved)}
    inner = {
        value: rewriter.value(f"{value}.signed", SIGNED[kind.dtype][0], kind.shape) for value, kind in kinds.items()
    }
    for value, signed in inner.items():
        if value in rewriter.sources:
            offset = SIGNED[graph.types[value].dtype][1]
            rewriter.sources[signed] = rewriter.sources[value].then(("signed", (offset,)))
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
    """Whether a value is uint8 or uint16, an input or quantised, and read by nothing but dequantisations."""
    if graph.types[value].dtype not in SIGNED or value in graph.constants:
        return False
    made = producer is not None and _has_parameters(graph, producer, "QuantizeLinear")
    is_input = value in graph.inputs and bool(readers)
    return (made or is_input) and all(_has_parameters(graph, node, "DequantizeLinear") for node in readers)


def _has_parameters(graph: Graph, node: Node, op: str) -> bool:
    """Whether a node is this operator with one constant scale and zero point."""
    return node.op == op and all(
        value in graph.constants and graph.constants[value].size == 1 for value in node.inputs[1:] if value
    )


def _append(rewriter: Rewriter, node: Node, source: str, output: str) -> None:
    """Append a quantisation or dequantisation with its zero point as much less as its numbers."""
    point = _signed_point(rewriter, node)
    rewriter.nodes.append(replace(node, inputs=(rewriter.resolve(source), node.inputs[1], point), outputs=(output,)))


def _signed_point(rewriter: Rewriter, node: Node) -> str:
    point = rewriter.constants[_point(rewriter, node)]
    kind, offset = SIGNED[DType.of(point.dtype)]
    return rewriter.constant(f"{node.name}/zero_point", (point.astype(np.int32) - offset).astype(kind.numpy))


def _point(rewriter: Rewriter, node: Node) -> str:
    if len(node.inputs) > 2 and node.inputs[2]:
        return node.inputs[2]
    value = node.inputs[0] if node.op == "DequantizeLinear" else node.outputs[0]
    zeros = np.zeros(rewriter.types[node.inputs[1]].shape, rewriter.types[value].dtype.numpy)
    return rewriter.constant(f"{node.name}/zero_point", zeros)


def _requantise(rewriter: Rewriter, like: Node, source: str, output: str, *, inwards: bool) -> None:
    """Append the dequantisation of unsigned and the quantisation to signed numbers, or the other way round."""
    scale = like.inputs[1]
    points = (_point(rewriter, like), _signed_point(rewriter, like))
    old, new = points if inwards else points[::-1]
    real = rewriter.value(f"{source}.real", DType.FLOAT32, rewriter.types[source].shape)
    attrs = Quantisation(axis=Quantisation.of(like).axis)
    rewriter.node("DequantizeLinear", [source, scale, old], [real], attrs, like=like)
    rewriter.node("QuantizeLinear", [real, scale, new], [output], attrs, like=like)
