"""From a .tflite file to a Graph, by way of an ONNX model in memory."""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from mtool.base.errors import ModelError, MtoolError, UsageError
from mtool.compiler.frontend.bind_states import States
from mtool.compiler.frontend.folding import fold
from mtool.compiler.frontend.inference import infer, own_outputs
from mtool.compiler.frontend.onnx_file import graph_of
from mtool.compiler.frontend.options import DEFAULTS, ModelOptions, Pairs
from mtool.compiler.frontend.tflite import custom, signal
from mtool.compiler.frontend.tflite.builtins import BUILTINS, Builtin, is_hybrid, is_without_form
from mtool.compiler.frontend.tflite.products import in_integers, is_part_of
from mtool.compiler.frontend.tflite.rewriting import inlined, with_rows
from mtool.compiler.frontend.tflite.schema import TABLE, VARIABLE, Model, Operator, Tensor, read
from mtool.compiler.frontend.tflite.translation import OPSET, Network, Translation
from mtool.compiler.frontend.user_values import check_names, constant_of
from mtool.compiler.ir import DType, Graph, Quant, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.problems import REFUSED, Unsupported, ValueNeeded, disagreement

# Evaluate at compile time: the values of tensors that are computed from constants, and shapes.
#
# A model with an open batch size computes shapes by SHAPE, STRIDED_SLICE, PACK and similar operators; converters put an
# operator that expands them behind float16 or sparse weights. Operators that need such a value get it here.


def settle(t: Translation, start: int) -> None:
    """Evaluate the current operator's nodes, those from `start` on.

    If all its inputs are constants, the values replace the nodes. If the file leaves the size of an output open, the
    output gets the inferred size.

    Raises:
        ModelError: it exceeds the budget.
    """
    is_constant = all(number < 0 or t.value(number) is not None for number in t.op.inputs)
    is_open = any(t.tensors[number].open for number in t.op.outputs)
    nodes = t.nodes[start:]
    if any(attr.type == onnx.AttributeProto.GRAPH for node in nodes for attr in node.attribute):
        return  # the import does that
    is_constant = is_constant and not any(node.domain for node in nodes)
    if not nodes or not (is_constant or is_open):
        return
    if is_constant and t.op.kind == "DEQUANTIZE" and t.tensor(0).is_quantized:
        t.dequantized[t.op.outputs[0]] = t.op.inputs[0]  # the integers are kept: the weights stay small
        is_constant = False
    types, constants = _known_types(t, nodes), ChainMap(_dequantized(t), t.constants)
    for node in nodes:
        kinds: dict[str, TensorType] = {}
        try:
            kinds = own_outputs(node, types) if node.domain else infer(node, OPSET, types, constants, {})
        except Unsupported:
            if not is_constant:
                return  # the import of the node reports the reason
        try:
            folded = fold(node, OPSET, constants, kinds, t.budget) if is_constant else {}
        except Unsupported:
            return
        constants.update(folded)
        types |= {name: TensorType(DType.of(data.dtype), data.shape) for name, data in folded.items()} | kinds
    values = [constants.get(t.names[number]) if is_constant else None for number in t.op.outputs]
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
    values = {t.names[number]: t.value(number) for number in t.op.inputs if number in t.dequantized}
    return {name: data for name, data in values.items() if data is not None}


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


