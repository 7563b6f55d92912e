"""Walk an ONNX graph once: infer types, fold constants, bring every node to its canonical form."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from mtool.errors import ModelError, MtoolError, NeedsValues, UsageError
from mtool.frontend import functions, tensors
from mtool.frontend.bounds import COUNTING, Bound, carried
from mtool.frontend.budget import Budget
from mtool.frontend.dispatch import import_node
from mtool.frontend.empty import without_empty_inputs
from mtool.frontend.inference import check_size, element_name
from mtool.frontend.problems import TooLarge, Unsupported, ValueNeeded, disagreement
from mtool.frontend.scope import NO_BODIES, Bodies, Scope, bodies_of
from mtool.ir import Attributes, DType, Graph, Node, TensorType
from mtool.ir.source import Source
from mtool.ir.types import Array
from mtool.lowerings.ordering import Counting
from mtool.lowerings.verification import verify
from mtool.text import argument

NO_ATTRIBUTES = Attributes()


class Importer:
    """The state of one import. Canonicalisers call `emit`, `constant` and `fail`."""

    def __init__(
        self, model: onnx.ModelProto, maxima: Mapping[str, int] | None = None, budget: Budget | None = None
    ) -> None:
        self.budget = budget or Budget()
        self.maxima = dict(maxima or {})
        self.used_maxima: set[str] = set()
        self.bounds: dict[str, Bound] = {}
        self.opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}
        self.scope = Scope(self.opsets)
        self.functions = functions.functions_of(model)
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.sequences: dict[str, list[str]] = {}
        self.problems: list[tuple[str, str, str]] = []  # operator, node name, reason
        self.inputs = tuple(value.name for value in model.graph.input)
        stated = [*model.graph.value_info, *model.graph.output]
        self.declared = {value.name: value.type for value in stated if value.type.tensor_type.elem_type}
        self._own = {*self.inputs, *(tensor.name for tensor in model.graph.initializer)}
        self._own.update(value for node in model.graph.node for value in node.output)
        self._names: set[str] = set()
        self._made: set[str] = set()
        self._numbers: dict[str, int] = {}  # by stem, of the last unique name
        self.writing_out = 0  # functions, loops and sequences inside one another
        self.perhaps = 0  # branches and rounds inside one another that data may leave out
        self._unknown: set[str] = set()
        self._needed: list[str] = []
        self.dequantised: dict[str, tuple[onnx.NodeProto, int]] = {}  # of constants
        self._sources: dict[str, tuple[str, ...]] = {}

    def unique(self, stem: str) -> str:
        """Return a value or node name that is not taken."""
        number = self._numbers.get(stem, 0)
        name = f"{stem}.{number}" if number else stem
        while name in self._names or name in self.types:
            number += 1
            name = f"{stem}.{number}"
        self._numbers[stem] = number
        self._names.add(name)
        return name

    def inner(self, prefix: str, values: Iterable[str]) -> dict[str, str]:
        """Return names in the model for the values that are made in a body or function."""
        names = {}
        for value in filter(None, values):
            name = f"{prefix}/{value}"
            while name in self._own:
                name += "'"
            self.budget.spend("work", len(name), prefix)
            self._own.add(name)
            names[value] = name
        return names

    def constant(self, stem: str, data: Array) -> str:
        """Add a constant and return its name."""
        name = self.unique(stem)
        self.add_constant(name, data)
        return name

    def add_constant(self, name: str, data: Array) -> None:
        """Give a value a constant."""
        data = np.ascontiguousarray(data).reshape(np.shape(data))
        self.budget.spend("constants", data.nbytes, f"constant {name!r}")
        self.constants[name] = data
        self.types[name] = TensorType(DType.of(data.dtype), data.shape)

    def emit(
        self, op: str, origin: str, inputs: list[str], outputs: list[str], attrs: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Append a canonical node; its outputs must have types."""
        bound = self.bounds.get(outputs[0]) if op in COUNTING else None
        if bound is not None:
            assert isinstance(attrs, Counting)
            outputs, attrs = [*outputs, bound.count], replace(attrs, counted=True)
        else:
            self.bounds |= carried(op, inputs, outputs, attrs, self)
        again = self._made.intersection(outputs)
        if again:
            raise Unsupported(f"its output {again.pop()!r} is made twice")
        self._made.update(outputs)
        self.nodes.append(Node(op, self.unique(origin), tuple(inputs), tuple(outputs), attrs, (origin,)))

    def fail(self, op: str, origin: str, reason: str) -> None:
        """Note a node that can't be compiled."""
        self.problems.append((op, origin, reason))

    def value_of(self, name: str, role: str) -> Array:
        """Return the value of a constant; `role` is what the operator calls this input.

        Raises:
            ValueNeeded: it is not a constant.
        """
        if name not in self.constants:
            raise ValueNeeded(name, role)
        return self.constants[name]

    def needed_inputs(self) -> tuple[str, ...]:
        """Return the model's inputs whose values the operators have asked for."""
        open_values, found = list(self._needed), set()
        while open_values:
            value = open_values.pop()
            if value in self.constants:
                continue  # known already, such as a shape
            if value in self.inputs:
                found.add(value)
            open_values.extend(self._sources.pop(value, ()))
        return tuple(name for name in self.inputs if name in found)

    def enter(self, nodes: Iterable[onnx.NodeProto], scope: Scope, where: str) -> None:
        """Import the nodes of a body or function; `where` is the node that has it.

        Raises:
            ModelError: it exceeds the budget.
        """
        self.budget.check("depth", scope.depth, where)
        outer, self.scope = self.scope, scope
        try:
            for node in nodes:
                bound, bodies = scope.bound(node)
                self.budget.spend("work", bound.ByteSize(), f"{bound.op_type} {bound.name}")
                self.run(bound, scope.opsets, bodies)
        finally:
            self.scope = outer

    @contextmanager
    def in_doubt(self) -> Iterator[None]:
        """Import what the run may leave out."""
        self.perhaps += 1
        try:
            yield
        finally:
            self.perhaps -= 1

    def run(self, proto: onnx.NodeProto, opsets: Mapping[str, int], bodies: Bodies = NO_BODIES) -> None:
        """Import one node; a problem with it is noted, and what depends on it is left out.

        Raises:
            ModelError: it exceeds the budget.
        """
        origin = proto.name or (proto.output[0] if proto.output else proto.op_type)
        if self.writing_out:
            self.budget.spend("nodes", 1, f"{proto.op_type} {origin}")
        for name in proto.output:
            self._sources[name] = tuple(proto.input)
        if any(name in self._unknown for name in proto.input):
            self._unknown.update(proto.output)  # follows from a problem that is noted already
            return
        try:
            import_node(self, proto, origin, opsets, bodies)
        except Unsupported as problem:
            self.fail(proto.op_type, origin, str(problem))
            self._unknown.update(proto.output)
            if isinstance(problem, ValueNeeded):
                self._needed.append(problem.value)
        except MtoolError:
            raise
        except Exception as failed:  # of a malformed node, in what reads its inputs and attributes
            if not (isinstance(failed, KeyError) and failed.args[0] in self._unknown):
                self.fail(proto.op_type, origin, disagreement(failed))
            self._unknown.update(proto.output)


