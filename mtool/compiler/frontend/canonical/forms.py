"""Building blocks of canonical forms: lists that were attributes once, and forms that many operators share."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import onnx

from mtool.compiler.frontend.importer import Importer
from mtool.compiler.ir import Attributes

Attrs = Mapping[str, Any]
Told = TypeVar("Told", bound=Attributes)
Canonical = Callable[[Importer, onnx.NodeProto, str, Attrs, int], None]


def vector(state: Importer, proto: onnx.NodeProto, attrs: Attrs, key: str, index: int) -> tuple[int, ...] | None:
    """Return a list that is an attribute in old opsets and a constant input in new ones; None: not given."""
    if key in attrs:
        return tuple(attrs[key])
    if len(proto.input) > index and proto.input[index]:
        value = state.value_of(proto.input[index], key)
        return tuple(int(number) for number in np.atleast_1d(value))
    return None


def attributes_of(kind: type[Told], attrs: Attrs, **fixed: Any) -> Told:
    """Return an operator's attributes, where the file has them under the names of the class's fields.

    A field's default stands for what is not given there; what the class has no field for is left out. `fixed` are
    fields that are known here.
    """
    names = {field.name for field in fields(kind)}
    return kind(**{**{name: value for name, value in attrs.items() if name in names}, **fixed})


def unchanged(kind: type[Attributes]) -> Canonical:
    """Return the form of an operator whose attributes are those of the file."""

    def canonical(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        state.emit(proto.op_type, origin, list(proto.input), list(proto.output), attributes_of(kind, attrs))

    return canonical


def with_axis(kind: type[Attributes], default: int) -> Canonical:
    """Return the form of an operator whose `axis` is brought to 0 … rank - 1; `default`: where none is given."""

    def canonical(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        axis = attrs.get("axis", default) % max(len(state.types[proto.input[0]].shape), 1)
        told = attributes_of(kind, attrs, axis=axis)
        state.emit(proto.op_type, origin, list(proto.input), list(proto.output), told)

    return canonical


def first_input(op: str) -> Canonical:
    """Return the form of an operator whose further inputs only say its output's shape."""

    def canonical(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        state.emit(op, origin, [proto.input[0]], [proto.output[0]])

    return canonical


def computed(*roles: str) -> Canonical:
    """Return the form of an operator that is computed here, once all its inputs are known."""

    def canonical(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        for name, role in zip(proto.input, roles, strict=False):
            state.value_of(name, role)

    return canonical
