"""From an ONNX file to a Graph: symbolic dimensions, inputs that become constants, states."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from mtool.base.errors import ModelError, MtoolError
from mtool.base.identifiers import model_name
from mtool.compiler.frontend import external, reading, tensors
from mtool.compiler.frontend.bind_states import States, bind_states
from mtool.compiler.frontend.dimensions import Works, bind_dimensions
from mtool.compiler.frontend.first_values import first_values
from mtool.compiler.frontend.onnx_graph import import_graph
from mtool.compiler.frontend.options import DEFAULTS, ModelOptions, slides_of
from mtool.compiler.frontend.own_states import own_states
from mtool.compiler.frontend.separate import Separated, initialiser
from mtool.compiler.frontend.user_values import check_names, constant_of
from mtool.compiler.ir import Graph
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget


def load(path: Path, options: ModelOptions = DEFAULTS) -> Graph:
    """Read an ONNX model (of any opset) and return its graph.

    Args:
        path: the model file.
        options: of the model.

    Raises:
        UsageError: the file is missing, or an option names a dimension, input or output that the model does not have.
        NeedsValues: an operator needs the values of inputs of the model at compile time; the error lists them.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    budget = Budget(options.limits)
    model, separated = reading.read_separated(path, budget)
    return graph_of(model, path.name, path.stem, options, budget, separated)


def from_proto(model: onnx.ModelProto, name: str, options: ModelOptions = DEFAULTS) -> Graph:
    """Return the graph of a model in memory, without external data; otherwise as `load`."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    outside = next((tensor for tensor in tensors.every(copy) if external.is_external(tensor)), None)
    if outside is not None:
        raise ModelError(
            f"{name} has external data, which can't be found for a model in memory",
            details=[f"tensor {outside.name!r}"],
            hint="load it with onnx.load, or compile its file",
        )
    reading.repair(copy)
    reading.check(copy, name)
    return graph_of(copy, name, name, options, Budget(options.limits))


def graph_of(
    model: onnx.ModelProto,
    title: str,
    stem: str,
    options: ModelOptions,
    budget: Budget,
    separated: Separated | None = None,
    states: States | None = None,
) -> Graph:
    """Return the graph of a checked model, which is modified; `title` is for messages, `stem` gives its C name.

    `separated` has its large initialisers, if they were removed from it; `states` replace those of `options`.

    Raises:
        UsageError: an option names a dimension, input or output that the model does not have.
        ModelError: it has an unbound dimension, or operators that can't be compiled (all of them are listed).
    """
    _fix_inputs(model, options.constants, title)
    separated = separated or {}
    if states is None:
        pairs = (*own_states(model), *options.states)
        initial = _initial_values(model, {value for _, value in pairs}, budget, separated)
        states = States(pairs, initial, first_values(model.graph, pairs))
    bind_dimensions(model, options.dims, title, _trial(model, title, options, separated), options.maxima)
    halves = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in tensors.every(model))
    graph = import_graph(model, model_name(options.name or stem), options, budget, separated)
    noted = [text for one in model.metadata_props if one.key == "mtool.slides" for text in one.value.split(";")]
    graph = replace(graph, halves=halves and options.hybrid != "float32", slides=options.slides or slides_of(noted))
    return bind_states(graph, replace(states, initial={**states.initial, **options.state_values}), title, budget)


def _trial(model: onnx.ModelProto, title: str, options: ModelOptions, separated: Separated) -> Works:
    """Return a function that tries to import the model with given dimensions; all trials share one budget."""
    budget = Budget(options.limits)

    def works(dims: Mapping[str, int]) -> bool:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        try:
            bind_dimensions(copy, dims, title)
            import_graph(copy, "trial", options, budget, separated)
        except MtoolError:
            return False
        return True

    return works


def _initial_values(
    model: onnx.ModelProto, inputs: Collection[str], budget: Budget, separated: Separated
) -> dict[str, Array]:
    """Remove the initialisers of these inputs from the model and return them."""
    inputs = {value.name for value in model.graph.input if value.name in inputs}
    found = [tensor for tensor in model.graph.initializer if tensor.name in inputs]
    for tensor in found:
        model.graph.initializer.remove(tensor)
    return {tensor.name: initialiser(tensor, separated, budget) for tensor in found}


def _fix_inputs(model: onnx.ModelProto, constants: Mapping[str, Array], title: str) -> None:
    """Turn inputs into initialisers.

    Raises:
        UsageError: there is no such input, or a value does not fit it.
        ModelError: an input is not a tensor.
    """
    inputs = {value.name: value for value in model.graph.input}
    check_names(constants, inputs, "input", title)
    for name, data in constants.items():
        elem_type = inputs[name].type.tensor_type.elem_type
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type)
        except KeyError:
            raise ModelError(f"input {name!r} of {title} can't be a constant: it is not a tensor") from None
        dims = list(np.shape(data))
        if inputs[name].type.tensor_type.HasField("shape"):
            dims = [dim.dim_value if dim.dim_value > 0 else -1 for dim in inputs[name].type.tensor_type.shape.dim]
        shape = tuple(dims) if min(dims, default=0) >= 0 else None
        value = constant_of(name, data, dtype, dims, shape, title)
        model.graph.input.remove(inputs[name])
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))


def read_bound(path: Path, options: ModelOptions) -> onnx.ModelProto:
    """Read an ONNX model, set its symbolic dimensions, and turn the inputs given as constants into initialisers.

    Raises:
        UsageError: the file is missing, or an option names a dimension or input that the model does not have.
        ModelError: the file is not a model, is malformed or has an unbound dimension.
    """
    model = reading.read(path, Budget(options.limits))
    _fix_inputs(model, options.constants, path.name)
    bind_dimensions(model, options.dims, path.name)
    return model
