"""If, Loop and Scan: control flow that the device decides, or that is unrolled when it is known at compile time.

Bodies are imported in place, or as graphs that the device runs. An If with a constant condition becomes the branch
taken, another one a node that computes one of two graphs. A Loop or Scan with a few rounds, whose number is known, is
unrolled, with the round number as a constant; another one becomes a graph that the device computes repeatedly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base import plural
from mtool.base.escaping import argument
from mtool.base.frozen import frozen
from mtool.compiler.frontend import tensors
from mtool.compiler.frontend.importer import Importer, NotThisWay
from mtool.compiler.frontend.inference import check_size
from mtool.compiler.frontend.scope import Bodies, Body, domain_of
from mtool.compiler.ir import DType, Graph, Node, TensorType
from mtool.compiler.ir.control import Branches, Carried, Rounds
from mtool.compiler.operators.bounds import Bound
from mtool.compiler.operators.onnx_node import OPSET, OnnxNode
from mtool.compiler.operators.problems import Unsupported, ValueNeeded


def body_named(bodies: Bodies, name: str, inputs: int, outputs: int) -> Body:
    """Return the body of a node.

    Raises:
        Unsupported: there is no body of that name, or its number of inputs or outputs is wrong.
    """
    if name not in bodies:
        raise Unsupported(f"it has no {name}")
    graph = bodies[name].graph
    if len(graph.input) != inputs:
        raise Unsupported(f"its {name} has {plural.count(len(graph.input), 'input')} instead of {inputs}")
    if len(graph.output) < outputs:
        raise Unsupported(f"its {name} has {plural.count(len(graph.output), 'output')} instead of {outputs}")
    return bodies[name]


def inline(state: Importer, body: Body, feeds: Sequence[str], prefix: str) -> list[str]:
    """Import a body with its inputs bound to values, and return the names of its outputs."""
    graph = body.graph
    fed = dict(zip((value.name for value in graph.input), feeds, strict=True))
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in fed}
    sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer if tensor.values.name not in fed}
    computed = {value for node in graph.node for value in node.output if value}
    scope = body.scope.inside(state.inner(prefix, computed | {*constants} | {*sparse}) | fed, prefix)
    for name, tensor in constants.items():
        state.add_constant(scope.name(name), tensors.array_of(tensor, state.budget, f"initialiser {name!r}"))
    for name, scattered in sparse.items():
        state.add_constant(scope.name(name), tensors.dense(scattered, state.budget, f"initialiser {name!r}"))
    state.enter(graph.node, scope, prefix)
    return [scope.name(value.name) for value in graph.output]


def free_values(state: Importer, nodes: Iterable[Node], outputs: Iterable[str], local: Iterable[str] = ()) -> list[str]:
    """Return the values that a body reads from the graph around it, except constants, in the order of reading."""
    bound = {*local, ""}
    free: dict[str, None] = {}
    for node in nodes:
        free |= dict.fromkeys(value for value in node.inputs if value not in bound and value not in state.constants)
        bound.update(node.outputs)
    free |= dict.fromkeys(value for value in outputs if value not in bound and value not in state.constants)
    return [*free]


def graph_of(state: Importer, name: str, inputs: Sequence[str], nodes: Sequence[Node], outputs: Sequence[str]) -> Graph:
    """Return a body as a graph with the constants that it reads."""
    values = dict.fromkeys([*inputs, *outputs, *(value for node in nodes for value in (*node.inputs, *node.outputs))])
    values.pop("", None)
    constants = {value: state.constants[value] for value in values if value in state.constants and value not in inputs}
    types = {value: state.types[value] for value in values}
    return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), types, constants)


def alias(state: Importer, old: str, new: str) -> None:
    """Add an alias of a value or a sequence, unless `new` is ""."""
    if new and old in state.sequences:
        state.sequences[new] = state.sequences[old]
    elif new:
        state.run(helper.make_node("Identity", [old], [new], name=new), OPSET)


def without_elements(state: Importer, value: str) -> bool:
    """Whether a value has no elements; then it is made a constant."""
    kind = state.types[value]
    if kind.count:
        return False
    if value not in state.constants:
        state.add_constant(value, np.zeros(kind.shape, kind.dtype.numpy))
    return True


def check_is_tensor(state: Importer, values: Mapping[str, str]) -> None:
    """Check that values are tensors of known type; `values` has each value's role for the message.

    Raises:
        Unsupported: one is a sequence, or can't be compiled.
    """
    for value, role in values.items():
        if value in state.sequences:
            raise Unsupported(f"{role} is a sequence")
        if value not in state.types:
            raise Unsupported(f"{role} can't be compiled")


def single(data: Any, role: str) -> Any:
    """Return the only element of a constant, as a number.

    Raises:
        Unsupported: it does not have exactly one element.
    """
    if data.size != 1:
        raise Unsupported(f"its {role} has {plural.count(data.size, 'element')} instead of 1")
    return data.item()


@frozen
class Rows:
    """A value that is read or written row by row; "": an output that is not used.

    axis: the dimension that the rows lie along.
    is_reversed: rows are read or written from the last to the first.
    """

    value: str
    axis: int = 0
    is_reversed: bool = False


@frozen
class LoopSpec:
    """A Loop or a Scan. A value that is not given or not used is "".

    body: its graph.
    first, last: each carried value's initial value, and the output that gets its last one.
    read, written: the inputs that are read by rows, and the outputs that are written by rows.
    ends: whether the body has a round number and a condition as inputs, and its first output says whether there is
        another round.
    trips, condition: the number of rounds; whether there is a first one.
    names: the names that --max takes for the largest number of rounds.
    most: the number of rounds, where the inputs' shapes determine it.
    """

    body: Body
    first: Sequence[str]
    last: Sequence[str]
    read: Sequence[Rows]
    written: Sequence[Rows]
    ends: bool
    trips: str = ""
    condition: str = ""
    names: Sequence[str] = ()
    most: int | None = None


def unroll(state: Importer, node: OnnxNode, loop: LoopSpec, limit: int | None, *, tries: bool = False) -> bool:
    """Unroll a Loop or Scan, up to `limit` if there is one.

    Returns:
        Whether it was possible: not if data decides about another round, or with `tries` if there are too many.

    Raises:
        ModelError: there are too many rounds.
    """
    carried, number, going = list(loop.first), 0, True
    rows: list[list[str]] = [[] for _ in loop.written]
    if limit is not None and tries and not state.budget.allows("rounds", limit):
        return False
    while going and (limit is None or number < limit):
        number += 1
        if tries and not state.budget.allows("rounds", number):
            return False
        state.budget.check("rounds", number if loop.ends or limit is None else limit, f"{node.op} {node.origin}")
        prefix, before = state.unique(node.origin), len(state.problems)
        inside = OnnxNode(state, node.proto, prefix, node.attrs, node.version)
        feeds = [] if loop.ends else [*carried]
        if loop.ends:
            feeds.append(state.constant(f"{prefix}/number", np.asarray(number - 1, np.int64)))
            feeds += [state.constant(f"{prefix}/going", np.asarray(True)), *carried]
        for source in loop.read:
            row = number - 1 if not source.is_reversed or limit is None else limit - number
            feeds.append(inside("Gather", source.value, np.int64(row), axis=source.axis))
        outputs = inline(state, loop.body, feeds, prefix)
        if len(state.problems) > before:
            state.leave_out(node.outputs)
            return True
        if loop.ends:
            if outputs[0] not in state.constants:
                return False
            going = bool(single(state.constants[outputs.pop(0)], "cond"))
        for place, names in enumerate(zip(carried, outputs, strict=False)):
            old, new = (state.types[name].dtype.label if name in state.types else "" for name in names)
            if old and new and old != new:
                raise Unsupported(f"its carried value {place} changes its type in a round, from {old} to {new}")
        carried = outputs[: len(carried)]
        for values, value in zip(rows, outputs[len(carried) :], strict=True):
            values.append(value)
    for old, new in zip(carried, loop.last, strict=False):
        alias(state, old, new)
    for values, target in zip(rows, loop.written, strict=True):
        if target.value:
            stack(state, node, values, target)
    return True


def stack(state: Importer, node: OnnxNode, rows: Sequence[str], target: Rows) -> None:
    """Concatenate values along a new axis."""
    axis = target.axis % (len(state.types[rows[0]].shape) + 1) if target.axis else 0
    axes = state.constant(f"{node.origin}/axis", np.asarray([axis], np.int64))
    parts = [node("Unsqueeze", row, axes) for row in (reversed(rows) if target.is_reversed else rows)]
    node.write("Concat", parts, [target.value], axis=axis)


_UNLIMITED = 1 << 62  # from here on a number of rounds means "no limit", as exporters write a while loop


class ReadsOnlyConstants(Unsupported):
    """The rounds read only constants, so their results are constants too."""


class NeverEnds(Unsupported):
    """Nothing ends the rounds, so they can't be unrolled either."""


