"""Nodes of a file: the operator and attributes of each, and the types of its outputs, by onnx's shape inference."""

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.base import plural
from mtool.compiler.frontend.scope import domain_of
from mtool.compiler.ir import Attributes, DType, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators import operators
from mtool.compiler.operators.custom_domains import custom_operators
from mtool.compiler.operators.onnx_node import attributes_of
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import TooLarge, Unsupported, ValueNeeded

MAX_BYTES = 2**31 - 1
"""The largest tensor: offsets in generated C are int32_t."""

MAX_DIMENSIONS = 32  # as NumPy

MAX_PROPAGATED = 1024  # the most elements of a constant whose values shape inference gets

FIRST_BROADCASTING = 7  # from this opset on, newer versions of an operator have the same shapes


def check_size(kind: TensorType, role: str) -> TensorType:
    """Return the type, if it is small enough for the generated C.

    Raises:
        TooLarge: it has too many bytes or dimensions.
    """
    if kind.bytes > MAX_BYTES:
        raise TooLarge(f"{role} {kind} is larger than 2 GiB")
    if len(kind.shape) > MAX_DIMENSIONS:
        raise TooLarge(
            f"{role} has {plural.count(len(kind.shape), 'dimension')}; at most {MAX_DIMENSIONS} are supported"
        )
    if max(kind.shape, default=0) > MAX_BYTES:
        raise TooLarge(f"{role} {kind} has a dimension of more than 2,147,483,647")
    return kind


def known_type(kind: onnx.TypeProto, declared: onnx.TypeProto | None) -> TensorType:
    """Return a tensor type whose dimensions are all known; `declared` fills in those that inference left open.

    Raises:
        Unsupported: it is not a tensor, its element type is not supported, or a dimension is unknown.
    """
    if not kind.HasField("tensor_type"):
        raise Unsupported(f"its output is a {kind.WhichOneof('value') or 'value of no type'}, not a tensor")
    if not kind.tensor_type.elem_type and declared is not None:
        kind.tensor_type.elem_type = declared.tensor_type.elem_type
    try:
        dtype = DType.of(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
    except KeyError:
        raise Unsupported(f"elements of type {element_name(kind.tensor_type.elem_type)} are not supported") from None
    other = declared.tensor_type.shape.dim if declared is not None and declared.tensor_type.HasField("shape") else None
    if not kind.tensor_type.HasField("shape"):
        if other is None:
            raise Unsupported("the rank of its output is not known at compile time")
        assert declared is not None
        kind.tensor_type.shape.CopyFrom(declared.tensor_type.shape)
    dims = []
    for index, dim in enumerate(kind.tensor_type.shape.dim):
        if not dim.HasField("dim_value") and other is not None and len(other) == len(kind.tensor_type.shape.dim):
            dim = other[index]
        if not dim.HasField("dim_value"):
            raise Unsupported("its output shape depends on data; declare its shape in the model")
        if dim.dim_value < 0:
            raise Unsupported(f"dimension {index} of its output is {dim.dim_value}")
        dims.append(dim.dim_value)
    return TensorType(dtype, tuple(dims))


def element_name(code: int) -> str:
    """Return ONNX's name of an element type."""
    names = {value: str(name) for name, value in TensorProto.DataType.items()}
    return names.get(code, f"number {code}").lower()


def infer(
    proto: onnx.NodeProto, version: int, types: Mapping[str, TensorType], constants: Mapping[str, Array],
    declared: Mapping[str, onnx.TypeProto],
) -> dict[str, TensorType]:  # fmt: skip
    """Return the types of a node's outputs.

    Raises:
        ValueNeeded: the output's shape depends on the value of an input that is not a constant.
        TooLarge: an output is too large for the generated C.
        Unsupported: the types can't be determined, or are not supported.
    """
    absent = [name for name in proto.input if name and name not in types]
    if absent:
        raise Unsupported(f"its input {absent[0]!r} is not a tensor of the model")
    input_types = {name: tensor_type(kind) for name in proto.input if name and (kind := types.get(name))}
    data = {
        name: numpy_helper.from_array(constants[name], name)
        for name in proto.input
        if name in constants and constants[name].size <= MAX_PROPAGATED
    }
    operator = operator_of(proto)
    if operator.infer is not None:
        output_types = operator.infer(Attributes(), [types[name] for name in proto.input if name])
        return dict(zip(filter(None, proto.output), output_types, strict=False))
    domain = domain_of(proto.domain)
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    if not schema.has_type_and_shape_inference_function and schema.since_version >= FIRST_BROADCASTING:
        schema = onnx.defs.get_schema(schema.name, schema.domain)  # GreaterOrEqual 12 has no inference, 16 has
    inferred: dict[str, onnx.TypeProto] = {}
    failure = ""
    try:
        imports = [helper.make_opsetid(domain, version)]
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, proto, input_types, data, opset_imports=imports, ir_version=10
        )
    except (onnx.shape_inference.InferenceError, onnx.defs.SchemaError, onnx.checker.ValidationError) as failed:
        failure = str(failed).strip().splitlines()[-1]
    sizes = sizes_of(operator, proto)
    is_known = bool(sizes) and not operator.is_declared and all(value in constants for value in sizes.values())
    result = {}
    for name in filter(None, proto.output):
        try:
            if failure:
                raise Unsupported(failure)  # even if the model declares a shape
            result[name] = known_type(
                inferred.get(name) or onnx.TypeProto(tensor_type={}), None if is_known else declared.get(name)
            )
        except Unsupported as problem:
            for index, value in sizes.items():
                if value not in constants:
                    raise ValueNeeded(value, schema.inputs[index].name) from None
            raise Unsupported(str(problem)) from None
        check_size(result[name], "its output")
    return result


