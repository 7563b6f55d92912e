"""Large initialisers as arrays beside the proto, so that who copies a model to check it does not copy them.

One element of the same name and type stands for a large initialiser in the proto. Of its shape and data onnx's checker
would say only whether they go together, which is looked at here.
"""

from collections import Counter
from collections.abc import Mapping

import onnx

from mtool.compiler.frontend import tensors
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget

LARGE_BYTES = 1 << 16
_MARK = "separated"  # as doc_string: a small one of this name may be put beside it later
_PLAIN = {"dims", "data_type", "name", "doc_string", "raw_data"}

Separated = Mapping[str, Array]
"""The large initialisers of a model, by name."""


def separate(model: onnx.ModelProto, budget: Budget) -> tuple[onnx.ModelProto, Separated]:
    """Return a model without the data of its large initialisers, and these; the model given is used up.

    Whatever is odd about an initialiser keeps it in the model, where the checker and the importer tell what it is.

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
    """Return the elements of an initialiser, which are in it or beside it.

    Raises:
        ModelError: it is malformed or too large.
    """
    if tensor.name in separated and tensor.doc_string == _MARK:
        return separated[tensor.name]
    return tensors.initialiser(tensor, budget)


def _is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is large, and all that it says is its shape, its type and as many bytes as these take."""
    size = tensors.byte_count(tensor)
    if size < LARGE_BYTES or min(tensor.dims, default=0) < 0:
        return False
    fields = {field.name: value for field, value in tensor.ListFields()}
    return {*fields} <= _PLAIN and len(fields.get("raw_data", b"")) == size
