"""The types of what mtool's own operators make, which no schema of ONNX says."""

from collections.abc import Mapping

import onnx
from onnx import helper

from mtool.compiler import operators
from mtool.compiler.frontend.canonical.forms import attributes_of
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import DType, TensorType


def own_outputs(proto: onnx.NodeProto, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """Return the types of a node's outputs, by name; the node is of the domain `problems.OWN`.

    Raises:
        Unsupported: there are not as many.
    """
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute}
    own = operators.OWN.get(proto.op_type)
    if own is None:
        dtype = DType.of(helper.tensor_dtype_to_np_dtype(attrs["to"]))
        return {proto.output[0]: TensorType(dtype, types[proto.input[0]].shape)}
    kinds = own.outputs(attributes_of(own.operator.attributes, attrs), [types[name] for name in proto.input if name])
    if len(kinds) != len(proto.output):
        raise Unsupported(f"it has {len(proto.output)} outputs instead of {len(kinds)}")
    return dict(zip(proto.output, kinds, strict=True))