SHORT = 64
"""The most nodes, over all rounds, up to which a loop with a known number of rounds is unrolled."""


def is_short(body: Body, rounds: int) -> bool:
    """Whether the rounds are few and their body small enough to unroll.

    A body with loops in it is not: its loops would be unrolled once per round.
    """
    if not 0 < rounds * len(body.graph.node) <= SHORT:
        return False
    waiting = [body.graph]
    while waiting:
        for node in waiting.pop().node:
            if node.op_type in ("Loop", "Scan"):
                return False
            waiting += [attr.g for attr in node.attribute if attr.type == onnx.AttributeProto.GRAPH]
    return True


def import_rounds(state: Importer, loop: LoopSpec, origin: str, *, constant: bool = False) -> None:
    """Import a body as a graph, and append the node that computes it in rounds; rows lie along the first dimension.

    Args:
        state: the import.
        loop: the loop.
        origin: the name of the node.
        constant: whether the device also computes a loop that reads only constants.

    Raises:
        ReadsOnlyConstants: the loop reads only constants, and `constant` is false.
        Unsupported: a value changes its type from round to round.
    """
    values = [*loop.first, *(rows.value for rows in loop.read)]
    check_is_tensor(state, {value: f"its input {value!r}" for value in values})
    if any(value in state.bounds for value in values):
        raise Unsupported("the size of one of its inputs depends on data")
    builder = _Loop(state, loop, state.unique(origin))
    if any(value not in state.types for value in builder.results):
        return  # a problem is noted
    builder.find_limit()
    if builder.limit == 0:
        builder.finish_without_rounds()
        return
    if any(value in state.bounds for value in (*builder.last, *builder.written)):
        raise Unsupported("the size of an output of its body depends on data")
    builder.carry()
    builder.write_rows()
    if builder.outputs:
        builder.append(origin, constant=constant)


