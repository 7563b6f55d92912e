"""Scopes: the meaning of names in a graph inside the model (a branch, a loop's body, a function).

A body is never copied to be imported: its nodes are bound to the model's values one at a time.
"""

from collections.abc import Mapping
from dataclasses import field

import onnx

from mtool.base.frozen import frozen

Opsets = Mapping[str, int]
"""The operator set version of each domain."""

Key = tuple[str, str, str]
"""The domain, name and overload of a model's function."""


def domain_of(name: str) -> str:
    """Return a domain's canonical name: "" for "ai.onnx"."""
    return "" if name == "ai.onnx" else name


def functions_of(model: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """Return a model's own functions."""
    return {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}


def key_of(proto: onnx.NodeProto) -> Key:
    """Return the key of the function that a node may call."""
    return domain_of(proto.domain), proto.op_type, proto.overload


@frozen
class Body:
    """A graph that is an attribute, and the scope around it."""

    graph: onnx.GraphProto
    scope: "Scope"


Bodies = Mapping[str, Body]
"""The graphs of a node, by the names of their attributes."""

NO_BODIES: Bodies = {}


@frozen
class Scope:
    """The meaning of the names in one graph or function.

    opsets: the operator set versions of its nodes.
    names: the model's names of its values, by the names inside.
    outer: the scope in which other names are looked up; None: they stay as they are, or if it is closed, are unknown.
    origin: the name for nodes that have none.
    depth: the number of scopes around it.
    attributes, bodies: a function's arguments.
    calls: the functions around it.
    """

    opsets: Opsets
    names: Mapping[str, str] = field(default_factory=dict)
    outer: "Scope | None" = None
    origin: str = ""
    depth: int = 0
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    bodies: Bodies = field(default_factory=dict)
    calls: tuple[Key, ...] = ()
    closed: bool = False

    def name(self, inner: str) -> str:
        """Return the model's name of a value; "" stays ""."""
        scope: Scope | None = self
        while scope is not None:
            if inner in scope.names:
                return scope.names[inner]
            if scope.closed and inner:
                return f"{scope.origin}/{inner}"
            scope = scope.outer
        return inner

    def inside(self, names: Mapping[str, str], origin: str) -> "Scope":
        """Return the scope of a graph that is an attribute of a node of this one."""
        return Scope(self.opsets, names, self, origin, self.depth + 1, self.attributes, self.bodies, self.calls)

    def bound(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, Bodies]:
        """Return a node with the model's names and the function's attributes, and separately its graphs, unchanged."""
        result = onnx.NodeProto(
            op_type=node.op_type, domain=node.domain, overload=node.overload, name=node.name or self.origin
        )
        result.input.extend(self.name(value) for value in node.input)
        result.output.extend(self.name(value) for value in node.output)
        graphs = {}
        for attr in node.attribute:
            if attr.ref_attr_name in self.bodies:
                graphs[attr.name] = self.bodies[attr.ref_attr_name]
                continue
            source = self.attributes.get(attr.ref_attr_name) if attr.ref_attr_name else attr
            if source is None:
                continue
            if source.type == onnx.AttributeProto.GRAPH:
                graphs[attr.name] = Body(source.g, self)
                continue
            copy = result.attribute.add()
            copy.CopyFrom(source)
            copy.name = attr.name
        return result, graphs


def bodies_of(node: onnx.NodeProto, scope: Scope) -> Bodies:
    """Return the graphs of a node of the model's own graph."""
    return {attr.name: Body(attr.g, scope) for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH}
