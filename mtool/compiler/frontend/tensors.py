"""The tensors stored in a model, and their elements."""

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.compiler.ir.types import Array, DType
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.problems import Unsupported

_SUB_BYTE = {
    getattr(TensorProto, name): bits
    for name, bits in {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}.items()
    if hasattr(TensorProto, name)
}


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Return every graph: the model's own, and those in attributes, including functions' ones."""
    for part in _parts(model):
        if isinstance(part, onnx.GraphProto):
            yield part


def every(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Return every tensor of a model: initialisers and attributes, at every depth, including those of functions."""
    for part in _parts(model):
        if isinstance(part, onnx.GraphProto):
            yield from part.initializer
            scattered = list(part.sparse_initializer)
        else:
            yield from [part.t] if part.HasField("t") else []
            yield from part.tensors
            scattered = [*([part.sparse_tensor] if part.HasField("sparse_tensor") else []), *part.sparse_tensors]
        for sparse in scattered:
            yield from (sparse.values, sparse.indices)


def _parts(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.AttributeProto]:
    """Return every graph and attribute, without recursion."""
    attributes = [attr for function in model.functions for attr in function.attribute_proto]
    attributes += [attr for function in model.functions for node in function.node for attr in node.attribute]
    open_graphs = [model.graph]
    while open_graphs or attributes:
        while open_graphs:
            graph = open_graphs.pop()
            yield graph
            attributes += [attr for node in graph.node for attr in node.attribute]
        while attributes:
            attr = attributes.pop()
            yield attr
            open_graphs += [attr.g] if attr.HasField("g") else []
            open_graphs += attr.graphs


_NOT_IN_C = (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128)


def read_names(model: onnx.ModelProto) -> set[str]:
    """Return the names of all values that a node of any graph reads, and of all graphs' outputs."""
    names = {value for function in model.functions for node in function.node for value in node.input}
    for graph in graphs(model):
        names.update(value for node in graph.node for value in node.input)
        names.update(value.name for value in graph.output)
    return names


def byte_count(tensor: TensorProto) -> int:
    """Return the number of bytes of a tensor's elements, by its shape and type; 0 for an unknown type."""
    count: int = math.prod(max(size, 0) for size in tensor.dims)
    bits = _SUB_BYTE.get(tensor.data_type)
    if bits is not None:
        return -(-count * int(bits) // 8)
    try:
        return count * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except KeyError:
        return 0


def array_of(tensor: TensorProto, budget: Budget, where: str) -> Array:
    """Return a tensor's elements.

    Raises:
        Unsupported: it is malformed, or its bytes are in another file.
        ModelError: it is too large.
    """
    budget.afford("constants", byte_count(tensor), where)
    if tensor.data_location == TensorProto.EXTERNAL:
        raise Unsupported("it has external data, which is supported only for a model in a file")
    if tensor.data_type in _NOT_IN_C:
        raise Unsupported(f"its elements are of type {TensorProto.DataType.Name(tensor.data_type)}")
    try:
        elements = np.asarray(numpy_helper.to_array(tensor))
    except (KeyError, ValueError, TypeError) as failed:
        raise Unsupported(f"its elements can't be read: {failed}") from None
    try:
        DType.of(elements.dtype)
    except KeyError:
        raise Unsupported(f"its elements are of type {elements.dtype}") from None
    return elements


def initialiser(tensor: TensorProto, budget: Budget) -> Array:
    """Return the elements of an initialiser.

    Raises:
        ModelError: it is malformed or too large.
    """
    try:
        return array_of(tensor, budget, f"initialiser {tensor.name!r}")
    except Unsupported as failed:
        raise ModelError(f"initialiser {tensor.name!r} can't be read", details=[str(failed)]) from None


def dense(sparse: onnx.SparseTensorProto, budget: Budget, where: str) -> Array:
    """Return a sparse tensor with all its elements; each index is an element's number, or a row of coordinates.

    Raises:
        Unsupported: it is malformed.
        ModelError: it is too large.
    """
    shape = tuple(sparse.dims)
    values = array_of(sparse.values, budget, where)
    indices = array_of(sparse.indices, budget, where)
    if min(shape, default=0) < 0 or values.ndim != 1 or len(indices) != len(values) or indices.dtype != np.int64:
        raise Unsupported(
            f"its sparse tensor is malformed: {plural.count(len(values), 'value')} for shape {list(shape)}"
        )
    budget.afford("constants", math.prod(shape) * values.dtype.itemsize, where)
    result = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 2 and indices.shape[1] == len(shape) and (indices >= 0).all():
            result[tuple(indices.T)] = values
        elif indices.ndim == 1 and (indices >= 0).all():
            result.reshape(-1)[indices] = values
        else:
            raise IndexError("its indices have the wrong shape")
    except IndexError as failed:
        raise Unsupported(f"its sparse tensor is malformed: {failed}") from None
    return result