class _Loop:
    """A loop's node under construction: the inputs and outputs of the node and of its graph.

    inner: the carried values inside the body; one that never changes keeps its name.
    rows: a row of each value that is read by rows.
    round_number: the number of the round.
    results: the outputs of the graph: `going`, whether there is another round ("": the round number decides), the last
        carried values, and the rows that are written.
    """

    def __init__(self, state: Importer, loop: LoopSpec, prefix: str) -> None:
        self.state, self.loop = state, loop
        self.limit: int | None = None
        self.outputs: list[str] = []
        self.carried: list[Carried] = []
        self.first: list[str] = []
        self.ins: list[str] = []
        self.outs: list[str] = []
        self.rows_made: list[str] = []
        self.reversed: list[bool] = []
        self.count = ""
        passed = _unchanged(loop)
        self.inner = [
            value
            if number in passed or not state.types[value].count
            else state.value(f"{prefix}/{value}", state.types[value], [value])
            for number, value in enumerate(loop.first)
        ]
        self.rows = [self._row(prefix, rows.value) for rows in loop.read]
        self.round_number = state.value(f"{prefix}/round", TensorType(DType.INT64, ()), [loop.trips, loop.condition])
        leading = [self.round_number, state.constant(f"{prefix}/going", np.asarray(True))] if loop.ends else []
        with state.apart() as self.nodes, state.in_doubt():
            results = inline(state, loop.body, [*leading, *self.inner, *self.rows], prefix)
        roles = {value: f"the output {value!r} of its body" for value in results if value in state.sequences}
        check_is_tensor(state, roles)
        end = loop.ends + len(self.inner)
        self.results, self.going = results, results[0] if loop.ends else ""
        self.last, self.written = results[loop.ends : end], results[end:]

    def _row(self, prefix: str, value: str) -> str:
        """Return a new value of the type of a row of another."""
        kind = self.state.types[value]
        name = self.state.value(f"{prefix}/{value}", TensorType(kind.dtype, kind.shape[1:]), [value])
        without_elements(self.state, name)
        return name

    def find_limit(self) -> None:
        """Find the largest number of rounds, if it is known.

        Raises:
            Unsupported: the number of rounds or a condition does not have exactly one element.
        """
        state, loop, constants = self.state, self.loop, self.state.constants
        limits = [] if loop.most is None else [loop.most]
        if loop.trips in constants:
            limits.append(max(int(single(constants[loop.trips], "M")), 0))
        if loop.condition in constants and not single(constants[loop.condition], "cond"):
            limits.append(0)
        if self.going in constants and not single(constants[self.going], "cond"):
            limits.append(1)
        limits = [limit for limit in limits if limit < _UNLIMITED]
        depends = any(value and value not in constants for value in (loop.trips, loop.condition, self.going))
        self.stated = [name for name in loop.names if name in state.options.maxima]
        if self.stated and depends:
            state.used_maxima.add(self.stated[0])
            limits.append(state.options.maxima[self.stated[0]])
        self.limit = min(limits, default=None)
        if self.limit == 0:
            return
        self.trips = self._decided_on_device(loop.trips, DType.INT64)
        self.condition = self._decided_on_device(loop.condition, DType.BOOL)
        self.goes_on = self._decided_on_device(self.going, DType.BOOL)
        self.is_counted = not (self.trips or self.condition or self.goes_on)

    def _decided_on_device(self, value: str, dtype: DType) -> list[str]:
        """Return the value that decides the number of rounds, unless it is a constant."""
        if not value or value in self.state.constants:
            return []
        kind = self.state.types[value]
        if kind.count != 1 or kind.dtype is not dtype:
            raise Unsupported(f"{value!r} decides its number of rounds and is {kind}; expected one {dtype.label}")
        return [value]

    def _deciding_value(self) -> tuple[str, str]:
        """Return the value that the number of rounds depends on, and the operator's name for it."""
        if self.trips:
            return self.loop.trips, "M"
        return self.loop.condition if self.condition else self.going, "cond"

    def finish_without_rounds(self) -> None:
        """Set the outputs of a loop without rounds: the initial values, and no rows."""
        for before, output in zip(self.loop.first, self.loop.last, strict=False):
            alias(self.state, before, output)
        for value, rows in zip(self.written, self.loop.written, strict=False):
            if rows.value:
                self._is_empty(value, rows.value, 0)

    def _is_empty(self, row: str, output: str, rounds: int | None) -> bool:
        """Whether an output that is written by rows has no elements; then it is a constant."""
        kind = self.state.types[row]
        if kind.count and rounds != 0:
            return False
        if rounds is None:
            raise Unsupported("it collects rows without elements, and their number depends on data")
        shape = list(kind.shape)
        if row in self.state.bounds:  # a loop without rounds has none
            shape[self.state.bounds[row].axis] = 0
        self.state.types[output] = check_size(TensorType(kind.dtype, (rounds, *shape)), "its output")
        return without_elements(self.state, output)

    def carry(self) -> None:
        """Carry values from round to round; one that never changes needs no storage.

        Raises:
            NeverEnds: nothing ends the rounds.
            Unsupported: a value changes its type.
        """
        if self.limit is None and not self.trips and not self.goes_on:
            raise NeverEnds("it never ends")
        types, outputs = self.state.types, [*self.loop.last, *[""] * len(self.loop.first)]
        for before, inside, after, output in zip(self.loop.first, self.inner, self.last, outputs, strict=False):
            if types[after] != types[before]:
                problem = f"its carried value changes from {types[before]} to {types[after]} in a round"
                if not (self.trips or self.condition):
                    raise Unsupported(problem)
                value, role = self._deciding_value()
                problem = f"{problem}; its input {role!r} must be a constant"
                raise ValueNeeded(value, role, text=problem)
            if inside == before:
                alias(self.state, before, output)
                continue
            constant = self.state.constants.get(before)
            self.carried.append(Carried(constant is None, constant, bool(output)))
            self.first += [before] * (constant is None)
            self.ins.append(inside)
            self.outs.append(after)
            if output:
                types[output] = types[before]
                self.outputs.append(output)

    def write_rows(self) -> None:
        """Write a row of each output that collects one per round, and their number if it depends on data.

        Raises:
            ValueNeeded: the number of rounds has no limit.
        """
        state = self.state
        for value, rows in zip(self.written, self.loop.written, strict=False):
            output = rows.value
            if not output or self._is_empty(value, output, self.limit if self.is_counted else None):
                continue
            if not self.is_counted and not self.stated:
                name = argument(self.loop.names[0] if self.loop.names else "NAME")
                raise ValueNeeded(*self._deciding_value(), f", or give --max {name}=N, the largest number of rounds")
            assert self.limit is not None
            kind = state.types[value]
            state.types[output] = check_size(TensorType(kind.dtype, (self.limit, *kind.shape)), "its output")
            if not self.is_counted:
                self.count = self.count or state.unique(f"{output}_count")
                state.bounds[output] = Bound(0, self.count)
            self.rows_made.append(value)
            self.reversed.append(rows.is_reversed)
            self.outputs.append(output)
        if self.count:
            state.types[self.count] = TensorType(DType.INT32, ())
            self.outputs.append(self.count)

    def append(self, origin: str, *, constant: bool) -> None:
        """Append the node.

        Raises:
            ReadsOnlyConstants: it reads only constants, and `constant` is false.
        """
        state = self.state
        results = [*self.goes_on, *self.rows_made, *self.outs]
        captured = free_values(state, self.nodes, results, [*self.rows, self.round_number, *self.ins])
        read = [pair for pair in zip(self.rows, self.loop.read, strict=True) if pair[0] not in state.constants]
        inputs = [*self.trips, *self.condition, *self.first, *(rows.value for _, rows in read), *captured]
        if not inputs and not constant:
            raise ReadsOnlyConstants("its results are constants")
        inner = [*(inside for inside, _ in read), *captured, self.round_number, *self.ins]
        attrs = Rounds(
            bodies=(graph_of(state, f"{origin} (body)", inner, self.nodes, results),),
            has_trips=bool(self.trips), has_condition=bool(self.condition), most=self.limit,
            goes_on=bool(self.goes_on), carried=tuple(self.carried),
            backwards=tuple(rows.is_reversed for _, rows in read), reversed=tuple(self.reversed),
            counts=bool(self.count),
        )  # fmt: skip
        state.append("Loop", origin, inputs, self.outputs, attrs)


