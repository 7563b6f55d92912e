"""An input whose rows arrive one after the other: which axis they lie along, and how a row lies in memory.

A camera gives a row of pixels with the channels of each side by side. Where the model has whole channels one after the
other (NCHW), the graph gets an input of the camera's layout, and a transposition that later passes cancel.
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
    """Return a graph whose input of this name is given by rows.

    Args:
        graph: of canonical ONNX operators.
        name: the input; "": the only one.

    Raises:
        UsageError: there is no such input, or several and none is named; or the model has states.
    """
    if graph.states:
        raise UsageError(
            "an input by rows does not go with --state: a step of a stream is an inference of its own there",
            hint="leave --interface-api feed and --stream out",
        )
    value = _named(graph, name)
    order = _order(graph, value)
    if not order:
        return replace(graph, stream=Stream(value))
    rewriter = Rewriter(graph)
    shape = graph.types[value].shape
    own = rewriter.value(f"{value}.nchw", graph.types[value].dtype, shape)
    rewriter.types[value] = replace(graph.types[value], shape=tuple(shape[axis] for axis in order))
    if value in graph.sources:
        rewriter.sources[own] = graph.sources[value]
        rewriter.sources[value] = graph.sources[value].then(("transpose", order))
    first = next(node for node in graph.nodes if value in node.inputs)
    back = Permutation(perm=tuple(order.index(axis) for axis in range(len(order))))
    rewriter.node("Transpose", [value], [own], back, like=first)
    for node in graph.nodes:
        rewriter.nodes.append(replace(node, inputs=tuple(own if each == value else each for each in node.inputs)))
    rewriter.outputs = tuple(own if each == value else each for each in graph.outputs)
    return replace(rewriter.finish(), stream=Stream(value, order))


def _named(graph: Graph, name: str) -> str:
    inputs = graph.caller_inputs
    if name in inputs:
        return name
    listed = ", ".join(inputs) or "none"
    if name:
        raise UsageError(
            f"--stream {name}: the model has no such input",
            details=[f"it has {listed}"],
            hint=spelling.did_you_mean(name, inputs),
        )
    if len(inputs) != 1:
        raise UsageError(
            "--interface-api feed: which input is given by rows?",
            details=[f"the model has {listed}"],
            hint=f"--stream {inputs[0]}" if inputs else "leave --interface-api out",
        )
    return inputs[0]


def _order(graph: Graph, value: str) -> tuple[int, ...]:
    """Return how an input is transposed for rows of interleaved channels; (): they lie so already."""
    rank = len(graph.types[value].shape)
    if rank != 4:
        return ()
    found = _axes_of_image(graph, value, tuple(range(rank)))
    order = tuple(found[axis] for axis in NHWC_OF_NCHW) if found is not None else ()
    return () if order == tuple(range(rank)) else order


def _axes_of_image(graph: Graph, value: str, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return which axes of the input are those of the first image that is computed with; None: that is not known."""
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
    """Return the axes of an operator's output, if it transposes its input or leaves the shape alone."""
    if node.op == "Transpose":
        return tuple(axes[axis] for axis in Permutation.of(node).perm)
    return axes if graph.types[node.outputs[0]].shape == graph.types[node.inputs[0]].shape else None
