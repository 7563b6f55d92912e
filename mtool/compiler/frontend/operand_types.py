"""Element types of operands held against the operator's schema, which onnx's shape inference does not compare."""

from collections.abc import Mapping

import onnx
from onnx.defs import OpSchema

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import DType, TensorType

_NAMES = {
    dtype: f"tensor({onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy)).lower()})"
    for dtype in DType
}


def check_operand_types(proto: onnx.NodeProto, schema: OpSchema, types: Mapping[str, TensorType]) -> None:
    """Check that a node's inputs have element types that its operator takes, and the same one where they share it.

    Raises:
        Unsupported: one has another.
    """
    formal = schema.inputs
    shared: dict[str, tuple[str, DType]] = {}
    for index, name in enumerate(proto.input):
        if name not in types or not formal:
            continue
        kind, dtype = formal[min(index, len(formal) - 1)], types[name].dtype
        if _NAMES[dtype] not in kind.types:
            expected = ", ".join(sorted(one.removeprefix("tensor(").removesuffix(")") for one in kind.types))
            raise Unsupported(f"its input {kind.name!r} is {dtype.label}; expected {expected}")
        if "(" in kind.type_str or not kind.is_homogeneous:
            continue
        other, first = shared.setdefault(kind.type_str, (kind.name, dtype))
        if dtype != first:
            raise Unsupported(f"its inputs {other!r} and {kind.name!r} are {first.label} and {dtype.label}")