def _unchanged(loop: LoopSpec) -> set[int]:
    """Return the carried values that the body returns unchanged."""
    graph = loop.body.graph
    copies = {
        node.output[0]: node.input[0]
        for node in graph.node
        if (domain_of(node.domain), node.op_type) == ("", "Identity") and node.input and node.output
    }
    unchanged = set()
    for number in range(len(loop.first)):
        value, seen = graph.output[loop.ends + number].name, set[str]()
        while value in copies and value not in seen:
            seen.add(value)
            value = copies[value]
        if value == graph.input[2 * loop.ends + number].name:
            unchanged.add(number)
    return unchanged


def import_if(state: Importer, node: OnnxNode, bodies: Bodies) -> None:
    """Import an If.

    Raises:
        Unsupported: its branches return different types.
    """
    condition = node.inputs[0]
    branches = [body_named(bodies, name, 0, len(node.outputs)) for name in ("then_branch", "else_branch")]
    if condition in state.constants:
        chosen = branches[0 if single(state.constants[condition], "cond") else 1]
        for old, new in zip(inline(state, chosen, (), state.unique(node.origin)), node.outputs, strict=False):
            alias(state, old, new)
        return
    kind = state.types[condition]
    if kind.count != 1 or kind.dtype is not DType.BOOL:
        raise Unsupported(f"its condition is {kind}; expected one element, bool")
    before, sides = len(state.problems), []
    prefixes = [state.unique(node.origin) for _ in branches]
    for branch, prefix in zip(branches, prefixes, strict=True):
        with state.apart() as nodes, state.in_doubt():
            outs = inline(state, branch, (), prefix)
        sides.append((nodes, outs))
    if len(state.problems) > before:
        state.leave_out(node.outputs)
        return
    outputs: list[str] = []
    results: tuple[list[str], list[str]] = ([], [])
    bounds: dict[str, tuple[Bound, Bound]] = {}
    triples = zip(sides[0][1], sides[1][1], node.outputs, strict=False)
    for yes, no, output in [element for triple in triples if triple[2] for element in _elements(state, *triple)]:
        check_is_tensor(state, {yes: f"its output {output!r}", no: f"its output {output!r}"})
        if state.types[yes] != state.types[no]:
            stated = "; give the same --max in both" if yes in state.bounds and no in state.bounds else ""
            raise Unsupported(f"its branches return different types, {state.types[yes]} and {state.types[no]}{stated}")
        state.types[output] = state.types[yes]
        if without_elements(state, output):
            continue
        outputs.append(output)
        results[0].append(yes)
        results[1].append(no)
        if yes in state.bounds or no in state.bounds:
            bounds[output] = _bounds_of(state, yes, no)
    for output, pair in bounds.items():
        state.bounds[output] = Bound(pair[0].axis, _count(state, output, outputs, results, pair))
    if not outputs:
        return
    shared = dict.fromkeys(
        value for (nodes, _), outs in zip(sides, results, strict=True) for value in free_values(state, nodes, outs)
    )
    name = node.proto.name or outputs[0]
    graphs = [
        graph_of(state, f"{name} ({side})", [*shared], nodes, outs)
        for side, (nodes, _), outs in zip(Branches.names, sides, results, strict=True)
    ]
    state.append("If", node.origin, [condition, *shared], outputs, Branches(bodies=tuple(graphs)))