def load(path: Path, options: ModelOptions = DEFAULTS) -> Graph:
    """Read a TFLite model and return its graph; values and nodes keep the tensors' names from the file.

    Args:
        path: the model file.
        options: of the model; an open dimension is named `<input>_<number>`; without a value it has the size in the
            file.

    Raises:
        UsageError: the file is missing, or an option names a dimension, input or output that the model does not have.
        ModelError: the file is not a model, is damaged, or holds operators that can't be compiled (all of
            them are listed).
    """
    budget = Budget(options.limits)
    model = read(path, budget)
    network = to_onnx(model, path.name, options, budget)
    bound = replace(options, dims={}, constants={}, states=())
    states = States((*network.states, *options.states), network.initial, zeros_of(network, options.states))
    graph = graph_of(network.proto, path.name, path.stem, bound, budget, states=states)
    _check_shapes(network, graph, path.name)
    halves = options.hybrid != "float32" and any(
        tensor.dtype == np.float16 and tensor.data is not None for tensor in model.tensors
    )
    graph = replace(graph, quant=_grids(network, graph), halves=halves)
    if options.rounding == "onnx" and not is_part_of(network.proto):
        return graph
    sources = {name: source for name, source in graph.sources.items() if name in network.tensors}
    return replace(graph, sources=sources)  # the file's tensors, as LiteRT has them


def zeros_of(network: Network, states: Pairs) -> dict[str, int]:
    """Return the zero points of the inputs that states feed: the model's own states and these."""
    inputs = {value for _, value in (*network.states, *states)}
    return {name: tensor.zero for name, tensor in network.tensors.items() if name in inputs}


def to_onnx(model: Model, title: str, options: ModelOptions = DEFAULTS, budget: Budget | None = None) -> Network:
    """Return a TFLite model as ONNX; an operator without translation is a node of the domain `problems.REFUSED`.

    Args:
        model: the model.
        title: its name in messages.
        options: the arithmetic, and the dimensions and inputs to replace, are used.
        budget: the limits of the import.

    Raises:
        UsageError: the model has no such dimension or input, or options exclude each other.
        ModelError: an operator comes before its inputs, or the model exceeds the budget.
    """
    budget = budget or Budget()
    parts = (model, *model.others) if options.rounding == "tflite" and not in_integers(options) else ()
    if any(is_hybrid(operator, part.tensors) for part in parts for operator in part.operators):
        raise UsageError(
            f"--rounding tflite and --hybrid {options.hybrid} exclude each other",
            details=[f"LiteRT quantizes the float activations of {title} to 8 bits where weights are int8"],
            hint="omit one of them",
        )
    translation = Translation(with_rows(inlined(model, title, budget)), budget, at_once=options.whole)
    specialise(translation, options, title)
    return _network(translation, title, options, 0)


def _network(translation: Translation, title: str, options: ModelOptions, depth: int) -> Network:
    """Translate a model, or a subgraph at a nesting depth."""
    model = translation.model
    translation.subgraph = partial(_subgraph, translation, title, options, depth + 1)
    tensors, operators = translation.tensors, translation.model.operators
    computed = {number for operator in operators for number in operator.outputs}
    defined = {n for n, tensor in enumerate(tensors) if tensor.data is not None or tensor.problem == VARIABLE}
    defined |= {n for n, tensor in enumerate(tensors) if tensor.problem and n not in computed}  # constants
    defined |= {*model.inputs, -1, *custom.working_memories(operators)}
    for operator in operators:
        for number in operator.inputs if operator.kind in BUILTINS else ():
            if number not in defined:
                raise ModelError(
                    f"the operators of {title} are not in execution order",
                    details=[f"{operator.name} reads {tensors[number].name!r} before it is computed"],
                )
        duplicates = defined.intersection(operator.outputs)
        if duplicates:
            output = tensors[duplicates.pop()].name
            raise ModelError(f"{title} defines {output!r} twice", details=[operator.name])
        defined.update(operator.outputs)
        _translate(translation, operator, options)
    missing = [tensors[number].name for number in model.outputs if number not in defined]
    if missing:
        raise ModelError(f"{title} has no operator that computes its output {missing[0]!r}")
    return translation.network(title)


