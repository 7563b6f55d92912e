"""Walk an ONNX graph once: infer types, fold constants, bring every node to its canonical form."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool import ops
from mtool.errors import ModelError, NeedsValues, UsageError
from mtool.frontend.bounds import COUNTING, Bound, carried, limited
from mtool.frontend.canonical import CANONICAL
from mtool.frontend.canonical.movement import MOVEMENT
from mtool.frontend.classical import CLASSICAL
from mtool.frontend.classical.writing import Writer as ClassicalWriter
from mtool.frontend.contrib import CONTRIB
from mtool.frontend.control import CONTROL
from mtool.frontend.empty import without_empty_inputs
from mtool.frontend.functions import expand
from mtool.frontend.inference import MOST_BYTES, fold, infer
from mtool.frontend.problems import OWN, REFUSED, Unsupported, ValueNeeded
from mtool.frontend.qoperators import EXPANSIONS
from mtool.frontend.sequences import SEQUENCES
from mtool.frontend.writing import Writer
from mtool.ir import DType, Graph, Node, TensorType
from mtool.ir.graph import verify
from mtool.ir.source import Source
from mtool.ir.types import Array

NEWEST_OPSET = 21  # the opset of the nodes that mtool itself writes when it expands an operator
OF_NOTHING = ("Reduce", "Conv", "Global", "RNN", "GRU", "LSTM")  # not to be computed by NumPy without elements
UNFOLDED = {"DequantizeLinear", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}


class Importer:
    """The state of one import. Canonicalisers call `emit`, `constant` and `fail`."""

    def __init__(self, model: onnx.ModelProto, maxima: Mapping[str, int] | None = None) -> None:
        self.maxima = dict(maxima or {})
        self.used_maxima: set[str] = set()
        self.bounds: dict[str, Bound] = {}
        self.opsets = {"" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in model.opset_import}
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.sequences: dict[str, list[str]] = {}
        self.problems: list[tuple[str, str, str]] = []  # operator, node name, reason
        self.inputs = tuple(value.name for value in model.graph.input)
        stated = [*model.graph.value_info, *model.graph.output]
        self.declared = {value.name: value.type for value in stated if value.type.tensor_type.elem_type}
        self._names: set[str] = set()
        self._unknown: set[str] = set()
        self._needed: list[str] = []
        self._dequantised: dict[str, tuple[onnx.NodeProto, int]] = {}  # of constants
        self._sources: dict[str, tuple[str, ...]] = {}

    def unique(self, stem: str) -> str:
        """Return a value or node name that is not taken."""
        name, number = stem, 0
        while name in self._names or name in self.types:
            number += 1
            name = f"{stem}.{number}"
        self._names.add(name)
        return name

    def constant(self, stem: str, data: Array) -> str:
        """Add a constant and return its name."""
        name = self.unique(stem)
        self.add_constant(name, data)
        return name

    def add_constant(self, name: str, data: Array) -> None:
        """Give a value a constant."""
        data = np.ascontiguousarray(data).reshape(np.shape(data))
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

    def run(self, proto: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
        """Import one node; a problem with it is noted, and what depends on it is left out."""
        origin = proto.name or (proto.output[0] if proto.output else proto.op_type)
        for name in proto.output:
            self._sources[name] = tuple(proto.input)
        if any(name in self._unknown for name in proto.input):
            self._unknown.update(proto.output)  # follows from a problem that is noted already
            return
        try:
            self._run(proto, origin, opsets)
        except Unsupported as problem:
            self.fail(proto.op_type, origin, str(problem))
            self._unknown.update(proto.output)
            if isinstance(problem, ValueNeeded):
                self._needed.append(problem.value)

    def _run(self, proto: onnx.NodeProto, origin: str, opsets: Mapping[str, int]) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = opsets.get(domain, NEWEST_OPSET)
        if proto.op_type == "Constant" and not domain:
            self.add_constant(proto.output[0], _constant_value(proto))
            return
        qoperator = EXPANSIONS.get((domain, proto.op_type))
        if qoperator is not None:
            for part in qoperator(self, proto, origin):
                self.run(part, {"": NEWEST_OPSET})
            return
        special = {**CONTROL, **SEQUENCES}.get(proto.op_type) if not domain else None
        if special is not None:
            special(self, proto, origin, opsets)
            return
        if domain == OWN:
            self._run_own(proto, origin)
            return
        if domain == REFUSED:
            raise Unsupported(helper.get_attribute_value(proto.attribute[0]).decode())
        if domain == "ai.onnx.ml" and proto.op_type in CLASSICAL:
            attrs = {attr.name: _plain(helper.get_attribute_value(attr)) for attr in proto.attribute}
            CLASSICAL[proto.op_type](ClassicalWriter(self, proto, origin, attrs))
            return
        if (domain, proto.op_type) in CONTRIB:
            attrs = {attr.name: _plain(helper.get_attribute_value(attr)) for attr in proto.attribute}
            CONTRIB[domain, proto.op_type](Writer(self, proto, origin, attrs))
            return
        if not onnx.defs.has(proto.op_type, domain):
            raise Unsupported(f"domain {domain} is not supported" if domain else "there is no such operator")
        constants = self._known_values(proto)
        known = all(name in constants or not name for name in proto.input)
        attrs = {attr.name: _plain(helper.get_attribute_value(attr)) for attr in proto.attribute}
        if proto.op_type in ("Shape", "Size") and proto.input[0] in self.bounds:
            raise Unsupported("the shape that it asks for is known only when it runs")
        is_limited = not known and not domain and limited(self, proto, attrs)
        if not is_limited and self._told(proto, domain, version, constants if known else None):
            return
        if known and proto.op_type == "DequantizeLinear":
            self._dequantised[proto.output[0]] = (proto, max(version, 19))  # which onnx.reference has
        if proto.op_type in CANONICAL:
            CANONICAL[proto.op_type](self, proto, origin, attrs, version)
        elif proto.op_type in ops.LOWERINGS:
            self.emit(proto.op_type, origin, list(proto.input), list(proto.output), attrs)
        else:
            self._expand(proto, domain, version, origin, opsets)

    def _run_own(self, proto: onnx.NodeProto, origin: str) -> None:
        attrs = {attr.name: _plain(helper.get_attribute_value(attr)) for attr in proto.attribute}
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
        for name in dequantised:
            source, version = self._dequantised[name]
            found |= fold(source, "", version, self.constants, self.types)
        return found

    def _told(self, proto: onnx.NodeProto, domain: str, version: int, constants: Mapping[str, Array] | None) -> bool:
        """Infer the types of a node's outputs; return whether their values are told as well.

        `constants` has the values of its inputs; None: not all are known.
        """
        known = constants is not None
        try:
            self.types |= infer(proto, domain, version, self.types, self.constants, self.declared)
        except Unsupported as problem:
            if proto.op_type in COUNTING and not known:
                told = f"{problem}, or" if isinstance(problem, ValueNeeded) else "its output shape depends on data;"
                problem.args = (f"{told} give --max {proto.output[0]}=N, the most that there may be",)
            if not known or proto.op_type in UNFOLDED:
                raise  # of constants, the values say what types there are
        outputs = [name for name in proto.output if name]
        if outputs and all(name in self.types and not self.types[name].count for name in outputs):
            for name in outputs:
                self.add_constant(name, np.zeros(self.types[name].shape, self.types[name].dtype.numpy))
            return True
        empty = any(not self.types[name].count for name in proto.input if name)
        unfolded = proto.op_type in UNFOLDED or (empty and proto.op_type.startswith(OF_NOTHING))
        if constants is not None and not unfolded and not _has_graphs(proto):
            for name, data in fold(proto, domain, version, constants, self.types).items():
                self.add_constant(name, data)
            return True
        return False

    def _expand(self, proto: onnx.NodeProto, domain: str, version: int, origin: str, opsets: Mapping[str, int]) -> None:
        """Import the body of an operator that ONNX defines as a function of others."""
        found = expand(proto, domain, version, self.types, self.unique(origin))
        if found is None:
            raise Unsupported("not supported")
        for part in found[0]:
            self.run(part, {**opsets, **found[1]})


def import_graph(model: onnx.ModelProto, name: str, maxima: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a checked model whose input shapes are numbers.

    Args:
        model: the model.
        name: the graph's name.
        maxima: the largest sizes of what has a size that depends on data (mtool/frontend/bounds.py), by the name of
            the value or of the dimension.

    Raises:
        UsageError: `maxima` names nothing whose size depends on data.
        ModelError: operators that can't be compiled; every one is listed.
    """
    state = Importer(model, maxima)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    for tensor in model.graph.initializer:
        try:
            state.add_constant(tensor.name, numpy_helper.to_array(tensor))
        except (KeyError, ValueError, TypeError) as failed:
            raise ModelError(f"initialiser {tensor.name!r} can't be read", details=[str(failed)]) from None
    inputs = []
    for value in model.graph.input:
        if value.name in state.constants:
            continue
        dims = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        try:
            dtype = DType.of(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        except KeyError:
            label = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            raise ModelError(f"input {value.name!r} has elements of type {label}", details=["not supported"]) from None
        kind = TensorType(dtype, dims)
        if min(dims, default=0) < 0 or kind.bytes > MOST_BYTES:
            raise ModelError(f"input {value.name!r} is {kind}", details=["expected: sizes of 0 or more, at most 2 GiB"])
        state.types[value.name] = kind
        inputs.append(value.name)
        if not kind.count:
            state.add_constant(value.name, np.zeros(kind.shape, kind.dtype.numpy))
    for proto in model.graph.node:
        state.run(proto, state.opsets)
    if state.problems:
        raise _refusal(state, name)
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


def _refusal(state: Importer, name: str) -> ModelError:
    """Return the error that lists every node that can't be compiled."""
    width = max(len(op) for op, _, _ in state.problems)
    what = f"{len(state.problems)} operator{'s' * (len(state.problems) > 1)} of {name} can't be compiled"
    details = [f"{op:<{width}}  {origin}   {reason}" for op, origin, reason in state.problems]
    needed = state.needed_inputs()
    if needed:
        hint = "make inputs constants: " + " ".join(f"--const {value}=..." for value in needed)
        return NeedsValues(what, details=details, hint=hint, inputs=needed)
    return ModelError(what, details=details, hint="see docs/operators.md for what is supported")


def _has_graphs(proto: onnx.NodeProto) -> bool:
    return any(attr.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for attr in proto.attribute)


def _constant_value(proto: onnx.NodeProto) -> Array:
    attr = proto.attribute[0]
    value = helper.get_attribute_value(attr)
    if attr.name == "value":
        return np.asarray(numpy_helper.to_array(value))
    dtype = np.float32 if attr.name.startswith("value_float") else np.int64
    return np.asarray(value, dtype)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