def _elements(state: Importer, yes: str, no: str, output: str) -> list[tuple[str, str, str]]:
    """Return an output and its value in each branch; for a sequence, the same of each element."""
    if yes not in state.sequences or no not in state.sequences:
        return [(yes, no, output)]
    pair = state.sequences[yes], state.sequences[no]
    if len(pair[0]) != len(pair[1]):
        raise Unsupported(f"its branches return sequences of different lengths, {len(pair[0])} and {len(pair[1])}")
    state.budget.afford("nodes", len(pair[0]), f"If {output}")
    state.sequences[output] = [state.unique(f"{output}/{number}") for number in range(len(pair[0]))]
    return [*zip(*pair, state.sequences[output], strict=True)]


def _bounds_of(state: Importer, yes: str, no: str) -> tuple[Bound, Bound]:
    """Return an output's bound in each branch, where its size depends on data in at least one of them."""
    axes = {state.bounds[value].axis for value in (yes, no) if value in state.bounds}
    if len(axes) > 1:
        raise Unsupported("the dimension whose size depends on data differs between its branches")
    (axis,) = axes
    most = np.asarray(state.types[yes].shape[axis], np.int32)
    first, second = (
        state.bounds[value] if value in state.bounds else Bound(axis, state.constant(f"{value}_count", most))
        for value in (yes, no)
    )
    return first, second


