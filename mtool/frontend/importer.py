"""Walk an ONNX graph once: infer types, fold constants, bring every node to its canonical form."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool import ops
from mtool.errors import ModelError, MtoolError, NeedsValues, UsageError
from mtool.frontend import functions, tensors
from mtool.frontend.bounds import COUNTING, Bound, carried, limited
from mtool.frontend.budget import Budget
from mtool.frontend.canonical import CANONICAL
from mtool.frontend.canonical.movement import MOVEMENT
from mtool.frontend.classical import CLASSICAL
from mtool.frontend.classical.writing import Writer as ClassicalWriter
from mtool.frontend.contrib import CONTRIB
from mtool.frontend.control import CONTROL
from mtool.frontend.empty import without_empty_inputs
from mtool.frontend.folding import fold
from mtool.frontend.inference import check_size, element_name, infer
from mtool.frontend.operands import check_operands
from mtool.frontend.problems import OWN, REFUSED, TooLarge, Unsupported, ValueNeeded, disagreement
from mtool.frontend.qoperators import EXPANSIONS
from mtool.frontend.scope import NO_BODIES, Bodies, Scope, bodies_of
from mtool.frontend.sequences import SEQUENCES
from mtool.frontend.validation import check_axis, check_node, check_values
from mtool.frontend.writing import Writer
from mtool.ir import DType, Graph, Node, TensorType
from mtool.ir.graph import verify
from mtool.ir.source import Source
from mtool.ir.types import Array
from mtool.text import argument

NEWEST_OPSET = 21  # the opset of the nodes that mtool itself writes when it expands an operator
OF_NOTHING = ("Reduce", "Conv", "Global", "RNN", "GRU", "LSTM")  # not to be computed by NumPy without elements
UNFOLDED = {"DequantizeLinear", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}


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
        self._numbers: dict[str, int] = {}  # by stem, of the last unique name
        self._writing_out = 0  # functions, loops and sequences inside one another
        self._unknown: set[str] = set()
        self._needed: list[str] = []
        self._dequantised: dict[str, tuple[onnx.NodeProto, int]] = {}  # of constants
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

    def emit(self, op: str, origin: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Any]) -> None:
        """Append a canonical node; its outputs must have types."""
        bound = self.bounds.get(outputs[0]) if op in COUNTING else None
        if bound is not None:
            outputs, attrs = [*outputs, bound.count], {**attrs, "counted": True}
        else:
            self.bounds |= carried(op, inputs, outputs, attrs, self)
        self.nodes.append(Node(op, self.unique(origin), tuple(inputs), tuple(outputs), dict(attrs), (origin,)))

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

    def run(self, proto: onnx.NodeProto, opsets: Mapping[str, int], bodies: Bodies = NO_BODIES) -> None:
        """Import one node; a problem with it is noted, and what depends on it is left out.

        Raises:
            ModelError: it exceeds the budget.
        """
        origin = proto.name or (proto.output[0] if proto.output else proto.op_type)
        if self._writing_out:
            self.budget.spend("nodes", 1, f"{proto.op_type} {origin}")
        for name in proto.output:
            self._sources[name] = tuple(proto.input)
        if any(name in self._unknown for name in proto.input):
            self._unknown.update(proto.output)  # follows from a problem that is noted already
            return
        try:
            self._run(proto, origin, opsets, bodies)
        except Unsupported as problem:
            self.fail(proto.op_type, origin, str(problem))
            self._unknown.update(proto.output)
            if isinstance(problem, ValueNeeded):
                self._needed.append(problem.value)
        except MtoolError:
            raise
        except Exception as failed:  # of a malformed node, in what reads its inputs and attributes
            self.fail(proto.op_type, origin, disagreement(failed))
            self._unknown.update(proto.output)

    def _run(self, proto: onnx.NodeProto, origin: str, opsets: Mapping[str, int], bodies: Bodies) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = opsets.get(domain, NEWEST_OPSET)
        function = self.functions.get(functions.key_of(proto))
        if function is not None or (not domain and (proto.op_type in CONTROL or proto.op_type in SEQUENCES)):
            self._write_out(proto, origin, version, opsets, bodies)
            return
        qoperator = EXPANSIONS.get((domain, proto.op_type))
        if qoperator is not None:
            if not domain:
                check_node(proto, onnx.defs.get_schema(proto.op_type, version, domain), bodies)
            for part in qoperator(self, proto, origin):
                self.run(part, {"": NEWEST_OPSET})
            return
        if domain == OWN:
            self._run_own(proto, origin)
            return
        if domain == REFUSED:
            raise Unsupported(helper.get_attribute_value(proto.attribute[0]).decode())
        if (domain, proto.op_type) in CONTRIB:
            CONTRIB[domain, proto.op_type](Writer(self, proto, origin, _attributes(proto)))
            return
        if not onnx.defs.has(proto.op_type, domain):
            raise Unsupported(f"domain {domain} is not supported" if domain else "there is no such operator")
        schema = onnx.defs.get_schema(proto.op_type, version, domain)
        check_node(proto, schema, bodies)
        attrs = _attributes(proto)
        if proto.op_type == "Constant" and not domain:
            self.add_constant(proto.output[0], self._constant_value(proto, origin))
            return
        if domain == "ai.onnx.ml" and proto.op_type in CLASSICAL:
            CLASSICAL[proto.op_type](ClassicalWriter(self, proto, origin, attrs))
            return
        check_axis(proto, attrs, self.types)
        if not domain:
            check_values(proto, attrs)
        constants = self._known_values(proto)
        known = all(name in constants or not name for name in proto.input) and not bodies
        if proto.op_type in ("Shape", "Size") and proto.input[0] in self.bounds:
            raise Unsupported("the shape that it asks for is known only when it runs")
        is_limited = not known and not domain and limited(self, proto, attrs)
        try:
            if not is_limited and self._told(proto, domain, version, constants if known else None):
                return
        except Unsupported as problem:
            if schema.has_type_and_shape_inference_function or isinstance(problem, TooLarge | ValueNeeded):
                raise
            if not functions.expand(self, proto, domain, version, origin, opsets, bodies):
                raise
            return
        if not domain:
            check_operands(proto, attrs, self.types)
        if known and proto.op_type == "DequantizeLinear":
            self._dequantised[proto.output[0]] = (proto, max(version, 19))  # which onnx.reference has
        if proto.op_type in CANONICAL:
            CANONICAL[proto.op_type](self, proto, origin, attrs, version)
        elif proto.op_type in ops.LOWERINGS:
            self.emit(proto.op_type, origin, list(proto.input), list(proto.output), attrs)
        elif not functions.expand(self, proto, domain, version, origin, opsets, bodies):
            raise Unsupported("not supported")

    def _write_out(
        self, proto: onnx.NodeProto, origin: str, version: int, opsets: Mapping[str, int], bodies: Bodies
    ) -> None:
        """Import what becomes more nodes than the file has: their number is bounded."""
        function = self.functions.get(functions.key_of(proto))
        self._writing_out += 1
        try:
            if function is not None:
                functions.call(self, function, proto, origin, bodies)
                return
            check_node(proto, onnx.defs.get_schema(proto.op_type, version, ""), bodies)
            if proto.op_type in CONTROL:
                CONTROL[proto.op_type](self, proto, origin, opsets, bodies)
            else:
                SEQUENCES[proto.op_type](self, proto, origin, opsets)
        finally:
            self._writing_out -= 1

    def _constant_value(self, proto: onnx.NodeProto, origin: str) -> Array:
        if len(proto.attribute) != 1:
            raise Unsupported(f"it has {len(proto.attribute)} values; expected 1")
        attr = proto.attribute[0]
        if attr.name == "value":
            return tensors.array_of(attr.t, self.budget, f"Constant {origin}")
        if attr.name == "sparse_value":
            return tensors.dense(attr.sparse_tensor, self.budget, f"Constant {origin}")
        if attr.name not in ("value_float", "value_floats", "value_int", "value_ints"):
            raise Unsupported("strings are not supported")
        dtype = np.float32 if attr.name.startswith("value_float") else np.int64
        return np.asarray(helper.get_attribute_value(attr), dtype)

    def _run_own(self, proto: onnx.NodeProto, origin: str) -> None:
        attrs = _attributes(proto)
        dtype = DType.of(helper.tensor_dtype_to_np_dtype(attrs.pop("to")))
        self.types[proto.output[0]] = TensorType(dtype, self.types[proto.input[0]].shape)
        self.emit(proto.op_type, origin, list(proto.input), list(proto.output), attrs)

    def _known_values(self, proto: onnx.NodeProto) -> Mapping[str, Array]:
        """Return the values of a node's inputs that are constants; of what computes, dequantised ones too.

        What moves weights shall move their integers.
        """
        names = set(filter(None, proto.input))
        found = {name: self.constants[name] for name in names if name in self.constants}
        dequantised = names & set(self._dequantised)
        if proto.op_type in MOVEMENT or names - set(found) - dequantised:
            return found
        for name in sorted(dequantised):
            source, version = self._dequantised[name]
            found |= fold(source, "", version, self.constants, {name: self.types[name]}, self.budget)
        return found

    def _told(self, proto: onnx.NodeProto, domain: str, version: int, constants: Mapping[str, Array] | None) -> bool:
        """Infer the types of a node's outputs; return whether their values are told as well.

        `constants` has the values of its inputs; None: not all are known.
        """
        known = constants is not None
        kinds: dict[str, TensorType] = {}
        try:
            kinds = infer(proto, domain, version, self.types, self.constants, self.declared)
        except Unsupported as problem:
            if proto.op_type in COUNTING and not known:
                told = f"{problem}, or" if isinstance(problem, ValueNeeded) else "its output shape depends on data;"
                problem.args = (f"{told} give --max {argument(proto.output[0])}=N, the most that there may be",)
            if not known or proto.op_type in UNFOLDED or isinstance(problem, TooLarge):
                raise  # of constants, the values say what types there are
        self.types |= kinds
        outputs = [name for name in proto.output if name]
        if outputs and all(name in kinds and not kinds[name].count for name in outputs):
            for name in outputs:
                self.add_constant(name, np.zeros(self.types[name].shape, self.types[name].dtype.numpy))
            return True
        empty = any(not self.types[name].count for name in proto.input if name)
        unfolded = proto.op_type in UNFOLDED or (empty and proto.op_type.startswith(OF_NOTHING))
        if constants is not None and not unfolded:
            for name, data in fold(proto, domain, version, constants, kinds, self.budget).items():
                self.add_constant(name, data)
            return True
        return False


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
        ModelError: operators that can't be compiled, every one is listed; or the model exceeds the budget.
    """
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
    unknown = sorted(set(state.maxima) - state.used_maxima)
    if unknown:
        raise UsageError(
            f"{name} has nothing named {', '.join(unknown)} whose size depends on data",
            hint="--max takes the name of an output of a NonZero, NonMaxSuppression, Compress, Unique, TopK or Loop",
        )
    outputs = _outputs(state, model, name)
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


def _outputs(state: Importer, model: onnx.ModelProto, name: str) -> tuple[str, ...]:
    """Return the names of the model's outputs.

    Raises:
        ModelError: there are none, or one is no tensor.
    """
    names = tuple(value.name for value in model.graph.output)
    if not names:
        raise ModelError(f"{name} has no outputs", details=["a model of no outputs computes nothing"])
    lacking = [repr(value) for value in names if value not in state.types]
    if lacking:
        raise ModelError(f"{name} has an output that is no tensor", details=[f"output {', '.join(lacking)}"])
    return names


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


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes, but for graphs."""
    kept = [attr for attr in proto.attribute if attr.type != onnx.AttributeProto.GRAPH]
    return {attr.name: _plain(helper.get_attribute_value(attr)) for attr in kept}


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
