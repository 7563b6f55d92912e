"""Import of one node: look up its operator, check the node, fold it, convert it to its canonical form."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from mtool.base import plural
from mtool.base.escaping import argument
from mtool.compiler.frontend import tensors
from mtool.compiler.frontend.control import CONTROL, alias
from mtool.compiler.frontend.folding import fold
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.inference import (
    attributes,
    check_size,
    infer,
    operator_of,
    own_outputs,
    sizes_of,
    tensor_type,
)
from mtool.compiler.frontend.scope import Bodies, Scope, domain_of, key_of
from mtool.compiler.frontend.validation import (
    check_attributes,
    check_node,
    check_operand_types,
    check_shapes,
    with_indices_inside,
)
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators import custom_domains
from mtool.compiler.operators.bounds import Bound
from mtool.compiler.operators.custom_domains import custom_kind
from mtool.compiler.operators.onnx_node import OPSET, OnnxNode, attributes_of
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import OWN, REFUSED, NotComputed, TooLarge, Unsupported, ValueNeeded

# Sequences and optionals whose structure is known: lists of values while the model is imported, nothing in C.


def _list(state: Importer, name: str) -> list[str]:
    if name not in state.sequences:
        raise Unsupported("its sequence is an input of the model")
    return state.sequences[name]


def _set_sequence(state: Importer, node: OnnxNode, values: list[str]) -> None:
    """Set the output to a sequence of values; each sequence is a new list, which counts against the budget."""
    state.budget.spend("work", 8 * len(values), f"{node.op} {node.proto.name or node.outputs[0]}")
    state.sequences[node.outputs[0]] = values


def _position(state: Importer, node: OnnxNode, index: int, length: int, most: int) -> int:
    """Return a position from 0 to `most` in a sequence; negative ones count from its end.

    Raises:
        Unsupported: it is out of range, or not a constant.
    """
    position = state.value_of(node.inputs[index], "position")
    if position.size != 1 or not -length <= int(position.item()) <= most:
        raise Unsupported(f"its position {position.tolist()} is out of range for a sequence of {length}")
    return int(position.item()) + (length if position.item() < 0 else 0)


def _construct(state: Importer, node: OnnxNode) -> None:
    _set_sequence(state, node, list(node.inputs))


def _apply_to_each(state: Importer, node: OnnxNode, op: str, values: list[str], axis: int) -> list[str]:
    """Squeeze or unsqueeze each value."""
    axes = state.constant(f"{node.origin}/axes", np.asarray([axis], np.int64))
    parts = [state.unique(f"{node.origin}/part") for _ in values]
    for value, name in zip(values, parts, strict=True):
        node.write(op, [value, axes], [name])
    return parts


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
    _set_sequence(state, node, _apply_to_each(state, node, "Squeeze", parts, axis) if drops else parts)


def _insert(state: Importer, node: OnnxNode) -> None:
    values = list(_list(state, node.inputs[0]))
    position = _position(state, node, 2, len(values), len(values)) if node.input(2) else len(values)
    _set_sequence(state, node, [*values[:position], node.inputs[1], *values[position:]])


def _erase(state: Importer, node: OnnxNode) -> None:
    values = list(_list(state, node.inputs[0]))
    if not values:
        raise Unsupported("its sequence is empty")
    del values[_position(state, node, 1, len(values), len(values) - 1) if node.input(1) else -1]
    _set_sequence(state, node, values)


def _at(state: Importer, node: OnnxNode) -> None:
    values = _list(state, node.inputs[0])
    alias(state, values[_position(state, node, 1, len(values), len(values) - 1)], node.outputs[0])


def _length(state: Importer, node: OnnxNode) -> None:
    state.add_constant(node.outputs[0], np.asarray(len(_list(state, node.inputs[0])), np.int64))


def _concat(state: Importer, node: OnnxNode) -> None:
    parts, axis = list(_list(state, node.inputs[0])), node.attrs["axis"]
    if node.attrs.get("new_axis"):
        parts = _apply_to_each(state, node, "Unsqueeze", parts, axis)
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


NEWEST_OPSET = 21  # for a domain whose opset the model does not state


def import_node(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Mapping[str, int], bodies: Bodies) -> None:
    """Import one node: look up its operator, check the node, fold it or infer its types, emit its canonical form.

    Raises:
        Unsupported: the node can't be compiled.
        ModelError: it exceeds the budget.
    """
    domain = domain_of(proto.domain)
    version, operator = opsets.get(domain, NEWEST_OPSET), operator_of(proto)
    # An operator takes precedence over a function of its name, as in onnxruntime and onnx's reference evaluator; the
    # standard leaves that open.
    is_own = operator.domain == OWN and operator.lower is not None
    is_operator = is_own or operator.expand is not None or onnx.defs.has(proto.op_type, version, domain)
    function = None if is_operator and not proto.overload else state.functions.get(key_of(proto))
    if function is not None or (not domain and (proto.op_type in CONTROL or is_of_sequences(state, proto))):
        _write_out(state, proto, function, origin, version, bodies)
        return
    node = OnnxNode(state, proto, origin, attributes(proto), version)
    if domain == REFUSED:
        reason, value = node.attrs["reason"], node.attrs["value"]
        raise ValueNeeded(value, "", text=reason) if value else Unsupported(reason)
    if not onnx.defs.has(proto.op_type, domain):
        if operator.expand is not None:
            operator.expand(node)
        elif operator.lower is not None:
            _run_own(state, node, operator)
        else:
            raise Unsupported(f"domain {domain} is not supported" if domain else "ONNX has no such operator")
        return
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    check_node(proto, schema, bodies)
    check_operand_types(proto, schema, state.types)
    if operator.expand is not None:
        operator.expand(node)
        return
    if proto.op_type == "Constant" and not domain:
        state.add_constant(proto.output[0], _constant_value(state, proto, origin))
        return
    check_attributes(node, operator)
    node = with_indices_inside(node, operator, schema, clamp=bool(state.perhaps))
    rewritten = None if operator.rewrite is None else operator.rewrite(node)
    if rewritten is not None:
        state.run(rewritten, OPSET)
        return
    constants = _constant_values(state, node.proto, operator)
    is_constant = all(name in constants or not name for name in node.inputs) and not bodies
    try:
        is_bounded = not is_constant and _set_maximum_sizes(state, node, operator)
        if not is_bounded and _is_folded(state, node, operator, constants if is_constant else None):
            return
    except Unsupported as problem:
        if schema.has_type_and_shape_inference_function or isinstance(problem, TooLarge | ValueNeeded):
            raise
        if not _expand(state, node, opsets, bodies):
            raise
        return
    check_shapes(node, operator)
    if is_constant and operator.folding.when == "later":
        state.dequantized[node.outputs[0]] = (node.proto, max(version, 19))  # the version that onnx.reference has
    if operator.canonical is not None:
        operator.canonical(node)
    elif operator.lower is not None:
        node.emit(attributes_of(operator.attributes, node.attrs))
    elif not _expand(state, node, opsets, bodies):
        if operator.folding.when == "never":
            raise Unsupported("its result is random; make it an input of the model (docs/limits.md)")
        raise Unsupported("not supported")


def _write_out(
    state: Importer, proto: onnx.NodeProto, function: onnx.FunctionProto | None, origin: str, version: int,
    bodies: Bodies,
) -> None:  # fmt: skip
    """Import a node that expands to several nodes, whose number the budget limits."""
    state.writing_out += 1
    try:
        if function is not None:
            _call(state, function, proto, origin, bodies)
            return
        check_node(proto, onnx.defs.get_schema(proto.op_type, version, ""), bodies)
        node = OnnxNode(state, proto, origin, attributes(proto), version)
        if proto.op_type in CONTROL:
            CONTROL[proto.op_type](state, node, bodies)
        else:
            SEQUENCES[proto.op_type](state, node)
    finally:
        state.writing_out -= 1


def _constant_value(state: Importer, proto: onnx.NodeProto, origin: str) -> Array:
    if len(proto.attribute) != 1:
        raise Unsupported(f"it has {plural.count(len(proto.attribute), 'attribute')} for its value; expected 1")
    attr = proto.attribute[0]
    if attr.name == "value":
        return tensors.array_of(attr.t, state.budget, f"Constant {origin}")
    if attr.name == "sparse_value":
        return tensors.dense(attr.sparse_tensor, state.budget, f"Constant {origin}")
    if attr.name not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise Unsupported("strings are not supported")
    dtype = np.float32 if attr.name.startswith("value_float") else np.int64
    return np.asarray(helper.get_attribute_value(attr), dtype)


def _run_own(state: Importer, node: OnnxNode, operator: Operator) -> None:
    """Import a node whose operator's record gives the output types: one of mtool's own, or of a package."""
    if operator.check is not None:
        operator.check(node)
    op = node.op
    if not operator.package:
        attrs = attributes_of(operator.attributes, node.attrs)
        kinds = own_outputs(node.proto, state.types)
        if not any(kind.count for kind in kinds.values()):
            for name, kind in kinds.items():
                state.add_constant(name, np.zeros(kind.shape, kind.dtype.numpy))
            return
    else:
        attrs = custom_domains.custom_attributes(operator, node.attrs)
        input_types, where = [node.kind(name) for name in node.inputs if name], f"{node.op} {node.origin}"
        output_types = custom_domains.types_of(operator, attrs, input_types, len(node.outputs), where)
        kinds = {name: kind for name, kind in zip(node.outputs, output_types, strict=False) if name}
        op = custom_kind(operator.domain, node.op)
    state.types |= kinds
    node.emit(attrs, op=op)


def _constant_values(state: Importer, proto: onnx.NodeProto, operator: Operator) -> Mapping[str, Array]:
    """Return the values of a node's constant inputs; unless it only moves elements, dequantized ones too.

    An operator that moves weights has to move their integers.
    """
    names = set(filter(None, proto.input))
    values = {name: state.constants[name] for name in names if name in state.constants}
    dequantized = names & set(state.dequantized)
    if operator.moves or names - set(values) - dequantized:
        return values
    for name in sorted(dequantized):
        source, version = state.dequantized[name]
        values |= fold(source, version, state.constants, {name: state.types[name]}, state.budget)
    return values


def _set_maximum_sizes(state: Importer, node: OnnxNode, operator: Operator) -> bool:
    """Set the shape of outputs whose size depends on data to their maximum, if one is known.

    --max gives it by the name of the first output, or of the dimension in the shape that the model declares for that;
    without it and without a declared shape, the inputs' shapes may determine it.
    """
    if operator.bound is None or any(value and value not in state.types for value in node.inputs):
        return False
    declared = state.declared.get(node.outputs[0])
    dims = declared.tensor_type.shape.dim if declared is not None else ()
    names = [name for name in (node.outputs[0], *(dim.dim_param for dim in dims)) if name in state.options.maxima]
    stated = state.options.maxima[names[0]] if names else None
    is_declared = bool(dims) and all(dim.HasField("dim_value") for dim in dims)
    if stated == 0 or (stated is None and (is_declared or not state.options.natural_maxima)):
        return False
    outputs = operator.bound(node, stated)
    kind, axis = outputs[0]
    if stated is None and not kind.shape[axis or 0]:
        return False
    if any(value and value in state.bounds for value in node.inputs):
        raise Unsupported("the size of its input depends on data too")
    state.used_maxima.update(names[:1])
    count = state.unique(f"{node.outputs[0]}_count")
    state.types[count] = TensorType(DType.INT32, ())
    for value, (kind, axis) in zip(node.outputs, outputs, strict=False):
        if value:
            state.types[value] = check_size(kind, "its output")
            if axis is not None:
                state.bounds[value] = Bound(axis, count)
    return True


def _is_folded(state: Importer, node: OnnxNode, operator: Operator, constants: Mapping[str, Array] | None) -> bool:
    """Infer the types of a node's outputs; return whether their values are known as well.

    `constants` has the values of its inputs; None: not all are known.
    """
    proto, folding = node.proto, operator.folding
    if operator.check_constants is not None and constants is not None:
        operator.check_constants([constants[name] for name in node.inputs if name])
    kinds: dict[str, TensorType] = {}
    try:
        kinds = infer(proto, node.version, state.types, state.constants, state.declared)
    except Unsupported as problem:
        if operator.bound is not None and constants is None:
            reason = f"{problem}, or" if isinstance(problem, ValueNeeded) else "its output shape depends on data;"
            problem.args = (f"{reason} give --max {argument(node.outputs[0])}=N, the largest size",)
        if constants is None or folding.when != "now" or isinstance(problem, TooLarge):
            raise  # for constants, the types follow from the values
    state.types |= kinds
    outputs = [name for name in node.outputs if name]
    empty = any(not state.types[name].count for name in node.inputs if name)
    if outputs and all(name in kinds and not kinds[name].count for name in outputs):
        if not (operator.keeps_empty and not node.kind(0).count):
            for index, value in sizes_of(operator, proto).items():  # whose value may change the size at run time
                if value not in state.constants:
                    raise ValueNeeded(value, onnx.defs.get_schema(proto.op_type).inputs[index].name)
        for name in outputs:
            state.add_constant(name, np.zeros(kinds[name].shape, kinds[name].dtype.numpy))
        return True
    if constants is None or folding.when != "now" or (empty and not folding.of_nothing):
        return False
    try:
        values = fold(proto, node.version, constants, kinds, state.budget)
    except NotComputed:
        if (empty and not folding.defined(node.attrs)) or not set(outputs) <= set(kinds):
            raise
        return False  # the device computes it
    for name, data in values.items():
        state.add_constant(name, data)
    return True


def _call(state: Importer, function: onnx.FunctionProto, proto: onnx.NodeProto, origin: str, bodies: Bodies) -> None:
    """Import the body of a function of the model.

    Raises:
        Unsupported: it calls itself, or is called with too many inputs or outputs.
    """
    key, caller = key_of(proto), state.scope
    if key in caller.calls:
        raise Unsupported("the function calls itself")
    if len(proto.input) > len(function.input) or len(proto.output) > len(function.output):
        raise Unsupported(
            f"it has {plural.count(len(proto.input), 'input')} and {plural.count(len(proto.output), 'output')}; "
            f"the function has {len(function.input)} and {len(function.output)}"
        )
    scope = Scope(
        {domain_of(entry.domain): entry.version for entry in function.opset_import},
        _names(state, function, proto, state.unique(origin)),
        origin=origin, depth=caller.depth + 1, bodies=bodies, calls=(*caller.calls, key), closed=True,
        attributes={attr.name: attr for attr in (*function.attribute_proto, *proto.attribute)},
    )  # fmt: skip
    state.enter(function.node, scope, origin)
    computed = {value for node in function.node for value in node.output}
    for inner, outer in zip(function.output, proto.output, strict=False):
        if outer and inner not in computed:  # a parameter that is returned unchanged
            state.run(onnx.helper.make_node("Identity", [scope.name(inner)], [outer], name=origin), scope.opsets)


def _expand(state: Importer, node: OnnxNode, opsets: Mapping[str, int], bodies: Bodies) -> bool:
    """Import the body of an operator that ONNX defines as a function of others; return whether it is one."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    proto.attribute.extend(attr for attr in node.proto.attribute if attr.type != onnx.AttributeProto.GRAPH)
    for name, body in bodies.items():
        state.budget.spend("constants", body.graph.ByteSize(), f"{node.op} {node.origin}")
        proto.attribute.append(onnx.helper.make_attribute(name, body.graph))
    function = _body(proto, node.version, state.types)
    if function is None:
        return False
    prefix = state.unique(node.origin)
    scope = Scope(
        {**opsets, **{entry.domain: entry.version for entry in function.opset_import}},
        _names(state, function, proto, prefix),
        outer=next((body.scope for body in bodies.values()), None), origin=proto.name or prefix,
        depth=state.scope.depth + 1, attributes={attr.name: attr for attr in proto.attribute},
        calls=state.scope.calls, closed=not bodies,
    )  # fmt: skip
    state.enter(function.node, scope, node.origin)
    return True