def _count(
    state: Importer, output: str, outputs: list[str], results: tuple[list[str], list[str]], pair: tuple[Bound, Bound]
) -> str:
    """Return the value with an output's element count; if the branches' counts differ, each returns its own."""
    if pair[0].count == pair[1].count:
        return pair[0].count
    counts = [bound.count for bound in pair]
    for name, yes, no in zip(outputs, *results, strict=True):
        if [yes, no] == counts:
            return name  # another output has the same count
    name = state.unique(f"{output}_count")
    state.types[name] = TensorType(DType.INT32, ())
    outputs.append(name)
    results[0].append(counts[0])
    results[1].append(counts[1])
    return name


def import_loop(state: Importer, node: OnnxNode, bodies: Bodies) -> None:
    """Import a Loop.

    Raises:
        Unsupported: its body does not match it, or the number of rows that it writes is neither known nor given.
        ModelError: it has to be unrolled, and that exceeds the budget.
    """
    trips, condition, *values = [*node.inputs, "", ""][: max(len(node.inputs), 2)]
    body = body_named(bodies, "body", 2 + len(values), 1 + max(len(values), len(node.outputs)))
    if len(body.graph.output) < 1 + len(values):
        raise Unsupported(
            f"its body has {plural.count(len(body.graph.output), 'output')} and "
            f"its node {plural.count(len(values), 'carried value')}"
        )
    limit = max(int(single(state.constants[trips], "M")), 0) if trips in state.constants else None
    going = bool(single(state.constants[condition], "cond")) if condition in state.constants else not condition
    # The rounds are the same in each run.
    can_unroll = going and limit != 0 and (limit is not None or not trips)
    outputs = [*node.outputs, *[""] * (len(body.graph.output) - 1 - len(node.outputs))]
    loop = LoopSpec(
        body, values, outputs[: len(values)], (), [Rows(output) for output in outputs[len(values) :]], ends=True,
        trips=trips, condition=condition, names=[name for name in (*node.outputs, node.proto.name) if name],
    )  # fmt: skip
    is_better = limit is not None and not state.options.keeps_rounds and is_short(body, limit)
    if can_unroll and is_better and unroll(state, node, loop, limit):
        return
    try:
        with state.attempt():
            import_rounds(state, loop, node.origin)
    except NotThisWay as failed:
        constant = isinstance(failed.reason, ReadsOnlyConstants)
        can_unroll &= not isinstance(failed.reason, NeverEnds)
        if can_unroll and unroll(state, node, loop, limit, tries=constant):
            return
        if constant:
            import_rounds(state, loop, node.origin, constant=True)
        else:
            state.give_up(failed, node.outputs)