def _subgraph(
    t: Translation, title: str, options: ModelOptions, depth: int, number: int, operands: Sequence[Tensor]
) -> Network:
    """Return a subgraph of the file as ONNX, by its number; open sizes are taken from its operands.

    Raises:
        Unsupported: there is no such subgraph.
        ModelError: it exceeds the budget.
    """
    model = replace(t.other(number), others=t.model.others)
    t.budget.check("depth", depth, t.op.name)
    t.budget.spend("nodes", len(model.operators), t.op.name)
    t.budget.spend("work", TABLE * len(model.tensors), t.op.name)
    body = Translation(with_rows(inlined(model, title, t.budget)), t.budget, is_body=True)
    for place, operand in zip(model.inputs, operands, strict=False):
        if body.tensors[place].allows(operand.shape):
            body.tensors[place] = replace(body.tensors[place], shape=operand.shape)
    return _network(body, title, options, depth)


def _translate(t: Translation, operator: Operator, options: ModelOptions) -> None:
    """Append the nodes of an operator, or one with the reason why it is not supported.

    Raises:
        ModelError: it exceeds the budget.
    """
    t.op, start = operator, len(t.nodes)
    try:
        builtin = BUILTINS.get(operator.kind)
        if builtin is None:
            raise Unsupported(custom.reason(operator.kind))
        if not operator.outputs and builtin.has_outputs:
            raise Unsupported("it has no output")
        if options.rounding == "tflite" and is_without_form(operator, t.tensors):
            raise Unsupported("float activations with int8 weights are not supported for it with --rounding tflite")
        if _is_exact(t, operator, builtin, options):
            builtin.translate_exactly(t)
        elif any(number in t.complex for number in operator.inputs):
            signal.of_complex(t, builtin.real if builtin.is_move else None)
        elif builtin.hybrid is not None and in_integers(options) and is_hybrid(operator, t.tensors):
            builtin.hybrid(t)
        else:
            builtin.real(t)
        settle(t, start)
    except MtoolError:
        raise
    except Exception as problem:  # Unsupported, or a malformed operator
        reason = str(problem) if isinstance(problem, Unsupported) else disagreement(problem)
        del t.nodes[start:]
        outputs = [t.names[number] for number in operator.outputs] or [t.unique(operator.name)]
        value = problem.value if isinstance(problem, ValueNeeded) else ""
        t.nodes.append(
            helper.make_node(operator.kind, [], outputs, operator.name, domain=REFUSED, reason=reason, value=value)
        )


def _is_exact(t: Translation, operator: Operator, builtin: Builtin, options: ModelOptions) -> bool:
    """Whether an operator gets the integer arithmetic of LiteRT's reference kernels."""
    if builtin.is_integer or not operator.outputs or (options.whole and operator.kind == "SOFTMAX"):
        return False
    rounding = options.rounding
    output = t.tensors[operator.outputs[0]]
    if rounding == "tflite" or not builtin.is_coarse or not operator.inputs:
        return output.is_quantized and rounding == "tflite"
    return output.is_quantized and output.dtype == t.tensors[operator.inputs[0]].dtype == np.int16


def _grids(network: Network, graph: Graph) -> dict[str, Quant]:
    """Return the file's quantization of the graph's values."""
    return {
        name: Quant(
            tuple(tensor.scale.tolist()),
            tuple(tensor.zero_point.tolist()),
            tensor.axis if tensor.scale.size > 1 else None,
        )
        for name, tensor in network.tensors.items()
        if tensor.is_quantized and name in graph.types
    }


def _check_shapes(network: Network, graph: Graph, title: str) -> None:
    """Check the shapes of the file's tensors against the inferred ones.

    Raises:
        ModelError: a shape or a type differs.
    """
    for name, kind in graph.types.items():
        tensor = network.tensors.get(name)
        if tensor is None or tensor.problem:
            continue
        if not tensor.allows(kind.shape) or kind.dtype.numpy != tensor.dtype:
            raise ModelError(
                f"{title} is inconsistent",
                details=[
                    f"tensor {name!r} in the file: {tensor.dtype}{list(tensor.shape)}",
                    f"its operator's output: {kind}",
                ],
            )
