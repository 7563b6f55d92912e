"""What recurrent operators share: their variables, which are states, and the steps over time, which are a Scan."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx
import tflite
from onnx import helper, numpy_helper

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.schema import VARIABLE
from mtool.compiler.frontend.tflite.translation import Translation

Step = Callable[[str, Sequence[str]], Sequence[str]]
"""A step: what is read and the states; it returns the next states, of which the first is the result, too."""


class State:
    """A variable of the operator at work; `name` is its value, which `put` replaces."""

    def __init__(self, t: Translation, index: int, shape: tuple[int, ...], kinds: Sequence[str]) -> None:
        if not t.has(index) or t.tensors[t.op.inputs[index]].problem != VARIABLE:
            raise Unsupported(f"its input {index} is not a variable, which keeps its state")
        self.key = t.op.inputs[index]
        found = t.tensors[self.key]
        if found.dtype.name not in kinds or found.shape[1:] != shape[1:]:
            wanted = f"{' or '.join(kinds)}{list(shape)}"
            raise Unsupported(f"its state {found.name!r} is {found.dtype}{list(found.shape)} instead of {wanted}")
        self.tensor = replace(found, problem="", shape=shape)
        self.name = t.variables.read(self.key, self.tensor, lambda: t.names[self.key])
        self._t = t

    def put(self, value: str) -> None:
        """Give the variable its next value."""
        self._t.variables.write(self.key, self.tensor, value)


def sizes(t: Translation) -> tuple[int, int, int]:
    """Return how many steps, images and numbers the input has."""
    shape = t.shape(0)
    if len(shape) not in (2, 3):
        raise Unsupported(f"its input has {len(shape)} dimensions instead of 2 or 3")
    if len(shape) == 2:
        return 1, *shape
    first, second, count = shape
    return (first, second, count) if t.op.option("TimeMajor") else (second, first, count)


def over_time(t: Translation, value: str, states: Sequence[State], step: Step, *, backward: bool = False) -> str:
    """Append the steps over the input's rows, and give the states their last values; return the results.

    Args:
        t: the operator at work.
        value: its input [steps, images, numbers] or [images, steps, numbers], or of one step.
        states: its variables.
        step: appends the nodes of a step.
        backward: from the last row to the first.
    """
    steps, images, count = sizes(t)
    if steps == 1:
        last = step(_shaped(t, value, (images, count)), [state.name for state in states])
        for state, new in zip(states, last, strict=True):
            state.put(new)
        width = states[0].tensor.shape[-1]
        whole = (1, images, width) if t.op.option("TimeMajor") else (images, 1, width)
        if len(t.shape(0)) == 2:
            return t.node("Identity", [last[0]])  # the state keeps its own name
        return _shaped(t, last[0], whole)
    turned = not t.op.option("TimeMajor")
    body = _body(t, states, step, count)
    inputs = [*(state.name for state in states), _turned(t, value, t.shape(0)) if turned else value]
    outputs = [t.unique(f"{t.names[t.op.outputs[0]]}/{stem}") for stem in (*("last" for _ in states), "rows")]
    attrs = {"scan_input_directions": [1], "scan_output_directions": [1]} if backward else {}
    t.nodes.append(helper.make_node("Scan", inputs, outputs, name=t.op.name, body=body, num_scan_inputs=1, **attrs))
    for state, new in zip(states, outputs, strict=False):
        state.put(new)
    made = outputs[-1]
    return _turned(t, made, (steps, images, states[0].tensor.shape[-1])) if turned else made


def _body(t: Translation, states: Sequence[State], step: Step, count: int) -> onnx.GraphProto:
    """Return a step as a graph, whose constants are its own."""
    stem = t.names[t.op.outputs[0]]
    inside = [t.unique(f"{stem}/state") for _ in states]
    row = t.unique(f"{stem}/row")
    around, t.nodes = t.nodes, []
    try:
        last = [*step(row, inside)]
        last = [t.node("Identity", [value]) for value in (*last, last[0])]
        nodes = t.nodes
    finally:
        t.nodes = around
    read = dict.fromkeys(name for node in nodes for name in node.input if name in t.constants)
    images = states[0].tensor.shape[0]

    def info(name: str, tensor: Tensor, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype), shape or tensor.shape)

    inputs = [info(name, state.tensor) for name, state in zip(inside, states, strict=True)]
    inputs.append(info(row, t.tensor(0), images, count))
    tensors = [*(state.tensor for state in states), states[0].tensor]
    made = [info(name, tensor) for name, tensor in zip(last, tensors, strict=True)]
    held = [numpy_helper.from_array(t.constants[name], name) for name in read]
    return helper.make_graph(nodes, "step", inputs, made, held)


def _shaped(t: Translation, value: str, shape: Sequence[int]) -> str:
    return t.node("Reshape", [value, t.whole("shape", shape)])


def _turned(t: Translation, value: str, shape: Sequence[int]) -> str:
    """Exchange the first two dimensions."""
    first, second, width = shape
    if 1 in (first, second):
        return _shaped(t, value, (second, first, width))
    return t.node("Transpose", [value], perm=[1, 0, 2])


def real_activation(t: Translation, value: str) -> str:
    """Apply the fused activation, which may be a hyperbolic tangent here."""
    code = t.op.option("FusedActivationFunction")
    return t.node("Tanh", [value]) if code == tflite.ActivationFunctionType.TANH else t.activated(value, code)


def finish(t: Translation, value: str, shape: Sequence[int], index: int = 0) -> None:
    """Make a value the output, whose shape follows from the input's where the file leaves it open."""
    tensor = t.result(index)
    if tensor.allows(tuple(shape)):
        t.tensors[t.op.outputs[index]] = replace(tensor, shape=tuple(shape))
    t.put(value, index)
