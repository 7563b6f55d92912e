"""Layout of states in memory: quantized, and with time outermost, as their operators need them."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Array, Attributes, DType, Graph, Node, Quant, State
from mtool.compiler.ir.graph import Rewriter, rounded
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, AlongAxis, Dequantized, Lowering
from mtool.compiler.operators.movement import Permutation, Slice

_ELEMENTWISE = ("QuantizeLinear", "DequantizeLinear", "Identity")


def quantize_states(graph: Graph, dequantized: Mapping[str, Dequantized]) -> Graph:
    """Store a state as integers if its output is dequantized last, and dequantize it in the next run.

    This takes a quarter of the bytes; if the next run quantizes its input to the same grid, both disappear.

    Args:
        graph: just lowered.
        dequantized: the integers from which float values are dequantized.
    """
    ctx = Lowering(graph)
    outputs, states = list(graph.outputs), list(graph.states)
    renamed: dict[str, str] = {}
    for number, (state, value, output) in enumerate(graph.state_values):
        source = dequantized.get(output)
        source = None if source and source.block else source
        initial = _integers(state, graph.types[source.value].dtype, source, graph, value) if source else None
        if source is None or initial is None:
            continue
        ctx.types[value] = graph.types[source.value]
        ctx.sources.pop(value, None)
        ctx.quant[value] = Quant(
            tuple(float(scale) for scale in source.scale), tuple(int(point) for point in source.zero_point), source.axis
        )
        renamed[value] = ctx.value(f"{value}.float", DType.FLOAT32, graph.types[output].shape)
        ctx.dequantize(Node("dequantizelinear", f"{value}/read", (), ()), replace(source, value=value), renamed[value])
        outputs[len(graph.caller_outputs) + number] = source.value
        states[number] = replace(state, initial=initial)
    if not renamed:
        return graph
    for node in graph.nodes:
        ctx.keep(replace(node, inputs=tuple(renamed.get(value, value) for value in node.inputs)))
    ctx.outputs = tuple(outputs)
    return replace(ctx.finish(), states=tuple(states))


def _integers(state: State, dtype: DType, source: Dequantized, graph: Graph, value: str) -> Array | None:
    """Return a state's initial value in integers; None: they can't represent it exactly."""
    shape = graph.types[value].shape
    along = [1] * len(shape)
    if source.axis is not None:
        along[source.axis] = -1
    scale, zero_point = source.scale.reshape(along), source.zero_point.reshape(along)
    real = np.zeros(shape, np.float32) if state.initial is None else state.initial
    integers = rounded(real, scale, zero_point, dtype)
    exact = np.array_equal(((integers.astype(np.int64) - zero_point) * scale).astype(np.float32), real)
    return integers if exact else None


def put_time_outermost(graph: Graph) -> Graph:
    """Store stream buffers with the channels last, as the kernels need them.

    A concat along time, of a state or its end with new data, then appends in place, and a slice is a move: one copy
    each (mtool.compiler.plan.memory).
    """
    producers, consumers = graph.producers(), graph.consumers()
    for number in range(len(graph.states)):
        turned = _outermost(graph, number, producers, consumers)
        if turned is not graph:
            graph, producers, consumers = turned, turned.producers(), turned.consumers()
    return graph


def _outermost(graph: Graph, number: int, producers: Mapping[str, Node], consumers: Mapping[str, list[Node]]) -> Graph:
    state, value, output = graph.state_values[number]
    first, last = _single_reader(value, consumers), _maker(output, producers)
    if first is None or last is None or {first.op, last.op} != {"Concat", "Slice"}:
        return graph
    if _maker(last.inputs[0], producers) != first:
        return graph
    joined, cut = (first, last) if first.op == "Concat" else (last, first)
    shape, time = graph.types[value].shape, AlongAxis.of(joined).axis
    if len(shape) not in (3, 4) or shape[0] != 1 or math.prod(shape[:time]) == 1:
        return graph
    whole = _of_four(shape)
    after = NHWC_OF_NCHW.index(time + 4 - len(shape))
    if math.prod(whole[dim] for dim in NHWC_OF_NCHW[:after]) != 1:
        return graph
    rewriter = Rewriter(graph)
    turned = rewriter.types[value] = replace(graph.types[value], shape=_turned(shape))
    channels_first = rewriter.value(f"{value}.model", turned.dtype, shape)
    _channels_first(rewriter, value, channels_first, first)
    for node in graph.nodes:
        node = replace(node, inputs=tuple(channels_first if name == value else name for name in node.inputs))
        if node.name not in (joined.name, cut.name):
            rewriter.keep(node)
            continue
        inputs = [_channels_last(rewriter, name, node) for name in node.inputs]
        kind = graph.types[node.outputs[0]]
        converted = rewriter.value(f"{node.outputs[0]}.last", kind.dtype, _turned(kind.shape))
        attrs: Attributes = (
            replace(node.attrs, axis=after)
            if isinstance(node.attrs, AlongAxis)
            else Slice(first=_turned(Slice.of(node).first, 0), stride=_turned(Slice.of(node).stride))
        )
        rewriter.node(node.op, inputs, [converted], attrs, like=node)
        _channels_first(rewriter, converted, node.outputs[0], node)
    result = _channels_last(rewriter, output, last)
    outputs = list(graph.outputs)
    outputs[len(graph.caller_outputs) + number] = result
    rewriter.outputs = tuple(outputs)
    rewriter.sources.pop(value, None)
    initial = state.initial
    if initial is not None:
        initial = np.ascontiguousarray(initial.reshape(whole).transpose(NHWC_OF_NCHW))
    states = list(graph.states)
    states[number] = replace(state, initial=initial)
    return replace(rewriter.finish(), states=tuple(states))


def _single_reader(value: str, consumers: Mapping[str, list[Node]]) -> Node | None:
    """Return a value's only reader, apart from quantization, if the value is its first input."""
    while True:
        readers = consumers.get(value, [])
        if len(readers) != 1 or readers[0].inputs[0] != value:
            return None
        if readers[0].op not in _ELEMENTWISE:
            return readers[0]
        value = readers[0].outputs[0]


