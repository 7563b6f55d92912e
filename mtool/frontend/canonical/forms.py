"""What the canonical forms have in common: lists that were attributes once, and forms that many operators share."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from mtool.frontend.importer import Importer

Attrs = Mapping[str, Any]
Canonical = Callable[["Importer", onnx.NodeProto, str, Attrs, int], None]


def vector(state: "Importer", proto: onnx.NodeProto, attrs: Attrs, key: str, place: int) -> tuple[int, ...] | None:
    """Return a list that is an attribute in old opsets and a constant input in new ones; None: not given."""
    if key in attrs:
        return tuple(attrs[key])
    if len(proto.input) > place and proto.input[place]:
        value = state.value_of(proto.input[place], key)
        return tuple(int(number) for number in np.atleast_1d(value))
    return None


def with_axis(default: int | None, **fixed: Any) -> Canonical:
    """Return the form of an operator whose `axis` is brought to 0 … rank - 1.

    Args:
        default: the axis where none is given; None: the operator has none.
        fixed: the attributes that are kept, with their defaults.
    """

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        made = {key: attrs.get(key, value) for key, value in fixed.items()}
        if default is not None:
            made["axis"] = attrs.get("axis", default) % max(len(state.types[proto.input[0]].shape), 1)
        state.emit(proto.op_type, origin, list(proto.input), list(proto.output), made)

    return canonical


def first_input(op: str) -> Canonical:
    """Return the form of an operator whose further inputs only say its output's shape."""

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        state.emit(op, origin, [proto.input[0]], [proto.output[0]], {})

    return canonical


def computed(*roles: str) -> Canonical:
    """Return the form of an operator that is computed here, once all its inputs are known."""

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        for name, role in zip(proto.input, roles, strict=False):
            state.value_of(name, role)

    return canonical