def import_scan(state: Importer, node: OnnxNode, bodies: Bodies) -> None:
    """Import a Scan.

    Raises:
        Unsupported: its body, axes and inputs do not match.
        ModelError: it has to be unrolled, and that exceeds the budget.
    """
    attrs, inputs, count, batch = node.attrs, node.inputs, node.attrs["num_scan_inputs"], None
    if node.version < 9:  # Scan 8: sequence lengths first, and a batch dimension
        if inputs[0]:
            raise Unsupported("sequence lengths of Scan 8 are not supported")
        batch, inputs = (state.types[inputs[1]].shape or (0,))[0], inputs[1:]
    if not 1 <= count <= len(inputs):
        raise Unsupported(f"it has {plural.count(count, 'scan input')} among {plural.count(len(inputs), 'input')}")
    check_is_tensor(state, {value: f"its input {value!r}" for value in inputs})
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    body = body_named(bodies, "body", len(inputs), max(len(states), len(node.outputs)))
    rows = len(body.graph.output) - len(states)
    axes = attrs.get("scan_input_axes") or [0] * count
    directions = attrs.get("scan_input_directions") or attrs.get("directions") or [0] * count
    out_axes, out_directions = (attrs.get(key) or [0] * rows for key in ("scan_output_axes", "scan_output_directions"))
    if not (len(axes) == len(directions) == count and len(out_axes) == len(out_directions) == rows):
        raise Unsupported(
            f"its axes or directions do not match its {plural.count(count, 'scan input')} and {rows} scan outputs"
        )
    outputs = [*node.outputs, *[""] * (len(body.graph.output) - len(node.outputs))]
    scan = LoopSpec(
        body, states, outputs[: len(states)],
        [Rows(value, axis, bool(back)) for value, axis, back in zip(scanned, axes, directions, strict=True)],
        [Rows(*row) for row in zip(outputs[len(states) :], out_axes, map(bool, out_directions), strict=True)],
        ends=False,
    )  # fmt: skip
    if batch is None:
        _import_scan(state, node, scan)
    elif batch < 1:
        raise Unsupported("its batch is empty")
    else:
        _import_batch(state, node, scan, batch)


