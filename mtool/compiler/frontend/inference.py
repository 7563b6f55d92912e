"""Types of a node's outputs, by onnx's shape inference."""

from collections.abc import Mapping

import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.compiler.frontend.problems import TooLarge, Unsupported, ValueNeeded
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.ir.types import Array

MOST_BYTES = 2**31 - 1
"""The largest tensor: offsets in generated C are int32_t."""

MOST_DIMENSIONS = 32  # as NumPy

MOST_PROPAGATED = 1024  # elements of a constant up to which shape inference is told its values

FIRST_BROADCASTING = 7  # the opset from which on newer versions of an operator have the same shapes

SHAPING = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 3), "TopK": (1,),
    "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "Range": (0, 1, 2), "ConstantOfShape": (0,), "OneHot": (1,),
    "Resize": (2, 3), "Upsample": (1,), "CenterCropPad": (1,), "HannWindow": (0,), "HammingWindow": (0,),
    "BlackmanWindow": (0,), "DFT": (1, 2), "STFT": (1, 3), "MelWeightMatrix": (0, 1, 2, 3, 4), "Col2Im": (1, 2),
    "AffineGrid": (1,), "MaxUnpool": (2,), "NonMaxSuppression": (2,), "ImageDecoder": (0,),
    **{f"Reduce{kind}": (1,) for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum")},
    "ReduceLogSumExp": (1,),
}  # fmt: skip
"""Inputs whose values say what shape the outputs have."""

_DECLARED = ("MaxUnpool", "NonMaxSuppression")  # of which inference does not tell that, constants or not


def check_size(kind: TensorType, what: str) -> TensorType:
    """Return a type that C can have.

    Raises:
        TooLarge: it has too many bytes or dimensions.
    """
    if kind.bytes > MOST_BYTES:
        raise TooLarge(f"{what} {kind} is larger than 2 GiB")
    if len(kind.shape) > MOST_DIMENSIONS:
        raise TooLarge(f"{what} has {len(kind.shape)} dimensions; at most {MOST_DIMENSIONS} are supported")
    if max(kind.shape, default=0) > MOST_BYTES:
        raise TooLarge(f"{what} {kind} has a dimension of more than 2,147,483,647")
    return kind


LIKE_THEIR_INPUT = {"GroupNormalization", "MeanVarianceNormalization"}
"""Operators whose output has the type of their first input, which onnx does not say."""


def known_type(kind: onnx.TypeProto, declared: onnx.TypeProto | None) -> TensorType:
    """Return a tensor type whose every dimension is a number; `declared` fills in what inference left open.

    Raises:
        Unsupported: it is no tensor, has an element type that mtool does not have, or a dimension that is open.
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
            raise Unsupported("the shape of its output can't be told before it runs")
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
    """Return what ONNX calls an element type."""
    names = {value: str(name) for name, value in TensorProto.DataType.items()}
    return names.get(code, f"number {code}").lower()


def infer(
    proto: onnx.NodeProto,
    domain: str,
    version: int,
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
    declared: Mapping[str, onnx.TypeProto],
) -> dict[str, TensorType]:
    """Return the types of a node's outputs.

    Raises:
        ValueNeeded: the output's shape depends on the value of an input that is not a constant.
        TooLarge: an output is larger than what C can have.
        Unsupported: the types can't be told, or mtool does not have them.
    """
    absent = [name for name in proto.input if name and name not in types]
    if absent:
        raise Unsupported(f"its input {absent[0]!r} is not a tensor of the model")
    known = {name: tensor_type(kind) for name in proto.input if name and (kind := types.get(name))}
    data = {
        name: numpy_helper.from_array(constants[name], name)
        for name in proto.input
        if name in constants and constants[name].size <= MOST_PROPAGATED
    }
    schema = onnx.defs.get_schema(proto.op_type, version, domain)
    if not schema.has_type_and_shape_inference_function and schema.since_version >= FIRST_BROADCASTING:
        schema = onnx.defs.get_schema(schema.name, schema.domain)  # GreaterOrEqual 12 says nothing, but 16 does
    found: dict[str, onnx.TypeProto] = {}
    failure = ""
    try:
        imports = [helper.make_opsetid(domain, version)]
        found = onnx.shape_inference.infer_node_outputs(
            schema, proto, known, data, opset_imports=imports, ir_version=10
        )
    except (onnx.shape_inference.InferenceError, onnx.defs.SchemaError, onnx.checker.ValidationError) as failed:
        failure = str(failed).strip().splitlines()[-1]
    sizes = [index for index in SHAPING.get(proto.op_type, ()) if index < len(proto.input) and proto.input[index]]
    told = bool(sizes) and proto.op_type not in _DECLARED and all(proto.input[index] in constants for index in sizes)
    result = {}
    for name in filter(None, proto.output):
        if proto.op_type in LIKE_THEIR_INPUT and not domain:
            result[name] = types[proto.input[0]]
            continue
        try:
            if failure:
                raise Unsupported(failure)  # whatever the model declares
            result[name] = known_type(
                found.get(name) or onnx.TypeProto(tensor_type={}), None if told else declared.get(name)
            )
        except Unsupported as problem:
            for index in SHAPING.get(proto.op_type, ()):
                if index < len(proto.input) and proto.input[index] and proto.input[index] not in constants:
                    raise ValueNeeded(proto.input[index], schema.inputs[index].name) from None
            raise Unsupported(str(problem)) from None
        check_size(result[name], "its output")
    return result


def tensor_type(kind: TensorType) -> onnx.TypeProto:
    """Return a type as ONNX writes it."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(kind.dtype.numpy), kind.shape)
