"""ONNX function operators, written out as the nodes of their own bodies (onnx.defs schemas)."""

from collections.abc import Mapping, Sequence

import onnx

from mtool.frontend.inference import tensor_type
from mtool.ir import TensorType


def expand(
    proto: onnx.NodeProto, domain: str, version: int, types: Mapping[str, TensorType], prefix: str
) -> tuple[list[onnx.NodeProto], Mapping[str, int]] | None:
    """Return the nodes that a function operator stands for, and their opsets; None: it is no function.

    Args:
        proto: the node.
        domain: its domain, "" for ai.onnx.
        version: the opset of that domain.
        types: the types of its inputs.
        prefix: what the names of values inside begin with.
    """
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    node = onnx.NodeProto()
    node.CopyFrom(proto)
    given = {attr.name for attr in node.attribute}
    node.attribute.extend(
        attr.default_value for name, attr in schema.attributes.items() if name not in given and attr.default_value.name
    )
    body = onnx.FunctionProto()
    if schema.context_dependent_function_opset_versions:
        kinds = [
            tensor_type(types[name]).SerializeToString() if name else onnx.TypeProto().SerializeToString()
            for name in node.input
        ]
        chosen = _newest(schema.context_dependent_function_opset_versions, version)
        text = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), kinds)
    elif schema.function_opset_versions:
        chosen = _newest(schema.function_opset_versions, version)
        text = schema.get_function_with_opset_version(chosen)
    else:
        return None
    body.ParseFromString(text)
    if not body.node:
        return None
    opsets = {entry.domain: entry.version for entry in body.opset_import}
    names = {inner: node.input[place] if place < len(node.input) else "" for place, inner in enumerate(body.input)}
    for place, inner in enumerate(body.output):
        if place < len(node.output) and node.output[place]:
            names[inner] = node.output[place]
    attrs = {attr.name: attr for attr in node.attribute}
    return [renamed(part, names, attrs, prefix, proto.name or prefix) for part in body.node], opsets


def _newest(versions: Sequence[int], wanted: int) -> int:
    """Return the newest version that is not newer than `wanted`; the oldest if all are."""
    return max((version for version in versions if version <= wanted), default=min(versions))


def renamed(
    part: onnx.NodeProto, names: Mapping[str, str], attrs: Mapping[str, onnx.AttributeProto], prefix: str, origin: str
) -> onnx.NodeProto:
    """Return a node of a body with its values renamed; those that `names` does not have get the prefix."""

    def name(inner: str) -> str:
        return names.get(inner, f"{prefix}/{inner}") if inner else ""

    made = onnx.NodeProto(op_type=part.op_type, domain=part.domain, name=origin)
    made.input.extend(name(value) for value in part.input)
    made.output.extend(name(value) for value in part.output)
    for attr in part.attribute:
        if not attr.ref_attr_name:
            copy = made.attribute.add()
            copy.CopyFrom(attr)
            if attr.type == onnx.AttributeProto.GRAPH:
                inner = {value.name for value in (*attr.g.input, *attr.g.initializer)}
                inner |= {value for node in attr.g.node for value in node.output}
                outer = {v for node in attr.g.node for v in node.input} | {v.name for v in attr.g.output}
                kept = {value: value for value in inner}
                seen = {value: name(value) for value in outer if value not in inner} | kept
                nodes = [renamed(node, seen, attrs, prefix, origin) for node in attr.g.node]
                for value in copy.g.output:
                    value.name = seen.get(value.name, value.name)
                del copy.g.node[:]
                copy.g.node.extend(nodes)
        elif attr.ref_attr_name in attrs:
            copy = made.attribute.add()
            copy.CopyFrom(attrs[attr.ref_attr_name])
            copy.name = attr.name
    return made
