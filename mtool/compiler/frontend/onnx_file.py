"""From an ONNX file to a Graph: symbolic dimensions, inputs that become constants, states."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from mtool.base.errors import ModelError, MtoolError, NeedsValues, UsageError
from mtool.base.escaping import argument
from mtool.base.identifiers import model_name
from mtool.compiler.frontend import external, reading, tensors
from mtool.compiler.frontend.bind_states import States, bind_states
from mtool.compiler.frontend.dimensions import Works, bind_dimensions
from mtool.compiler.frontend.dispatch import import_node
from mtool.compiler.frontend.first_values import first_values
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.inference import check_size, element_name
from mtool.compiler.frontend.model_states import model_states
from mtool.compiler.frontend.options import DEFAULTS, ModelOptions, slides_of
from mtool.compiler.frontend.scope import bodies_of
from mtool.compiler.frontend.separate import Separated, initialiser
from mtool.compiler.frontend.user_values import check_names, constant_of
from mtool.compiler.ir import DType, Graph, TensorType
from mtool.compiler.ir.graph import Source, quantized
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.problems import TooLarge, Unsupported
from mtool.compiler.operators.quantize import DEQUANTIZE
from mtool.compiler.operators.verification import verify

# Walk an ONNX graph once: infer types, fold constants, convert every node to its canonical form.


def import_graph(
    model: onnx.ModelProto,
    name: str,
    options: ModelOptions = DEFAULTS,
    budget: Budget | None = None,
    separated: Separated | None = None,
) -> Graph:
    """Return the graph of a checked model whose input shapes are known.

    Args:
        model: the model.
        name: the graph's name.
        options: the maximum sizes and the handling of rounds are used.
        budget: the limits of the import.
        separated: the large initialisers, if they were removed from the model.

    Raises:
        UsageError: a maximum size is given for a name whose size does not depend on data.
        ModelError: operators can't be compiled (all of them are listed), the model has no outputs, or it exceeds the
            budget.
    """
    if not model.graph.output:
        raise ModelError(f"{name} has no outputs", hint="export it again with its outputs")
    state = Importer(model, import_node, options, budget)
    _add_initialisers(state, model, separated or {})
    inputs = []
    for value in model.graph.input:
        if value.name not in state.constants:
            state.types[value.name] = kind = _input_type(value)
            inputs.append(value.name)
            if not kind.count:
                state.add_constant(value.name, np.zeros(kind.shape, kind.dtype.numpy))
    for proto in model.graph.node:
        state.run(proto, state.opsets, bodies_of(proto, state.scope))
    if state.problems:
        raise _refusal(state, name)
    missing = [value.name for value in model.graph.output if value.name not in state.types]
    if missing:
        raise ModelError(f"{name} has no node that computes its output {missing[0]!r}")
    unknown = sorted(set(options.maxima) - state.used_maxima)
    if unknown:
        both = [n for n in unknown if n in options.dims]
        if both:
            raise UsageError(
                f"both --dim and --max are given for {', '.join(both)} of {name}",
                hint="omit one: --dim compiles for that size only, --max for all sizes up to it",
            )
        raise UsageError(
            f"--max names {', '.join(unknown)}, but {name} has no such dimension or output whose size depends on data",
            hint="--max takes the name of a symbolic dimension of an input, or of an output of a NonZero, "
            "NonMaxSuppression, Compress, Unique, TopK or Loop",
        )
    outputs = tuple(value.name for value in model.graph.output)
    computed = [value for proto in model.graph.node for value in proto.output]
    values = [value for value in computed if value in state.types and value not in state.bounds]
    sources = {value: Source(value) for value in (*inputs, *values)}
    sources |= _of_grids(state, sources)
    names, counts = outputs, {}
    for value in outputs:
        if value in state.bounds:
            bound = state.bounds[value]
            counts[value] = (f"{value}_count", bound.axis)
            names, outputs = (*names, f"{value}_count"), (*outputs, bound.count)
    whole = Graph(
        name, tuple(inputs), outputs, tuple(state.nodes), state.types, state.constants, names,
        sources=sources, counts=counts,
    )  # fmt: skip
    graph = _without_empty_inputs(whole)
    verify(graph)
    return graph


def _of_grids(state: Importer, sources: Mapping[str, Source]) -> dict[str, Source]:
    """Return the sources of integers that are not in the model, whose dequantized floats are: those of QONNX."""
    grids, constants = {}, state.constants
    for node in state.nodes:
        if (
            node.op != DEQUANTIZE
            or node.outputs[0] not in sources
            or (node.inputs[0] in sources or node.inputs[0] in constants)
        ):
            continue
        kind, parameters = state.types[node.inputs[0]].dtype, [constants.get(name) for name in node.inputs[1:]]
        scale, point = (data if data is not None and data.size == 1 else None for data in parameters)
        if scale is not None and point is not None and kind.size < 4 and not kind.is_nibble:
            grids[node.inputs[0]] = Source(node.outputs[0], (quantized(scale, int(point.item()), kind),))
    return grids


def _without_empty_inputs(graph: Graph) -> Graph:
    """Replace inputs without elements by constants where operators read them; the interface keeps them.

    Their value is known, so everything that depends only on them becomes a constant.
    """
    empty: dict[str, str] = {}
    for value in graph.inputs:
        if value in graph.constants:
            empty[value] = f"{value}/empty"
            while empty[value] in graph.types:
                empty[value] += "/empty"
    if not empty:
        return graph
    nodes = (replace(node, inputs=tuple(empty.get(value, value) for value in node.inputs)) for node in graph.nodes)
    return replace(
        graph,
        nodes=tuple(nodes),
        types={**graph.types, **{new: graph.types[old] for old, new in empty.items()}},
        constants={empty.get(value, value): data for value, data in graph.constants.items()},
    )


def _add_initialisers(state: Importer, model: onnx.ModelProto, separated: Separated) -> None:
    """Add the constants of all initialisers that are read.

    Raises:
        ModelError: one is malformed or too large.
    """
    read = tensors.read_names(model)
    for tensor in model.graph.initializer:
        if tensor.name in read:
            state.add_constant(tensor.name, initialiser(tensor, separated, state.budget))
    for sparse in model.graph.sparse_initializer:
        name = sparse.values.name
        try:
            state.add_constant(name, tensors.dense(sparse, state.budget, f"initialiser {name!r}"))
        except Unsupported as failed:
            raise ModelError(f"initialiser {name!r} can't be read", details=[str(failed)]) from None


def _input_type(value: onnx.ValueInfoProto) -> TensorType:
    """Return the type of an input of the model.

    Raises:
        ModelError: its type or shape is not supported.
    """
    code = value.type.tensor_type.elem_type
    dims = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    try:
        kind = TensorType(DType.of(helper.tensor_dtype_to_np_dtype(code)), dims)
    except KeyError:
        message = f"input {value.name!r} has elements of type {element_name(code)}"
        raise ModelError(message, details=["not supported"]) from None
    if min(dims, default=0) < 0:
        raise ModelError(f"input {value.name!r} is {kind}", details=["expected: sizes of 0 or more"])
    try:
        return check_size(kind, "the input")
    except TooLarge as problem:
        raise ModelError(f"input {value.name!r} can't be compiled", details=[str(problem)]) from None


def _refusal(state: Importer, name: str) -> ModelError:
    """Return the error that lists every node that can't be compiled."""
    problems = list(dict.fromkeys(state.problems))  # those of a body repeat in each round
    width = max(len(op) for op, _, _ in problems)
    message = f"{len(problems)} operator{'s' * (len(problems) > 1)} of {name} can't be compiled"
    details = [f"{op:<{width}}  {origin}   {reason}" for op, origin, reason in problems]
    needed = state.needed_inputs()
    if needed:
        hint = "make inputs constants: " + " ".join(f"--const {argument(value)}=..." for value in needed)
        return NeedsValues(message, details=details, hint=hint, inputs=needed)
    page = "tflite" if state.is_translated else "operators"
    return ModelError(message, details=details, hint=f"see docs/{page}.md for what is supported")


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
        pairs = (*model_states(model), *options.states)
        initial = _initial_values(model, {value for _, value in pairs}, budget, separated)
        states = States(pairs, initial, first_values(model.graph, pairs))
    bind_dimensions(model, options.dims, title, _trial(model, title, options, separated), options.maxima)
    halves = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in tensors.every(model))
    graph = import_graph(model, model_name(options.name or stem), options, budget, separated)
    noted = [text for prop in model.metadata_props if prop.key == "mtool.slides" for text in prop.value.split(";")]
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
    chosen = [tensor for tensor in model.graph.initializer if tensor.name in inputs]
    for tensor in chosen:
        model.graph.initializer.remove(tensor)
    return {tensor.name: initialiser(tensor, separated, budget) for tensor in chosen}


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
