"""Sequences and optionals whose structure is known: lists of values while the model is imported, nothing in C."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.importer import Importer
from mtool.compiler.operators.problems import Unsupported

Opsets = Mapping[str, int]
Sequence = Callable[[Importer, onnx.NodeProto, str, Opsets], None]


def _list(state: Importer, name: str) -> list[str]:
    if name not in state.sequences:
        raise Unsupported("its sequence is an input of the model")
    return state.sequences[name]


def _identity(state: Importer, old: str, new: str, opsets: Opsets) -> None:
    state.run(helper.make_node("Identity", [old], [new], name=new), opsets)


def _give(state: Importer, proto: onnx.NodeProto, values: list[str]) -> None:
    """Let the output be these values; each sequence is a new list, whose memory counts."""
    state.budget.spend("work", 8 * len(values), f"{proto.op_type} {proto.name or proto.output[0]}")
    state.sequences[proto.output[0]] = values


def _position(state: Importer, value: str, length: int, most: int) -> int:
    """Return a position of 0 … `most` in a sequence; negative ones are counted from its end.

    Raises:
        Unsupported: it is another one, or not known.
    """
    found = state.value_of(value, "position")
    if found.size != 1 or not -length <= int(found.item()) <= most:
        raise Unsupported(f"its position is {found.tolist()} in a sequence of {length}")
    return int(found.item()) + (length if found.item() < 0 else 0)


def _construct(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    _give(state, proto, list(proto.input))


def _split(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute}
    shape, axis, drop = state.types[proto.input[0]].shape, attrs.get("axis", 0), False
    if not -len(shape) <= axis < len(shape):
        raise Unsupported(f"its axis is {axis}, its input {list(shape)}")
    axis %= len(shape)
    if len(proto.input) > 1 and proto.input[1]:
        split = state.value_of(proto.input[1], "split")
        size = int(split.item()) if split.ndim == 0 else 0
        if (split < 0).any() or (split.ndim == 0 and not size) or (split.ndim and split.sum() != shape[axis]):
            raise Unsupported(f"its split is {split.tolist()} of {shape[axis]}")
        state.budget.afford("nodes", -(-shape[axis] // size) if size else split.size, f"SplitToSequence {origin}")
        lengths = [min(size, shape[axis] - at) for at in range(0, shape[axis], size)] if size else split.tolist()
    else:
        state.budget.afford("nodes", shape[axis], f"SplitToSequence {origin}")
        lengths, drop = [1] * shape[axis], not attrs.get("keepdims", 1)
    parts = [state.unique(f"{origin}/part") for _ in lengths]
    sizes = state.constant(f"{origin}/sizes", np.asarray(lengths, np.int64))
    state.run(helper.make_node("Split", [proto.input[0], sizes], parts, name=origin, axis=axis), {"": 13})
    if drop:
        axes = state.constant(f"{origin}/axes", np.asarray([axis], np.int64))
        flat = [state.unique(f"{origin}/part") for _ in parts]
        for part, name in zip(parts, flat, strict=True):
            state.run(helper.make_node("Squeeze", [part, axes], [name], name=origin), {"": 13})
        parts = flat
    _give(state, proto, parts)


def _insert(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    values = list(_list(state, proto.input[0]))
    has_position = len(proto.input) > 2 and proto.input[2]
    position = _position(state, proto.input[2], len(values), len(values)) if has_position else len(values)
    _give(state, proto, [*values[:position], proto.input[1], *values[position:]])


def _erase(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    values = list(_list(state, proto.input[0]))
    if not values:
        raise Unsupported("its sequence is empty")
    has_position = len(proto.input) > 1 and proto.input[1]
    del values[_position(state, proto.input[1], len(values), len(values) - 1) if has_position else -1]
    _give(state, proto, values)


def _at(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    values = _list(state, proto.input[0])
    _identity(state, values[_position(state, proto.input[1], len(values), len(values) - 1)], proto.output[0], opsets)


def _length(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    state.add_constant(proto.output[0], np.asarray(len(_list(state, proto.input[0])), np.int64))


def _concat(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute}
    parts, axis = list(_list(state, proto.input[0])), attrs["axis"]
    if attrs.get("new_axis"):
        axes = state.constant(f"{origin}/axes", np.asarray([axis], np.int64))
        raised = [state.unique(f"{origin}/part") for _ in parts]
        for part, name in zip(parts, raised, strict=True):
            state.run(helper.make_node("Unsqueeze", [part, axes], [name], name=origin), {"": 13})
        parts = raised
    state.run(helper.make_node("Concat", parts, list(proto.output), name=origin, axis=axis), {"": 13})


def _get_element(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    """OptionalGetElement, Optional, Identity: of a value that is there, the value."""
    if not proto.input or not proto.input[0]:
        raise Unsupported("its optional is empty, which the C has no form for")
    if proto.input[0] in state.sequences:
        state.sequences[proto.output[0]] = state.sequences[proto.input[0]]
    else:
        _identity(state, proto.input[0], proto.output[0], opsets)


def _has_element(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    state.add_constant(proto.output[0], np.asarray(bool(proto.input and proto.input[0])))


SEQUENCES: dict[str, Sequence] = {
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
    """Whether a node is one of these: an Identity is, of a sequence."""
    if proto.op_type == "Identity":
        return bool(proto.input) and proto.input[0] in state.sequences
    return proto.op_type in SEQUENCES
