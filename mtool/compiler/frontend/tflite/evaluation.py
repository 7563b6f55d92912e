"""Evaluate at compile time: the values of tensors that are computed from constants, and shapes.

A model with an open batch size computes shapes by SHAPE, STRIDED_SLICE, PACK and similar operators; converters put an
operator that expands them behind float16 or sparse weights. Operators that need such a value get it here.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace

import onnx

from mtool.compiler.frontend.folding import fold
from mtool.compiler.frontend.inference import infer, own_outputs
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.frontend.tflite.translation import OPSET, Translation
from mtool.compiler.frontend.user_values import check_names, constant_of
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import Unsupported


def settle(t: Translation, start: int) -> None:
    """Evaluate the current operator's nodes, those from `start` on.

    If all its inputs are constants, the values replace the nodes. If the file leaves the size of an output open, the
    output gets the inferred size.

    Raises:
        ModelError: it exceeds the budget.
    """
    known = all(number < 0 or t.value(number) is not None for number in t.op.inputs)
    is_open = any(t.tensors[number].open for number in t.op.outputs)
    nodes = t.nodes[start:]
    if any(attr.type == onnx.AttributeProto.GRAPH for node in nodes for attr in node.attribute):
        return  # the import does that
    known = known and not any(node.domain for node in nodes)
    if not nodes or not (known or is_open):
        return
    if known and t.op.kind == "DEQUANTIZE" and t.tensor(0).is_quantized:
        t.dequantized[t.op.outputs[0]] = t.op.inputs[0]  # the integers are kept: the weights stay small
        known = False
    types, constants = _known_types(t, nodes), ChainMap(_dequantized(t), t.constants)
    for node in nodes:
        kinds: dict[str, TensorType] = {}
        try:
            kinds = own_outputs(node, types) if node.domain else infer(node, OPSET, types, constants, {})
        except Unsupported:
            if not known:
                return  # the import of the node reports the reason
        try:
            made = fold(node, OPSET, constants, kinds, t.budget) if known else {}
        except Unsupported:
            return
        constants.update(made)
        types |= {name: TensorType(DType.of(data.dtype), data.shape) for name, data in made.items()} | kinds
    values = [constants.get(t.names[number]) if known else None for number in t.op.outputs]
    for number, value in zip(t.op.outputs, values, strict=True):
        kind = types[t.complex[number][0] if number in t.complex else t.names[number]]
        if value is None:
            t.tensors[number] = replace(t.tensors[number], shape=_settled(t, number, kind.shape))
        elif kind.dtype.numpy == t.tensors[number].dtype:
            t.fix(number, value)
    if all(t.tensors[number].data is not None for number in t.op.outputs):
        del t.nodes[start:]


def _dequantized(t: Translation) -> dict[str, Array]:
    """Return the values of the constants that the current operator reads through a DEQUANTIZE."""
    found = {t.names[number]: t.value(number) for number in t.op.inputs if number in t.dequantized}
    return {name: data for name, data in found.items() if data is not None}


def _known_types(t: Translation, nodes: Sequence[onnx.NodeProto]) -> dict[str, TensorType]:
    """Return the types of the values that the current operator's nodes read."""
    names = {name for node in nodes for name in node.input if name}
    read = {t.names[n]: t.tensors[n] for n in t.op.inputs if n >= 0 and t.names[n] in names}
    types = {name: TensorType(DType.of(tensor.dtype), tensor.shape) for name, tensor in read.items()}
    for number in t.complex.keys() & set(t.op.inputs):
        types |= dict.fromkeys(t.complex[number], TensorType(DType.FLOAT32, t.tensors[number].shape))
    for name in names & set(t.constants):
        types[name] = TensorType(DType.of(t.constants[name].dtype), t.constants[name].shape)
    return types


def _settled(t: Translation, number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor's shape, with the inferred sizes where the file leaves them open."""
    tensor = t.tensors[number]
    if len(shape) != len(tensor.shape):
        return tensor.shape
    return tuple(shape[dim] if dim in tensor.open else size for dim, size in enumerate(tensor.shape))


def specialise(t: Translation, options: ModelOptions, title: str) -> None:
    """Set the inputs' open dimensions, and replace inputs by constants.

    Raises:
        UsageError: the model has no such dimension or input, or a value does not fit its input.
    """
    inputs = {t.names[number]: number for number in t.model.inputs}
    check_names(options.constants, inputs, "input", title)
    sizes = dict(options.dims)
    for name, number in inputs.items():
        t.tensors[number] = _sized(t.tensors[number], name, sizes)
    check_names(sizes, (), "symbolic dimension", title)
    for name, data in options.constants.items():
        tensor = t.tensors[inputs[name]]
        dims = [-1 if dim in tensor.open else size for dim, size in enumerate(tensor.shape)]
        t.fix(inputs[name], constant_of(name, data, tensor.dtype, dims, tensor.shape, title))


def _sized(tensor: Tensor, name: str, sizes: dict[str, int]) -> Tensor:
    """Return a tensor with the sizes of its open dimensions, which are removed from `sizes`."""
    shape = list(tensor.shape)
    for dim in tensor.open:
        shape[dim] = sizes.pop(f"{name}_{dim}", shape[dim])
    return replace(tensor, shape=tuple(shape))