def own_outputs(proto: onnx.NodeProto, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Return the output types, by name, of a node of mtool's own domain, for which ONNX has no schema.

    Raises:
        Unsupported: the number of outputs is wrong.
    """
    attrs = attributes(proto)
    operator = operator_of(proto)
    if operator.infer is None:
        dtype = DType.of(helper.tensor_dtype_to_np_dtype(attrs["to"]))
        return {proto.output[0]: TensorType(dtype, types[proto.input[0]].shape)}
    kinds = operator.infer(attributes_of(operator.attributes, attrs), [types[name] for name in proto.input if name])
    if len(kinds) != len(proto.output):
        raise Unsupported(f"it has {plural.count(len(proto.output), 'output')} instead of {len(kinds)}")
    return dict(zip(proto.output, kinds, strict=True))


def operator_of(proto: onnx.NodeProto) -> Operator:
    """Return the record of a node's operator, or an empty one with its name."""
    domain = domain_of(proto.domain)
    operator = operators().get((domain, proto.op_type))
    if operator is None and domain and not onnx.defs.has(proto.op_type, domain):
        operator = custom_operators().get((domain, proto.op_type))
    return operator or Operator(proto.op_type, domain=domain)


def sizes_of(operator: Operator, proto: onnx.NodeProto) -> dict[int, str]:
    """Return a node's inputs whose values determine the shapes of the outputs."""
    return {index: proto.input[index] for index in operator.sizes if index < len(proto.input) and proto.input[index]}


def attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes, except graphs: strings as str, lists as tuples.

    Raises:
        Unsupported: a string is not UTF-8.
    """
    attrs = [attr for attr in proto.attribute if attr.type != onnx.AttributeProto.GRAPH]
    try:
        return {attr.name: _plain(helper.get_attribute_value(attr)) for attr in attrs}
    except UnicodeDecodeError:
        raise Unsupported("one of its attributes is a string that is not UTF-8") from None


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value.decode() if isinstance(value, bytes) else value


def tensor_type(kind: TensorType) -> onnx.TypeProto:
    """Return a type as an ONNX TypeProto."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(kind.dtype.numpy), kind.shape)
