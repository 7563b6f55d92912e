"""Sequences and optionals whose structure is known: lists of values while the model is imported, nothing in C."""

from collections.abc import Callable

import numpy as np
import onnx

from mtool.compiler.frontend.control import alias
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.problems import Unsupported


def _list(state: Importer, name: str) -> list[str]:
    if name not in state.sequences:
        raise Unsupported("its sequence is an input of the model")
    return state.sequences[name]


def _give(state: Importer, node: OnnxNode, values: list[str]) -> None:
    """Make these values the output; each sequence is a new list, which counts against the budget."""
    state.budget.spend("work", 8 * len(values), f"{node.op} {node.proto.name or node.outputs[0]}")
    state.sequences[node.outputs[0]] = values


def _position(state: Importer, node: OnnxNode, index: int, length: int, most: int) -> int:
    """Return a position from 0 to `most` in a sequence; negative ones count from its end.

    Raises:
        Unsupported: it is out of range, or not a constant.
    """
    found = state.value_of(node.inputs[index], "position")
    if found.size != 1 or not -length <= int(found.item()) <= most:
        raise Unsupported(f"its position {found.tolist()} is out of range for a sequence of {length}")
    return int(found.item()) + (length if found.item() < 0 else 0)


def _construct(state: Importer, node: OnnxNode) -> None:
    _give(state, node, list(node.inputs))


def _each(state: Importer, node: OnnxNode, op: str, values: list[str], axis: int) -> list[str]:
    """Squeeze or unsqueeze each value."""
    axes = state.constant(f"{node.origin}/axes", np.asarray([axis], np.int64))
    made = [state.unique(f"{node.origin}/part") for _ in values]
    for value, name in zip(values, made, strict=True):
        node.write(op, [value, axes], [name])
    return made


def _split(state: Importer, node: OnnxNode) -> None:
    shape, axis = node.shape, node.attrs.get("axis", 0)
    if not -len(shape) <= axis < len(shape):
        raise Unsupported(f"its axis {axis} is out of range for its input {list(shape)}")
    axis %= len(shape)
    if node.input(1):
        split = state.value_of(node.inputs[1], "split")
        size = int(split.item()) if split.ndim == 0 else 0
        if (split < 0).any() or (split.ndim == 0 and not size) or (split.ndim and split.sum() != shape[axis]):
            raise Unsupported(f"its split {split.tolist()} does not fit a dimension of {shape[axis]}")
        state.budget.afford("nodes", -(-shape[axis] // size) if size else split.size, f"{node.op} {node.origin}")
        lengths = [min(size, shape[axis] - at) for at in range(0, shape[axis], size)] if size else split.tolist()
    else:
        state.budget.afford("nodes", shape[axis], f"{node.op} {node.origin}")
        lengths = [1] * shape[axis]
    parts = [state.unique(f"{node.origin}/part") for _ in lengths]
    sizes = state.constant(f"{node.origin}/sizes", np.asarray(lengths, np.int64))
    node.write("Split", [node.inputs[0], sizes], parts, axis=axis)
    drops = not node.input(1) and not node.attrs.get("keepdims", 1)
    _give(state, node, _each(state, node, "Squeeze", parts, axis) if drops else parts)


def _insert(state: Importer, node: OnnxNode) -> None:
    values = list(_list(state, node.inputs[0]))
    position = _position(state, node, 2, len(values), len(values)) if node.input(2) else len(values)
    _give(state, node, [*values[:position], node.inputs[1], *values[position:]])


def _erase(state: Importer, node: OnnxNode) -> None:
    values = list(_list(state, node.inputs[0]))
    if not values:
        raise Unsupported("its sequence is empty")
    del values[_position(state, node, 1, len(values), len(values) - 1) if node.input(1) else -1]
    _give(state, node, values)


def _at(state: Importer, node: OnnxNode) -> None:
    values = _list(state, node.inputs[0])
    alias(state, values[_position(state, node, 1, len(values), len(values) - 1)], node.outputs[0])


def _length(state: Importer, node: OnnxNode) -> None:
    state.add_constant(node.outputs[0], np.asarray(len(_list(state, node.inputs[0])), np.int64))


def _concat(state: Importer, node: OnnxNode) -> None:
    parts, axis = list(_list(state, node.inputs[0])), node.attrs["axis"]
    if node.attrs.get("new_axis"):
        parts = _each(state, node, "Unsqueeze", parts, axis)
    node.write("Concat", parts, node.outputs, axis=axis)


def _get_element(state: Importer, node: OnnxNode) -> None:
    """OptionalGetElement, Optional, Identity of a value: the value itself."""
    if not node.input(0):
        raise Unsupported("its optional is empty, which is not supported")
    alias(state, node.inputs[0], node.outputs[0])


def _has_element(state: Importer, node: OnnxNode) -> None:
    state.add_constant(node.outputs[0], np.asarray(bool(node.input(0))))


SEQUENCES: dict[str, Callable[[Importer, OnnxNode], None]] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SplitToSequence": _split,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "ConcatFromSequence": _concat,
    "Optional": _get_element,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "Identity": _get_element,
}


def is_of_sequences(state: Importer, proto: onnx.NodeProto) -> bool:
    """Whether a node works on sequences, as an Identity of a sequence does."""
    if proto.op_type == "Identity":
        return bool(proto.input) and proto.input[0] in state.sequences
    return proto.op_type in SEQUENCES
