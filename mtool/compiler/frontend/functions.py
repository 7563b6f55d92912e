"""Functions, written out as the nodes of their bodies: those of the model, and ONNX's function operators."""

from collections.abc import Iterable, Mapping, Sequence

import onnx

from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.inference import tensor_type
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Bodies, Scope, domain_of, key_of
from mtool.compiler.ir import TensorType


def call(state: Importer, function: onnx.FunctionProto, proto: onnx.NodeProto, origin: str, bodies: Bodies) -> None:
    """Import the body of a function of the model.

    Raises:
        Unsupported: it calls itself, or is called with more values than it takes.
    """
    key, caller = key_of(proto), state.scope
    if key in caller.calls:
        raise Unsupported("the function calls itself")
    if len(proto.input) > len(function.input) or len(proto.output) > len(function.output):
        raise Unsupported(
            f"it has {len(proto.input)} inputs and {len(proto.output)} outputs; the function has "
            f"{len(function.input)} and {len(function.output)}"
        )
    attributes = {attr.name: attr for attr in function.attribute_proto} | {attr.name: attr for attr in proto.attribute}
    scope = Scope(
        {domain_of(entry.domain): entry.version for entry in function.opset_import},
        _names(state, function.node, function.input, function.output, proto, state.unique(origin)),
        origin=origin,
        depth=caller.depth + 1,
        attributes=attributes,
        bodies=bodies,
        calls=(*caller.calls, key),
        closed=True,
    )
    state.enter(function.node, scope, origin)
    made = {value for node in function.node for value in node.output}
    for inner, outer in zip(function.output, proto.output, strict=False):
        if outer and inner not in made:  # a parameter that is given back as it is
            state.run(onnx.helper.make_node("Identity", [scope.name(inner)], [outer], name=origin), scope.opsets)


def expand(
    state: Importer, proto: onnx.NodeProto, domain: str, version: int, origin: str, opsets: Mapping[str, int],
    bodies: Bodies,
) -> bool:  # fmt: skip
    """Import the body of an operator that ONNX defines as a function of others; return whether it is one."""
    node = onnx.NodeProto()
    node.CopyFrom(proto)
    del node.attribute[:]
    node.attribute.extend(attr for attr in proto.attribute if attr.type != onnx.AttributeProto.GRAPH)
    for name, body in bodies.items():
        state.budget.spend("constants", body.graph.ByteSize(), f"{proto.op_type} {origin}")
        node.attribute.append(onnx.helper.make_attribute(name, body.graph))
    found = _body(node, domain, version, state.types)
    if found is None:
        return False
    prefix = state.unique(origin)
    scope = Scope(
        {**opsets, **{entry.domain: entry.version for entry in found.opset_import}},
        _names(state, found.node, found.input, found.output, proto, prefix),
        outer=next((body.scope for body in bodies.values()), None),
        origin=proto.name or prefix,
        depth=state.scope.depth + 1,
        attributes={attr.name: attr for attr in node.attribute},
        calls=state.scope.calls,
        closed=not bodies,
    )
    state.enter(found.node, scope, origin)
    return True


def _body(
    node: onnx.NodeProto, domain: str, version: int, types: Mapping[str, TensorType]
) -> onnx.FunctionProto | None:
    schema = onnx.defs.get_schema(node.op_type, version, domain)
    named = {attr.name for attr in node.attribute}
    node.attribute.extend(
        attr.default_value for name, attr in schema.attributes.items() if name not in named and attr.default_value.name
    )
    if schema.context_dependent_function_opset_versions:
        kinds = [
            tensor_type(types[name]).SerializeToString() if name else onnx.TypeProto().SerializeToString()
            for name in node.input
        ]
        chosen = _newest(schema.context_dependent_function_opset_versions, version)
        text = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), kinds)
    elif schema.function_opset_versions:
        text = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, version))
    else:
        return None
    body = onnx.FunctionProto.FromString(text)
    return body if body.node else None


def _names(
    state: Importer, nodes: Iterable[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str],
    proto: onnx.NodeProto, prefix: str,
) -> dict[str, str]:  # fmt: skip
    """Return what the values of a function are called: those of the call, and others for what it makes inside.

    A parameter that is not given is "".
    """
    inside = {value for node in nodes for value in node.output}
    names = state.inner(prefix, inside)
    names |= {inner: proto.input[index] if index < len(proto.input) else "" for index, inner in enumerate(inputs)}
    made = {inner: proto.output[index] for index, inner in enumerate(outputs) if index < len(proto.output)}
    return names | {inner: outer for inner, outer in made.items() if outer and inner in inside}


def _newest(versions: Sequence[int], wanted: int) -> int:
    """Return the newest version that is not newer than `wanted`; the oldest if all are."""
    return max((version for version in versions if version <= wanted), default=min(versions))