def import_graph(
    model: onnx.ModelProto, name: str, maxima: Mapping[str, int] | None = None, budget: Budget | None = None
) -> Graph:
    """Return the graph of a checked model whose input shapes are numbers.

    Args:
        model: the model.
        name: the graph's name.
        maxima: the largest sizes of what has a size that depends on data (mtool/frontend/bounds.py), by the name of
            the value or of the dimension.
        budget: what the import may take.

    Raises:
        UsageError: `maxima` names nothing whose size depends on data.
        ModelError: operators that can't be compiled, every one is listed; the model has no outputs; or it exceeds the
            budget.
    """
    if not model.graph.output:
        raise ModelError(f"{name} has no outputs", hint="export it again with the outputs that are wanted")
    state = Importer(model, maxima, budget)
    _add_initialisers(state, model)
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
        raise ModelError(f"{name} never makes its output {missing[0]!r}")
    unknown = sorted(set(state.maxima) - state.used_maxima)
    if unknown:
        raise UsageError(
            f"{name} has nothing named {', '.join(unknown)} whose size depends on data",
            hint="--max takes the name of an output of a NonZero, NonMaxSuppression, Compress, Unique, TopK or Loop",
        )
    outputs = tuple(value.name for value in model.graph.output)
    own = [
        value
        for proto in model.graph.node
        for value in proto.output
        if value in state.types and value not in state.bounds
    ]
    sources = {value: Source(value) for value in (*inputs, *own)}
    names, counts = outputs, {}
    for value in outputs:
        if value in state.bounds:
            bound = state.bounds[value]
            counts[value] = (f"{value}_count", bound.axis)
            names, outputs = (*names, f"{value}_count"), (*outputs, bound.count)
    graph = Graph(
        name,
        tuple(inputs),
        outputs,
        tuple(state.nodes),
        state.types,
        state.constants,
        names,
        sources=sources,
        counts=counts,
    )
    graph = without_empty_inputs(graph)
    verify(graph)
    return graph


def _add_initialisers(state: Importer, model: onnx.ModelProto) -> None:
    """Give the values that have initialisers, and that are read, their constants.

    Raises:
        ModelError: one is malformed or too large.
    """
    read = tensors.read_names(model)
    for tensor in model.graph.initializer:
        if tensor.name in read:
            state.add_constant(tensor.name, tensors.initialiser(tensor, state.budget))
    for sparse in model.graph.sparse_initializer:
        name = sparse.values.name
        try:
            state.add_constant(name, tensors.dense(sparse, state.budget, f"initialiser {name!r}"))
        except Unsupported as failed:
            raise ModelError(f"initialiser {name!r} can't be read", details=[str(failed)]) from None


def _input_type(value: onnx.ValueInfoProto) -> TensorType:
    """Return the type of an input of the model.

    Raises:
        ModelError: it has a type or a shape that C can't have.
    """
    code = value.type.tensor_type.elem_type
    dims = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    try:
        kind = TensorType(DType.of(helper.tensor_dtype_to_np_dtype(code)), dims)
    except KeyError:
        what = f"input {value.name!r} has elements of type {element_name(code)}"
        raise ModelError(what, details=["not supported"]) from None
    if min(dims, default=0) < 0:
        raise ModelError(f"input {value.name!r} is {kind}", details=["expected: sizes of 0 or more"])
    try:
        return check_size(kind, "the input")
    except TooLarge as problem:
        raise ModelError(f"input {value.name!r} can't be compiled", details=[str(problem)]) from None


def _refusal(state: Importer, name: str) -> ModelError:
    """Return the error that lists every node that can't be compiled."""
    problems = list(dict.fromkeys(state.problems))  # a body's are the same in each round
    width = max(len(op) for op, _, _ in problems)
    what = f"{len(problems)} operator{'s' * (len(problems) > 1)} of {name} can't be compiled"
    details = [f"{op:<{width}}  {origin}   {reason}" for op, origin, reason in problems]
    needed = state.needed_inputs()
    if needed:
        hint = "make inputs constants: " + " ".join(f"--const {argument(value)}=..." for value in needed)
        return NeedsValues(what, details=details, hint=hint, inputs=needed)
    return ModelError(what, details=details, hint="see docs/operators.md for what is supported")
