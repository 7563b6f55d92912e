"""Keep large initialisers as arrays outside the proto, so that copying a model for a check does not copy them.

In the proto, one element of the same name and type replaces a large initialiser. onnx's checker would only compare its
shape with the size of its data, which is done here instead.
"""

from collections import Counter
from collections.abc import Mapping

import onnx

from mtool.compiler.frontend import tensors
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget

LARGE_BYTES = 1 << 16
_MARK = "separated"  # a doc_string: a small initialiser of the same name may follow
_PLAIN = {"dims", "data_type", "name", "doc_string", "raw_data"}

Separated = Mapping[str, Array]
"""The large initialisers of a model, by name."""


def separate(model: onnx.ModelProto, budget: Budget) -> tuple[onnx.ModelProto, Separated]:
    """Return a model without the data of its large initialisers, and these; the given model is modified.

    A malformed initialiser stays in the model, where the checker or the importer reports it.

    Raises:
        ModelError: one is larger than the budget allows.
    """
    initialisers = list(model.graph.initializer)
    count = Counter(tensor.name for tensor in initialisers)
    read = tensors.read_names(model)
    del model.graph.initializer[:]
    light = onnx.ModelProto()
    light.CopyFrom(model)
    separated = {}
    for tensor in initialisers:
        if count[tensor.name] == 1 and tensor.name in read and _is_large(tensor):
            separated[tensor.name] = tensors.initialiser(tensor, budget)
            small = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[1], doc_string=_MARK)
            light.graph.initializer.add().CopyFrom(small)
            light.graph.initializer[-1].raw_data = bytes(tensors.byte_count(small))
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    return light, separated


def initialiser(tensor: onnx.TensorProto, separated: Separated, budget: Budget) -> Array:
    """Return the elements of an initialiser, in the proto or separated.

    Raises:
        ModelError: it is malformed or too large.
    """
    if tensor.name in separated and tensor.doc_string == _MARK:
        return separated[tensor.name]
    return tensors.initialiser(tensor, budget)


def _is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is large and well formed: only a shape, a type, and the number of bytes that they need."""
    size = tensors.byte_count(tensor)
    if size < LARGE_BYTES or min(tensor.dims, default=0) < 0:
        return False
    fields = {field.name: value for field, value in tensor.ListFields()}
    return {*fields} <= _PLAIN and len(fields.get("raw_data", b"")) == size