def _body(node: onnx.NodeProto, version: int, types: Mapping[str, TensorType]) -> onnx.FunctionProto | None:
    schema = onnx.defs.get_schema(node.op_type, version, domain_of(node.domain))
    named = {attr.name for attr in node.attribute}
    node.attribute.extend(
        attr.default_value for name, attr in schema.attributes.items() if name not in named and attr.default_value.name
    )
    if schema.context_dependent_function_opset_versions:
        kinds = [(tensor_type(types[name]) if name else onnx.TypeProto()).SerializeToString() for name in node.input]
        chosen = _newest(schema.context_dependent_function_opset_versions, version)
        text = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), kinds)
    elif schema.function_opset_versions:
        text = schema.get_function_with_opset_version(_newest(schema.function_opset_versions, version))
    else:
        return None
    body = onnx.FunctionProto.FromString(text)
    return body if body.node else None


def _names(state: Importer, function: onnx.FunctionProto, proto: onnx.NodeProto, prefix: str) -> dict[str, str]:
    """Return the names of a function's values: the call's inputs and outputs, and new names for values inside.

    A parameter that is not given is "".
    """
    inside = {value for node in function.node for value in node.output}
    names = state.inner(prefix, inside)
    for index, inner in enumerate(function.input):
        names[inner] = proto.input[index] if index < len(proto.input) else ""
    pairs = zip(function.output, proto.output, strict=False)
    return names | {inner: outer for inner, outer in pairs if outer and inner in inside}


def _newest(versions: Sequence[int], limit: int) -> int:
    """Return the newest version that is not newer than `limit`; the oldest if all are."""
    return max((version for version in versions if version <= limit), default=min(versions))
