"""The state of one import, shared by all code that imports nodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import onnx

from mtool.base.errors import MtoolError
from mtool.compiler.frontend.options import DEFAULTS, ModelOptions
from mtool.compiler.frontend.scope import NO_BODIES, Bodies, Opsets, Scope, domain_of, functions_of
from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.operators import lowering_of
from mtool.compiler.operators.bounds import Bound, Bounded
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.onnx_node import NO_ATTRIBUTES, ImportState
from mtool.compiler.operators.ordering import Counting
from mtool.compiler.operators.problems import REFUSED, Unsupported, ValueNeeded, disagreement

ImportNode = Callable[["Importer", onnx.NodeProto, str, Opsets, Bodies], None]
"""Imports one node with the given name (mtool.compiler.frontend.dispatch)."""


class NotThisWay(Exception):
    """An attempt failed, for the given reason or because of nodes inside, which need the values `needed`."""

    def __init__(self, reason: Unsupported | None, problems: list[tuple[str, str, str]], needed: list[str]) -> None:
        super().__init__(str(reason or "nodes inside can't be compiled"))
        self.reason, self.problems, self.needed = reason, problems, needed


class Importer(ImportState):
    """The state of one import. Canonicalisers call `emit`, `constant` and `fail`.

    An operator that stands for others calls `run` with their nodes, which imports them by `import_node`.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        import_node: ImportNode,
        options: ModelOptions = DEFAULTS,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(budget or Budget())
        self._import_node = import_node
        self.options = options
        self.used_maxima: set[str] = set()
        self.opsets = {domain_of(entry.domain): entry.version for entry in model.opset_import}
        self.scope = Scope(self.opsets)
        self.functions = functions_of(model)
        self.nodes: list[Node] = []
        self.sequences: dict[str, list[str]] = {}
        self.problems: list[tuple[str, str, str]] = []  # operator, node name, reason
        self.inputs = tuple(value.name for value in model.graph.input)
        self.is_translated = any(node.domain == REFUSED for node in model.graph.node)
        stated = [*model.graph.value_info, *model.graph.output]
        self.declared = {value.name: value.type for value in stated if value.type.tensor_type.elem_type}
        self._model_names = {*self.inputs, *(tensor.name for tensor in model.graph.initializer)}
        self._model_names.update(value for node in model.graph.node for value in node.output)
        self._made: set[str] = set()
        self.writing_out = 0  # nesting depth of functions, loops and sequences
        self.perhaps = 0  # nesting depth of branches and rounds that may not run
        self._unknown: set[str] = set()
        self._needed: list[str] = []
        self.dequantized: dict[str, tuple[onnx.NodeProto, int]] = {}  # of constants
        self._sources: dict[str, tuple[str, ...]] = {}

    def inner(self, prefix: str, values: Iterable[str]) -> dict[str, str]:
        """Return names in the model for the values that are made in a body or function."""
        names = {}
        for value in filter(None, values):
            name = f"{prefix}/{value}"
            while name in self._model_names:
                name += "'"
            self.budget.spend("work", len(name), prefix)
            self._model_names.add(name)
            names[value] = name
        return names

    def emit(
        self, op: str, origin: str, inputs: list[str], outputs: list[str], attrs: Attributes = NO_ATTRIBUTES
    ) -> None:
        """Append a canonical node; its outputs must have types."""
        if isinstance(attrs, Counting) and outputs[0] in self.bounds:
            outputs, attrs = [*outputs, self.bounds[outputs[0]].count], replace(attrs, counted=True)
        elif any(value in self.bounds for value in inputs):
            self.bounds |= dict.fromkeys(outputs, self._carried(op, inputs, outputs, attrs))
        self.append(op, origin, inputs, outputs, attrs)

    def _carried(self, op: str, inputs: list[str], outputs: list[str], attrs: Attributes) -> Bound:
        """Return the bound of a canonical operator's outputs, from those of its inputs.

        Raises:
            Unsupported: it would use elements behind the count.
        """
        bounds = {index: self.bounds[value] for index, value in enumerate(inputs) if value in self.bounds}
        kinds = [self.types[value] if value else TensorType(DType.INT32, ()) for value in inputs]
        operator, counts = lowering_of(op), {bound.count for bound in bounds.values()}
        axis = None
        if operator is not None and operator.carry is not None:
            axes = {index: bound.axis for index, bound in bounds.items()}
            axis = operator.carry(Bounded(axes, kinds, self.types[outputs[0]], attrs, outputs[0]))
        if axis is None or len(counts) != 1:
            raise Unsupported("it works along a dimension whose size depends on data")
        return Bound(axis, counts.pop())

    def append(self, op: str, origin: str, inputs: list[str], outputs: list[str], attrs: Attributes) -> None:
        """Append a node whose outputs have types and bounds already.

        Raises:
            Unsupported: an output belongs to another node.
        """
        again = self._made.intersection(outputs)
        if again:
            raise Unsupported(f"its output {again.pop()!r} is also an output of another node")
        self._made.update(outputs)
        self.nodes.append(Node(op, self.unique(origin), tuple(inputs), tuple(outputs), attrs, (origin,)))

    def fail(self, op: str, origin: str, reason: str) -> None:
        """Record a node that can't be compiled."""
        self.problems.append((op, origin, reason))

    def value(self, stem: str, kind: TensorType, sources: Iterable[str]) -> str:
        """Return the name of a new value of a body; making `sources` constants would make it a constant."""
        name = self.unique(stem)
        self.types[name] = kind
        self._sources[name] = tuple(filter(None, sources))
        return name

    def needed_inputs(self) -> tuple[str, ...]:
        """Return the model's inputs whose values operators need at compile time."""
        open_values, needed = list(self._needed), set()
        while open_values:
            value = open_values.pop()
            if value in self.constants:
                continue  # known already, such as a shape
            if value in self.inputs:
                needed.add(value)
            open_values.extend(self._sources.pop(value, ()))
        return tuple(name for name in self.inputs if name in needed)

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
    def apart(self) -> Iterator[list[Node]]:
        """Import the nodes of a body, and return them as a list."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Try an import; if it fails, undo it.

        Raises:
            NotThisWay: a node in it can't be compiled.
        """
        problems, needed = len(self.problems), len(self._needed)
        unknown, used = set(self._unknown), set(self.used_maxima)
        reason: Unsupported | None = None
        try:
            yield
        except Unsupported as error:
            reason = error
        if reason is None and len(self.problems) == problems:
            return
        failed = NotThisWay(reason, self.problems[problems:], self._needed[needed:])
        del self.problems[problems:], self._needed[needed:]
        self._unknown, self.used_maxima = unknown, used
        raise failed from None

    def give_up(self, failed: "NotThisWay", outputs: Iterable[str]) -> None:
        """Record why the last attempt failed.

        Raises:
            Unsupported: the reason is not a problem of a node inside.
        """
        self.problems += failed.problems
        self._needed += failed.needed
        if failed.reason is not None:
            raise failed.reason
        self._unknown.update(outputs)

    def leave_out(self, values: Iterable[str]) -> None:
        """Skip values and everything that depends on them: the problem that explains it is recorded already."""
        self._unknown.update(values)

    @contextmanager
    def in_doubt(self) -> Iterator[None]:
        """Import nodes that may not run."""
        self.perhaps += 1
        try:
            yield
        finally:
            self.perhaps -= 1

    def run(self, proto: onnx.NodeProto, opsets: Mapping[str, int], bodies: Bodies = NO_BODIES) -> None:
        """Import one node; a problem with it is recorded, and nodes that depend on it are skipped.

        Raises:
            ModelError: it exceeds the budget.
        """
        origin = proto.name or (proto.output[0] if proto.output else proto.op_type)
        if self.writing_out:
            self.budget.spend("nodes", 1, f"{proto.op_type} {origin}")
        for name in proto.output:
            self._sources[name] = tuple(proto.input)
        if any(name in self._unknown for name in proto.input):
            self._unknown.update(proto.output)  # follows from a problem that is recorded already
            return
        try:
            self._import_node(self, proto, origin, opsets, bodies)
        except Unsupported as problem:
            self.fail(proto.op_type, origin, str(problem))
            self._unknown.update(proto.output)
            if isinstance(problem, ValueNeeded):
                self._needed.append(problem.value)
        except MtoolError:
            raise
        except Exception as failed:  # a malformed node
            if not (isinstance(failed, KeyError) and failed.args[0] in self._unknown):
                self.fail(proto.op_type, origin, disagreement(failed))
            self._unknown.update(proto.output)