def _import_batch(state: Importer, node: OnnxNode, scan: LoopSpec, batch: int) -> None:
    """Import a Scan for each image of a batch."""
    state.budget.check("rounds", batch, f"Scan {node.origin}")
    outputs = [*scan.last, *(rows.value for rows in scan.written)]
    images: list[list[str]] = []
    for image in range(batch):
        first = [node("Gather", value, np.int64(image), axis=0) for value in scan.first]
        read = [replace(rows, value=node("Gather", rows.value, np.int64(image), axis=0)) for rows in scan.read]
        names = [state.unique(f"{output}/image") if output else "" for output in outputs]
        pairs = zip(scan.written, names[len(first) :], strict=True)
        written = [replace(rows, value=value) for rows, value in pairs]
        _import_scan(state, node, replace(scan, first=first, last=names[: len(first)], read=read, written=written))
        images.append(names)
    for column, new in zip(zip(*images, strict=True), outputs, strict=True):
        if new:
            stack(state, node, column, Rows(new))


def _import_scan(state: Importer, node: OnnxNode, scan: LoopSpec) -> None:
    shapes, axes = [state.types[rows.value].shape for rows in scan.read], [rows.axis for rows in scan.read]
    if any(not -len(shape) <= axis < len(shape) for shape, axis in zip(shapes, axes, strict=True)):
        raise Unsupported(f"its scan_input_axes {axes} do not fit its inputs {[list(shape) for shape in shapes]}")
    rounds = shapes[0][axes[0]]
    if any(shape[axis] != rounds for shape, axis in zip(shapes, axes, strict=True)):
        raise Unsupported(f"its inputs {[list(shape) for shape in shapes]} differ in length along the axes {axes}")
    if not state.options.keeps_rounds and is_short(scan.body, rounds):
        unroll(state, node, scan, rounds)
        return
    try:
        with state.attempt():
            _in_rounds(state, node, replace(scan, most=rounds), constant=not state.budget.allows("rounds", rounds))
    except NotThisWay as failed:
        if rounds:
            unroll(state, node, scan, rounds)
        else:
            state.give_up(failed, [*scan.last, *(rows.value for rows in scan.written)])


def _in_rounds(state: Importer, node: OnnxNode, scan: LoopSpec, *, constant: bool) -> None:
    """Import it as a loop on the device; values that are read or written along another axis are transposed."""
    read = []
    for rows in scan.read:
        rank = len(state.types[rows.value].shape)
        first, value = rows.axis % rank, rows.value
        if first:
            value = node("Transpose", value, perm=[first, *(axis for axis in range(rank) if axis != first)])
        read.append(replace(rows, value=value))
    written = [
        replace(rows, value=state.unique(f"{rows.value}/rows")) if rows.value and rows.axis else rows
        for rows in scan.written
    ]
    import_rounds(state, replace(scan, read=read, written=written), node.origin, constant=constant)
    for target, rows in zip(written, scan.written, strict=True):
        if rows.value and rows.axis and target.value in state.types:
            rank = len(state.types[target.value].shape)
            if not -rank <= rows.axis < rank:
                raise Unsupported(f"its scan_output_axes has {rows.axis}, for an output of {rank} dimensions")
            dim = rows.axis % rank
            node.write("Transpose", [target.value], [rows.value], perm=[*range(1, dim + 1), 0, *range(dim + 1, rank)])


CONTROL: dict[str, Callable[[Importer, OnnxNode, Bodies], None]] = {
    "If": import_if,
    "Loop": import_loop,
    "Scan": import_scan,
}
"""The import function of each operator."""
