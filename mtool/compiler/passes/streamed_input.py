"""An input whose rows arrive one after the other: the axis of the rows, and the layout of a row in memory.

A camera delivers a row of pixels with interleaved channels. If the model has planar channels (NCHW), the graph gets an
input in the camera's layout and a transposition that later passes cancel.
"""

from dataclasses import replace

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.compiler.ir import Graph, Node, Rewriter, Stream
from mtool.compiler.operators.lowering import NHWC_OF_NCHW
from mtool.compiler.operators.movement import Permutation
from mtool.compiler.operators.window import CONV

_IMAGES = (CONV, "ConvTranspose", "Pool", "BatchNormalization")  # ONNX has their channels second


def with_streamed_input(graph: Graph, name: str) -> Graph:
    """Return a graph whose input of this name is streamed by rows.

    Args:
        graph: of canonical ONNX operators.
        name: the input; "": the only one.

    Raises:
        UsageError: the input does not exist, there are several and none is named, or the model has states or windows.
    """
    if graph.states or graph.slides:
        option = "--state, for which each step" if graph.states else "--slide, of which each hop"
        raise UsageError(
            f"a streamed input can't be combined with {option} is an inference of its own",
            hint="omit --interface-api feed and --stream",
        )
    value = _named(graph, name)
    order = _order(graph, value)
    if not order:
        return replace(graph, stream=Stream(value))
    rewriter = Rewriter(graph)
    shape = graph.types[value].shape
    nchw = rewriter.value(f"{value}.nchw", graph.types[value].dtype, shape)
    rewriter.types[value] = replace(graph.types[value], shape=tuple(shape[axis] for axis in order))
    if value in graph.sources:
        rewriter.sources[nchw] = graph.sources[value]
        rewriter.sources[value] = graph.sources[value].then(("transpose", order))
    first = next(node for node in graph.nodes if value in node.inputs)
    back = Permutation(perm=tuple(order.index(axis) for axis in range(len(order))))
    rewriter.node("Transpose", [value], [nchw], back, like=first)
    for node in graph.nodes:
        rewriter.nodes.append(replace(node, inputs=tuple(nchw if v == value else v for v in node.inputs)))
    rewriter.outputs = tuple(nchw if v == value else v for v in graph.outputs)
    return replace(rewriter.finish(), stream=Stream(value, order))


def _named(graph: Graph, name: str) -> str:
    inputs = graph.caller_inputs
    name = spelling.whole_name(name, inputs)
    if name in inputs:
        return name
    listed = ", ".join(inputs) or "none"
    if name:
        raise UsageError(
            f"--stream: unknown input {name}",
            details=[f"the model has {listed}"],
            hint=spelling.did_you_mean(name, inputs),
        )
    if len(inputs) != 1:
        raise UsageError(
            "--interface-api feed: which input is streamed?",
            details=[f"the model has {listed}"],
            hint=f"name it: --stream {inputs[0]}" if inputs else "omit --interface-api",
        )
    return inputs[0]


def _order(graph: Graph, value: str) -> tuple[int, ...]:
    """Return the permutation of an input to rows of interleaved channels; (): it has that layout already."""
    rank = len(graph.types[value].shape)
    if rank != 4:
        return ()
    axes = axes_of_image(graph, value, tuple(range(rank)))
    order = tuple(axes[axis] for axis in NHWC_OF_NCHW) if axes is not None else ()
    return () if order == tuple(range(rank)) else order


def axes_of_image(graph: Graph, value: str, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of the input that become the axes of the first image in the graph; None: unknown."""
    readers = graph.consumers()
    ways: list[tuple[str, tuple[int, ...]]] = [(value, axes)]
    seen = {value}
    while ways:
        value, axes = ways.pop(0)
        for node in readers.get(value, ()):
            if node.op in _IMAGES:
                return axes
            after, out = _after(graph, node, axes), node.outputs[0]
            if after is not None and out not in seen:
                seen.add(out)
                ways.append((out, after))
    return None


def _after(graph: Graph, node: Node, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of an operator's output, if it transposes its input or keeps the shape."""
    if node.op == "Transpose":
        return tuple(axes[axis] for axis in Permutation.of(node).perm)
    return axes if graph.types[node.outputs[0]].shape == graph.types[node.inputs[0]].shape else None