def _maker(value: str, producers: Mapping[str, Node]) -> Node | None:
    """Return the operator that computes a value, apart from quantization."""
    node = producers.get(value)
    while node is not None and node.op in _ELEMENTWISE:
        node = producers.get(node.inputs[0])
    return node


def _of_four(numbers: tuple[int, ...], unit: int = 1) -> tuple[int, ...]:
    """Return the numbers for 4 dimensions, channels first; with 3 dimensions, `unit` is added for one."""
    return (*numbers[:2], unit, *numbers[2:]) if len(numbers) == 3 else numbers


def _turned(numbers: tuple[int, ...], unit: int = 1) -> tuple[int, ...]:
    """Return the same with channels last."""
    return tuple(_of_four(numbers, unit)[dim] for dim in NHWC_OF_NCHW)


def _channels_last(rewriter: Rewriter, value: str, node: Node) -> str:
    """Append a conversion from 3 or 4 dimensions to 4 with channels last; return the result's name."""
    kind = rewriter.types[value]
    whole = _of_four(kind.shape)
    if whole != kind.shape:
        viewed = rewriter.value(f"{value}.whole", kind.dtype, whole)
        rewriter.node("Reshape", [value], [viewed], like=node)
        value = viewed
    output = rewriter.value(f"{value}.last", kind.dtype, _turned(whole))
    rewriter.node("Transpose", [value], [output], Permutation(perm=NHWC_OF_NCHW), like=node)
    return output


def _channels_first(rewriter: Rewriter, value: str, output: str, node: Node) -> None:
    """Append a conversion back to channels first, as `output`."""
    kind = rewriter.types[value]
    full = tuple(kind.shape[dim] for dim in NCHW_OF_NHWC)
    shape = rewriter.types[output].shape
    transposed = output if full == shape else rewriter.value(f"{output}.whole", kind.dtype, full)
    rewriter.node("Transpose", [value], [transposed], Permutation(perm=NCHW_OF_NHWC), like=node)
    if transposed != output:
        rewriter.node("Reshape", [transposed], [output], like=node)
