"""Dispatch: how each node is imported, by its domain, its operator, and whether all its inputs are constant."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base.escaping import argument
from mtool.compiler import operators
from mtool.compiler.frontend import functions, tensors
from mtool.compiler.frontend.attribute_values import check_attribute_values
from mtool.compiler.frontend.bounds import COUNTING
from mtool.compiler.frontend.canonical import CANONICAL
from mtool.compiler.frontend.canonical.forms import attributes_of
from mtool.compiler.frontend.canonical.movement import MOVEMENT
from mtool.compiler.frontend.classical import CLASSICAL
from mtool.compiler.frontend.classical.decomposition import Decomposition as ClassicalWriter
from mtool.compiler.frontend.contrib import CONTRIB
from mtool.compiler.frontend.control import CONTROL
from mtool.compiler.frontend.decomposition import Decomposition
from mtool.compiler.frontend.folding import fold
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.indices import check_indices, clamp_constant_indices, range_of_wrong_indices
from mtool.compiler.frontend.inference import SHAPING, infer
from mtool.compiler.frontend.maximum_sizes import gather_of_compress, set_maximum_sizes
from mtool.compiler.frontend.operand_shapes import check_operand_shapes
from mtool.compiler.frontend.operand_types import check_operand_types
from mtool.compiler.frontend.own_outputs import own_outputs
from mtool.compiler.frontend.problems import OWN, REFUSED, NotComputed, TooLarge, Unsupported, ValueNeeded
from mtool.compiler.frontend.qoperators import EXPANSIONS
from mtool.compiler.frontend.scope import Bodies, domain_of, key_of
from mtool.compiler.frontend.sequences import SEQUENCES, is_of_sequences
from mtool.compiler.frontend.validation import check_axis, check_node, check_range, check_values
from mtool.compiler.ir import TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators import own_results
from mtool.compiler.operators.own_domains import OwnOperator, own_kind, own_operators

NEWEST_OPSET = 21  # the opset of the nodes that mtool itself writes when it expands an operator
OF_NOTHING = ("Reduce", "Conv", "Global", "RNN", "GRU", "LSTM")  # not to be computed by NumPy without elements
_KEEP_EMPTY = ("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Slice", "Split")  # of nothing they make nothing
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
UNFOLDED = {"DequantizeLinear", *RANDOM}


def import_node(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Mapping[str, int], bodies: Bodies) -> None:
    """Import one node by what knows its operator.

    Raises:
        Unsupported: it can't be compiled.
        ModelError: it exceeds the budget.
    """
    domain = domain_of(proto.domain)
    version = opsets.get(domain, NEWEST_OPSET)
    function = None if _is_operator(proto, domain, version) else state.functions.get(key_of(proto))
    if function is not None or (not domain and (proto.op_type in CONTROL or is_of_sequences(state, proto))):
        _write_out(state, proto, function, origin, version, opsets, bodies)
        return
    qoperator = EXPANSIONS.get((domain, proto.op_type))
    if qoperator is not None:
        if not domain:
            schema = onnx.defs.get_schema(proto.op_type, version, domain)
            check_node(proto, schema, bodies)
            check_operand_types(proto, schema, state.types)
        for part in qoperator(state, proto, origin):
            state.run(part, {"": NEWEST_OPSET})
        return
    if domain == OWN:
        _run_own(state, proto, origin)
        return
    if domain == REFUSED:
        why = _attributes(proto)
        raise ValueNeeded(why["value"], "", text=why["reason"]) if why["value"] else Unsupported(why["reason"])
    if (domain, proto.op_type) in CONTRIB:
        CONTRIB[domain, proto.op_type](Decomposition(state, proto, origin, _attributes(proto)))
        return
    if not onnx.defs.has(proto.op_type, domain) and (domain, proto.op_type) in own_operators():
        _run_of_own_domain(state, proto, origin, own_operators()[domain, proto.op_type])
        return
    if not onnx.defs.has(proto.op_type, domain):
        raise Unsupported(f"domain {domain} is not supported" if domain else "there is no such operator")
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    check_node(proto, schema, bodies)
    check_operand_types(proto, schema, state.types)
    attrs = _attributes(proto)
    if proto.op_type == "Constant" and not domain:
        state.add_constant(proto.output[0], _constant_value(state, proto, origin))
        return
    if domain == "ai.onnx.ml" and proto.op_type in CLASSICAL:
        CLASSICAL[proto.op_type](ClassicalWriter(state, proto, origin, attrs))
        return
    if proto.op_type == "Slice" and not domain and version < 10:
        state.run(_slice_by_inputs(state, proto, attrs), {"": NEWEST_OPSET})
        return
    check_axis(proto, attrs, state.types)
    check_attribute_values(proto.op_type, attrs)
    check_values(proto, attrs, state.types)
    proto = _with_indices_inside(state, proto, schema, attrs)
    constants = _known_values(state, proto)
    known = all(name in constants or not name for name in proto.input) and not bodies
    gather = None if known or domain else gather_of_compress(state, proto, attrs)
    if gather is not None:
        state.run(gather, {"": NEWEST_OPSET})
        return
    if proto.op_type in ("Shape", "Size") and proto.input[0] in state.bounds:
        raise Unsupported("the shape that it asks for is known only when it runs")
    is_limited = not known and not domain and set_maximum_sizes(state, proto, attrs)
    try:
        if not is_limited and _told(state, proto, domain, version, constants if known else None):
            return
    except Unsupported as problem:
        if schema.has_type_and_shape_inference_function or isinstance(problem, TooLarge | ValueNeeded):
            raise
        if not functions.expand(state, proto, domain, version, origin, opsets, bodies):
            raise
        return
    check_operand_shapes(proto, attrs, state.types, version)
    if known and proto.op_type == "DequantizeLinear":
        state.dequantised[proto.output[0]] = (proto, max(version, 19))  # which onnx.reference has
    if proto.op_type in CANONICAL:
        CANONICAL[proto.op_type](state, proto, origin, attrs, version)
    elif proto.op_type in operators.LOWERINGS:
        told = attributes_of(operators.LOWERINGS[proto.op_type].attributes, attrs)
        state.emit(proto.op_type, origin, list(proto.input), list(proto.output), told)
    elif not functions.expand(state, proto, domain, version, origin, opsets, bodies):
        if proto.op_type in RANDOM:
            raise Unsupported("what it computes is random: make it an input of the model (docs/limits.md)")
        raise Unsupported("not supported")


def _slice_by_inputs(state: Importer, proto: onnx.NodeProto, attrs: Mapping[str, Any]) -> onnx.NodeProto:
    """Return the same Slice of a newer opset: of the old one, inference knows no starts before the beginning."""
    values = [
        state.constant(f"{proto.output[0]}/{name}", np.array(attrs[name], np.int64))
        for name in ("starts", "ends", "axes")
        if name in attrs
    ]
    return helper.make_node("Slice", [proto.input[0], *values], proto.output, name=proto.name)


def _run_of_own_domain(state: Importer, proto: onnx.NodeProto, origin: str, own: OwnOperator) -> None:
    """Import a node of an operator that an installed package adds; it is as canonical as that makes it."""
    attrs = attributes_of(own.operator.attributes, _attributes(proto))
    inputs, outputs = list(proto.input), list(proto.output)
    known = [state.types[name] for name in inputs if name]
    kinds = own_results.types_of(own, attrs, known, len(outputs), f"{proto.op_type} {origin}")
    state.types |= {name: kind for name, kind in zip(outputs, kinds, strict=False) if name}
    state.emit(own_kind(domain_of(proto.domain), proto.op_type), origin, inputs, outputs, attrs)


def _with_indices_inside(
    state: Importer, proto: onnx.NodeProto, schema: onnx.defs.OpSchema, attrs: Mapping[str, Any]
) -> onnx.NodeProto:
    """Return a node whose constant indices lie inside; in a round or branch that may not be taken, the nearest do.

    Raises:
        Unsupported: one lies outside.
    """
    if not state.perhaps:
        check_indices(proto, schema, attrs, state.types, state.constants)
        return proto
    allowed = range_of_wrong_indices(proto, attrs, state.types, state.constants)
    if allowed is None:
        return proto
    changed = onnx.NodeProto()
    changed.CopyFrom(proto)
    name = proto.input[allowed.index]
    changed.input[allowed.index] = state.constant(
        f"{name}/inside", clamp_constant_indices(state.constants[name], allowed)
    )
    return changed


def _is_operator(proto: onnx.NodeProto, domain: str, version: int) -> bool:
    """Tell whether an operator has the name that a node calls, and so goes before a function of that name.

    ONNX leaves that to the runtime; onnxruntime and onnx's reference do so.
    """
    key = (domain, proto.op_type)
    return not proto.overload and (key in CONTRIB or key in EXPANSIONS or onnx.defs.has(proto.op_type, version, domain))


def _write_out(
    state: Importer,
    proto: onnx.NodeProto,
    function: onnx.FunctionProto | None,
    origin: str,
    version: int,
    opsets: Mapping[str, int],
    bodies: Bodies,
) -> None:
    """Import what becomes more nodes than the file has: their number is bounded."""
    state.writing_out += 1
    try:
        if function is not None:
            functions.call(state, function, proto, origin, bodies)
            return
        check_node(proto, onnx.defs.get_schema(proto.op_type, version, ""), bodies)
        if proto.op_type in CONTROL:
            CONTROL[proto.op_type](state, proto, origin, opsets, bodies)
        else:
            SEQUENCES[proto.op_type](state, proto, origin, opsets)
    finally:
        state.writing_out -= 1


def _constant_value(state: Importer, proto: onnx.NodeProto, origin: str) -> Array:
    if len(proto.attribute) != 1:
        raise Unsupported(f"it has {len(proto.attribute)} values; expected 1")
    attr = proto.attribute[0]
    if attr.name == "value":
        return tensors.array_of(attr.t, state.budget, f"Constant {origin}")
    if attr.name == "sparse_value":
        return tensors.dense(attr.sparse_tensor, state.budget, f"Constant {origin}")
    if attr.name not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise Unsupported("strings are not supported")
    dtype = np.float32 if attr.name.startswith("value_float") else np.int64
    return np.asarray(helper.get_attribute_value(attr), dtype)


def _run_own(state: Importer, proto: onnx.NodeProto, origin: str) -> None:
    kinds = own_outputs(proto, state.types)
    if not any(kind.count for kind in kinds.values()):
        for name, kind in kinds.items():
            state.add_constant(name, np.zeros(kind.shape, kind.dtype.numpy))
        return
    state.types |= kinds
    told = attributes_of(operators.LOWERINGS[proto.op_type].attributes, _attributes(proto))
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), told)


def _known_values(state: Importer, proto: onnx.NodeProto) -> Mapping[str, Array]:
    """Return the values of a node's inputs that are constants; of what computes, dequantised ones too.

    What moves weights shall move their integers.
    """
    names = set(filter(None, proto.input))
    found = {name: state.constants[name] for name in names if name in state.constants}
    dequantised = names & set(state.dequantised)
    if proto.op_type in MOVEMENT or names - set(found) - dequantised:
        return found
    for name in sorted(dequantised):
        source, version = state.dequantised[name]
        found |= fold(source, "", version, state.constants, {name: state.types[name]}, state.budget)
    return found


def _told(
    state: Importer, proto: onnx.NodeProto, domain: str, version: int, constants: Mapping[str, Array] | None
) -> bool:
    """Infer the types of a node's outputs; return whether their values are known as well.

    `constants` has the values of its inputs; None: not all are known.
    """
    if proto.op_type == "Range" and constants is not None:
        check_range(constants, proto.input)
    kinds: dict[str, TensorType] = {}
    try:
        kinds = infer(proto, domain, version, state.types, state.constants, state.declared)
    except Unsupported as problem:
        if proto.op_type in COUNTING and constants is None:
            told = f"{problem}, or" if isinstance(problem, ValueNeeded) else "its output shape depends on data;"
            problem.args = (f"{told} give --max {argument(proto.output[0])}=N, the most that there may be",)
        if constants is None or proto.op_type in UNFOLDED or isinstance(problem, TooLarge):
            raise  # of constants, the values say what types there are
    state.types |= kinds
    outputs = [name for name in proto.output if name]
    if outputs and all(name in kinds and not kinds[name].count for name in outputs):
        _check_is_told(proto, state)
        for name in outputs:
            state.add_constant(name, np.zeros(kinds[name].shape, kinds[name].dtype.numpy))
        return True
    empty = any(not state.types[name].count for name in proto.input if name)
    unfolded = proto.op_type in UNFOLDED or (empty and proto.op_type.startswith(OF_NOTHING))
    if constants is not None and not unfolded:
        try:
            values = fold(proto, domain, version, constants, kinds, state.budget)
        except NotComputed:
            defined = not empty or proto.op_type == "DynamicQuantizeLinear" or _pads_by_a_constant(proto)
            if not defined or not set(outputs) <= set(kinds):
                raise
            return False  # the device computes it, as it would with inputs of the run
        for name, data in values.items():
            state.add_constant(name, data)
        return True
    return False


def _pads_by_a_constant(proto: onnx.NodeProto) -> bool:
    return proto.op_type == "Pad" and bool(_attributes(proto).get("mode", "constant") == "constant")


def _check_is_told(proto: onnx.NodeProto, state: Importer) -> None:
    """Refuse to believe the model that an output is empty, where that depends on an input that only the run knows.

    Raises:
        ValueNeeded: it does.
    """
    if proto.op_type in _KEEP_EMPTY and not state.types[proto.input[0]].count:
        return
    for index in SHAPING.get(proto.op_type, ()):
        if index < len(proto.input) and proto.input[index] and proto.input[index] not in state.constants:
            raise ValueNeeded(proto.input[index], onnx.defs.get_schema(proto.op_type).inputs[index].name)


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes, but for graphs."""
    kept = [attr for attr in proto.attribute if attr.type != onnx.AttributeProto.GRAPH]
    try:
        return {attr.name: _plain(helper.get_attribute_value(attr)) for attr in kept}
    except UnicodeDecodeError:
        raise Unsupported("one of its attributes is no text") from None


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
