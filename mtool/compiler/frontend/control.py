"""If, Loop and Scan: nodes with graphs, of which the run decides what is computed; or what is known, written out.

Bodies are imported in place, or as graphs that the run computes. Of an If, the branch that is known to be taken, or a
node that computes one of two graphs. Of a Loop or a Scan a few known rounds, written out one after another so that the
number of each is a constant, or a graph that the run computes again and again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base.escaping import argument
from mtool.compiler.frontend import tensors
from mtool.compiler.frontend.importer import Importer, NotThisWay
from mtool.compiler.frontend.inference import check_size
from mtool.compiler.frontend.scope import Bodies, Body, Opsets, domain_of
from mtool.compiler.ir import DType, Graph, Node, TensorType
from mtool.compiler.ir.control import Branches, Carried, Rounds
from mtool.compiler.operators.bounds import Bound
from mtool.compiler.operators.problems import Unsupported, ValueNeeded


def body_named(bodies: Bodies, name: str, inputs: int | None = None, outputs: int | None = None) -> Body:
    """Return the body of a node.

    Raises:
        Unsupported: it has none of that name, or one of other numbers of inputs, or fewer outputs.
    """
    if name not in bodies:
        raise Unsupported(f"it has no {name}")
    graph = bodies[name].graph
    if inputs is not None and len(graph.input) != inputs:
        raise Unsupported(f"its {name} has {len(graph.input)} inputs instead of {inputs}")
    if outputs is not None and len(graph.output) < outputs:
        raise Unsupported(f"its {name} has {len(graph.output)} outputs instead of {outputs}")
    return bodies[name]


def inline(state: Importer, body: Body, feeds: Sequence[str], prefix: str) -> list[str]:
    """Import a body with its inputs bound to values, and return the names of its outputs."""
    graph = body.graph
    fed = dict(zip((value.name for value in graph.input), feeds, strict=True))
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in fed}
    sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer if tensor.values.name not in fed}
    made = {value for node in graph.node for value in node.output if value}
    scope = body.scope.inside(state.inner(prefix, made | {*constants} | {*sparse}) | fed, prefix)
    for name, tensor in constants.items():
        state.add_constant(scope.name(name), tensors.array_of(tensor, state.budget, f"initialiser {name!r}"))
    for name, scattered in sparse.items():
        state.add_constant(scope.name(name), tensors.dense(scattered, state.budget, f"initialiser {name!r}"))
    state.enter(graph.node, scope, prefix)
    return [scope.name(value.name) for value in graph.output]


def free_values(state: Importer, nodes: Iterable[Node], outputs: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    """Return the values that a body reads of the graph around it, constants apart, in the order of reading."""
    known = {*own, ""}
    found: dict[str, None] = {}
    for node in nodes:
        found |= dict.fromkeys(value for value in node.inputs if value not in known and value not in state.constants)
        known.update(node.outputs)
    found |= dict.fromkeys(value for value in outputs if value not in known and value not in state.constants)
    return [*found]


def graph_of(state: Importer, name: str, inputs: Sequence[str], nodes: Sequence[Node], outputs: Sequence[str]) -> Graph:
    """Return a body as a graph; it has the constants that it reads."""
    values = dict.fromkeys([*inputs, *outputs, *(value for node in nodes for value in (*node.inputs, *node.outputs))])
    values.pop("", None)
    own = {*inputs}
    constants = {value: state.constants[value] for value in values if value in state.constants and value not in own}
    types = {value: state.types[value] for value in values}
    return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), types, constants)


def alias(state: Importer, old: str, new: str, opsets: Opsets) -> None:
    """Give a value or a sequence another name too."""
    if new and old in state.sequences:
        state.sequences[new] = state.sequences[old]
    elif new:
        state.run(helper.make_node("Identity", [old], [new], name=new), opsets)


def without_elements(state: Importer, value: str) -> bool:
    """Whether a value has no elements, so that it is known; then it is made a constant."""
    kind = state.types[value]
    if kind.count:
        return False
    if value not in state.constants:
        state.add_constant(value, np.zeros(kind.shape, kind.dtype.numpy))
    return True


def check_is_tensor(state: Importer, values: Mapping[str, str]) -> None:
    """Check that values are tensors of known type, by what each is to the node.

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
        Unsupported: it has another number of elements.
    """
    if data.size != 1:
        raise Unsupported(f"its {role} has {data.size} elements instead of 1")
    return data.item()


def node_of(state: Importer, opsets: Opsets, op: str, inputs: list[str], prefix: str, **attrs: object) -> str:
    """Import a node, and return its output."""
    output = state.unique(f"{prefix}/{op}")
    state.run(helper.make_node(op, inputs, [output], name=prefix, **attrs), opsets)
    return output


def most_asked_for(names: Sequence[str]) -> str:
    """Return what a message says behind a value that is needed: that the most rounds may be stated."""
    return f", or its most rounds be stated: --max {argument(names[0] if names else 'NAME')}=N"


def loop_written_out(
    state: Importer,
    proto: onnx.NodeProto,
    body: Body,
    values: Sequence[str],
    limit: int | None,
    origin: str,
    opsets: Opsets,
    *,
    tries: bool = False,
) -> bool:
    """Write out the rounds of a Loop whose first one is made, up to `limit` if there is one.

    Returns:
        Whether it could be done: whether there is another round may depend on data; if it only `tries`, there may be
        too many.

    Raises:
        ModelError: there are too many.
    """
    carried, number, going = list(values), 0, True
    scanned: list[list[str]] = [[] for _ in body.graph.output[1 + len(values) :]]
    if limit is not None and tries and not state.budget.allows("rounds", limit):
        return False
    while going and (limit is None or number < limit):
        number += 1
        if tries and not state.budget.allows("rounds", number):
            return False
        state.budget.check("rounds", number, f"Loop {origin}")
        prefix = state.unique(origin)
        first = [state.constant(f"{prefix}/number", np.asarray(number - 1, np.int64))]
        first.append(state.constant(f"{prefix}/going", np.asarray(True)))
        before = len(state.problems)
        outputs = inline(state, body, [*first, *carried], prefix)
        if len(state.problems) > before:
            state.leave_out(proto.output)
            return True
        if outputs[0] not in state.constants:
            return False
        going = bool(single(state.constants[outputs[0]], "cond"))
        check_carried(state, carried, outputs[1 : 1 + len(values)])
        carried = outputs[1 : 1 + len(values)]
        for rows, value in zip(scanned, outputs[1 + len(values) :], strict=True):
            rows.append(value)
    for old, new in zip(carried, proto.output, strict=False):
        alias(state, old, new, opsets)
    for rows, new in zip(scanned, proto.output[len(values) :], strict=False):
        if new:
            stack(state, rows, new, 0, False, origin, opsets)
    return True


def stack(state: Importer, rows: list[str], output: str, axis: int, reverse: bool, origin: str, opsets: Opsets) -> None:
    """Concatenate values along a new axis."""
    axes = state.constant(f"{origin}/axis", np.asarray([axis], np.int64))
    parts = [node_of(state, {"": 21}, "Unsqueeze", [row, axes], origin) for row in (rows[::-1] if reverse else rows)]
    state.run(helper.make_node("Concat", parts, [output], name=origin, axis=axis), opsets)


def scan_written_out(
    state: Importer,
    body: Body,
    states: Sequence[str],
    scanned: Sequence[str],
    axes: Sequence[int],
    turned: Sequence[bool],
    rounds: int,
    origin: str,
    opsets: Opsets,
) -> tuple[list[str], list[list[str]]]:
    """Write the rounds of a Scan out; return the last states and what each round gave.

    Raises:
        ModelError: there are too many.
    """
    state.budget.check("rounds", rounds, f"Scan {origin}")
    carried = list(states)
    rows: list[list[str]] = [[] for _ in body.graph.output[len(states) :]]
    for number in range(rounds):
        prefix = state.unique(origin)
        parts = []
        for value, axis, back in zip(scanned, axes, turned, strict=True):
            index = state.constant(f"{prefix}/number", np.asarray(rounds - 1 - number if back else number, np.int64))
            parts.append(node_of(state, opsets, "Gather", [value, index], prefix, axis=axis))
        outputs = inline(state, body, [*carried, *parts], prefix)
        check_carried(state, carried, outputs[: len(states)])
        carried = outputs[: len(states)]
        for values, value in zip(rows, outputs[len(states) :], strict=True):
            values.append(value)
    return carried, rows


def check_carried(state: Importer, before: Sequence[str], after: Sequence[str]) -> None:
    """Check that a round gives back values of the types that it was given.

    Raises:
        Unsupported: one is of another type.
    """
    for index, names in enumerate(zip(before, after, strict=True)):
        if all(name in state.types for name in names):
            old, new = (state.types[name].dtype.label for name in names)
            if old != new:
                raise Unsupported(f"its carried value {index} is of type {old} before a round, and {new} after it")


_NEVER = 1 << 62  # rounds that are no limit: exporters write a while loop so


@dataclass(frozen=True, slots=True)
class Repetition:
    """A Loop or a Scan as it is asked for. A value that is not given, or not wanted, is "".

    body: its graph.
    trips, condition: the number of rounds; whether there is a first one.
    first: the first of each carried value.
    rows: what is read by rows, and whether the last one comes first.
    last: the outputs that are the last of each carried value.
    written: the outputs that are written by rows, and whether the first row comes last.
    names: under which a largest number of rounds may be stated.
    ends: whether the first output of the body says if there is another round, and it has the number of the round and
        a condition among its inputs.
    most: the number of rounds, where it is known besides.
    """

    body: Body
    trips: str
    condition: str
    first: Sequence[str]
    rows: Sequence[tuple[str, bool]]
    last: Sequence[str]
    written: Sequence[tuple[str, bool]]
    names: Sequence[str]
    ends: bool
    most: int | None = None


class NothingOfTheRun(Unsupported):
    """All that the rounds read is constant, so that what they give is too."""

    def __init__(self) -> None:
        super().__init__("what it gives is a constant")


class NeverEnds(Unsupported):
    """Nothing ends the rounds, so that they can't be written out either."""

    def __init__(self) -> None:
        super().__init__("it never ends")


def limit_of(state: Importer, asked: Repetition, going: str) -> int | None:
    """Return how many rounds there are at most, as far as that is known.

    Raises:
        Unsupported: a number or a condition is not a single one.
    """
    limits = [] if asked.most is None else [asked.most]
    if asked.trips in state.constants:
        limits.append(max(int(single(state.constants[asked.trips], "M")), 0))
    if asked.condition in state.constants and not single(state.constants[asked.condition], "cond"):
        limits.append(0)
    if going in state.constants and not single(state.constants[going], "cond"):
        limits.append(1)
    limits = [limit for limit in limits if limit < _NEVER]
    depends = any(value and value not in state.constants for value in (asked.trips, asked.condition, going))
    stated = stated_names(state, asked)
    if stated and depends:
        state.used_maxima.add(stated[0])
        limits.append(state.maxima[stated[0]])
    return min(limits, default=None)


def stated_names(state: Importer, asked: Repetition) -> list[str]:
    """Return the names under which a largest number of rounds is stated."""
    return [name for name in asked.names if name in state.maxima]


def unknown_of(asked: Repetition, trips: Sequence[str], condition: Sequence[str], going: str) -> tuple[str, str]:
    """Return what the number of rounds depends on: a value, and what the operator calls it."""
    return (asked.trips, "M") if trips else (asked.condition if condition else going, "cond")


SHORT = 64
"""Nodes of all rounds up to which a loop whose rounds are known is written out: its rounds may become constants."""


def is_short(body: Body, rounds: int) -> bool:
    """Whether rounds whose number is known are few, and their bodies small: they are written out.

    A body with loops in it is not: those, written out in each round, would multiply.
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


def import_rounds(
    state: Importer, asked: Repetition, origin: str, name_output: Callable[[str, str], None], *, constant: bool = False
) -> None:
    """Import a body as a graph, and append the node that computes it in rounds.

    Args:
        state: the import.
        asked: what is computed.
        origin: the name of the node.
        name_output: gives a value that is there already the name of an output.
        constant: whether the device computes what does not depend on the run.

    Raises:
        NothingOfTheRun: it is such, and `constant` is false.
        Unsupported: it can't be computed so, as values change their types from round to round.
    """
    values = [*asked.first, *(value for value, _ in asked.rows)]
    check_is_tensor(state, {value: f"its input {value!r}" for value in values})
    if any(value in state.bounds for value in values):
        raise Unsupported("the size of one of its inputs depends on data")
    body = _import_body(state, asked, state.unique(origin))
    if any(value not in state.types for value in body.made):
        return  # a problem is noted
    limit = limit_of(state, asked, body.going)
    if limit == 0:
        _no_round(state, asked, body.written, name_output)
        return
    if any(value in state.bounds for value in (*body.last, *body.written)):
        raise Unsupported("the size of what a round makes depends on data")
    made = _Made(state, asked, body, limit)
    made.carry(name_output)
    made.write_rows()
    if made.outputs:
        made.append(origin, constant=constant)


@dataclass(frozen=True, slots=True)
class _Body:
    """A body as it is imported: the names of its inputs, its nodes, its outputs.

    inner: the carried values; one that stays as it is has the name that it has outside.
    rows: a row of each value that is read by rows.
    round_number: the number of the round.
    going: whether there is another round; "": its number says so.
    """

    inner: Sequence[str]
    rows: Sequence[str]
    round_number: str
    nodes: Sequence[Node]
    made: Sequence[str]
    going: str
    last: Sequence[str]
    written: Sequence[str]


def _import_body(state: Importer, asked: Repetition, prefix: str) -> _Body:
    passed = _passed_on(asked)
    inner = [
        value
        if number in passed or not state.types[value].count
        else state.value(f"{prefix}/{value}", state.types[value], [value])
        for number, value in enumerate(asked.first)
    ]
    rows = [_row(state, prefix, value) for value, _ in asked.rows]
    round_number = state.value(f"{prefix}/round", TensorType(DType.INT64, ()), [asked.trips, asked.condition])
    leading = [round_number, state.constant(f"{prefix}/going", np.asarray(True))] if asked.ends else []
    with state.apart() as nodes, state.in_doubt():
        made = inline(state, asked.body, [*leading, *inner, *rows], prefix)
    check_is_tensor(state, {value: f"the output {value!r} of its body" for value in made if value in state.sequences})
    end = asked.ends + len(inner)
    going = made[0] if asked.ends else ""
    return _Body(inner, rows, round_number, nodes, made, going, made[asked.ends : end], made[end:])


class _Made:
    """The node of a loop, as it is put together: the inputs and outputs of it and of its graph."""

    def __init__(self, state: Importer, asked: Repetition, body: _Body, limit: int | None) -> None:
        self.state, self.asked, self.body, self.limit = state, asked, body, limit
        self.trips = self._of_the_run(asked.trips, DType.INT64)
        self.condition = self._of_the_run(asked.condition, DType.BOOL)
        self.going = self._of_the_run(body.going, DType.BOOL)
        self.is_counted = not (self.trips or self.condition or self.going)
        if limit is None and not self.trips and not self.going:
            raise NeverEnds
        self.outputs: list[str] = []
        self.carried: list[Carried] = []
        self.first: list[str] = []
        self.ins: list[str] = []
        self.outs: list[str] = []
        self.rows: list[str] = []
        self.reversed: list[bool] = []
        self.count = ""

    def _of_the_run(self, value: str, dtype: DType) -> list[str]:
        """Return what decides how many rounds there are, if only the run knows it."""
        if not value or value in self.state.constants:
            return []
        kind = self.state.types[value]
        if kind.count != 1 or kind.dtype is not dtype:
            raise Unsupported(f"what its rounds depend on, {value!r}, is {kind}; expected one element, {dtype.label}")
        return [value]

    def carry(self, name_output: Callable[[str, str], None]) -> None:
        """Carry values from round to round; what stays as it is needs no storage.

        Raises:
            Unsupported: one changes its type.
        """
        types, wanted = self.state.types, [*self.asked.last, *[""] * len(self.asked.first)]
        for before, inside, after, output in zip(
            self.asked.first, self.body.inner, self.body.last, wanted, strict=False
        ):
            if types[after] != types[before]:
                raise self._changes(f"what it carries on changes from {types[before]} to {types[after]}")
            if inside == before:
                if output:
                    name_output(before, output)
                continue
            known = self.state.constants.get(before)
            self.carried.append(Carried(known is None, known, bool(output)))
            self.first += [before] * (known is None)
            self.ins.append(inside)
            self.outs.append(after)
            if output:
                types[output] = types[before]
                self.outputs.append(output)

    def _changes(self, what: str) -> Unsupported:
        """Return why values that change can't be carried; rounds whose number is known could be written out."""
        if not (self.trips or self.condition):
            return Unsupported(what)
        value, role = unknown_of(self.asked, self.trips, self.condition, "")
        return ValueNeeded(value, role, text=f"{what}, so its input {role!r} has to be known when it is compiled")

    def write_rows(self) -> None:
        """Write a row of each output that has one for each round, and their number if only the run knows it.

        Raises:
            ValueNeeded: there may be any number.
        """
        state, asked = self.state, self.asked
        for value, (output, back) in zip(self.body.written, asked.written, strict=False):
            if not output or _is_empty(state, value, output, self.limit if self.is_counted else None):
                continue
            if not self.is_counted and not stated_names(state, asked):
                unknown = unknown_of(asked, self.trips, self.condition, self.body.going)
                raise ValueNeeded(*unknown, most_asked_for(asked.names))
            assert self.limit is not None
            kind = state.types[value]
            state.types[output] = check_size(TensorType(kind.dtype, (self.limit, *kind.shape)), "its output")
            if not self.is_counted:
                self.count = self.count or state.unique(f"{output}_count")
                state.bounds[output] = Bound(0, self.count)
            self.rows.append(value)
            self.reversed.append(back)
            self.outputs.append(output)
        if self.count:
            state.types[self.count] = TensorType(DType.INT32, ())
            self.outputs.append(self.count)

    def append(self, origin: str, *, constant: bool) -> None:
        """Append the node.

        Raises:
            NothingOfTheRun: it reads nothing that only the run knows, and `constant` is false.
        """
        state, body = self.state, self.body
        results = [*self.going, *self.rows, *self.outs]
        captured = free_values(state, body.nodes, results, [*body.rows, body.round_number, *self.ins])
        read = [
            (inside, value, back)
            for inside, (value, back) in zip(body.rows, self.asked.rows, strict=True)
            if inside not in state.constants
        ]
        inputs = [*self.trips, *self.condition, *self.first, *(value for _, value, _ in read), *captured]
        if not inputs and not constant:
            raise NothingOfTheRun
        inner = [*(inside for inside, _, _ in read), *captured, body.round_number, *self.ins]
        attrs = Rounds(
            bodies=(graph_of(state, f"{origin} (body)", inner, body.nodes, results),),
            has_trips=bool(self.trips),
            has_condition=bool(self.condition),
            most=self.limit,
            goes_on=bool(self.going),
            carried=tuple(self.carried),
            backwards=tuple(back for _, _, back in read),
            reversed=tuple(self.reversed),
            counts=bool(self.count),
        )
        state.append("Loop", origin, inputs, self.outputs, attrs)


def _row(state: Importer, prefix: str, value: str) -> str:
    """Return a new value of the type of a row of another."""
    kind = state.types[value]
    name = state.value(f"{prefix}/{value}", TensorType(kind.dtype, kind.shape[1:]), [value])
    without_elements(state, name)
    return name


def _passed_on(asked: Repetition) -> set[int]:
    """Return the carried values that the body gives back as it gets them."""
    graph = asked.body.graph
    copies = {
        node.output[0]: node.input[0]
        for node in graph.node
        if (domain_of(node.domain), node.op_type) == ("", "Identity") and node.input and node.output
    }
    found = set()
    for number in range(len(asked.first)):
        value, seen = graph.output[asked.ends + number].name, set[str]()
        while value in copies and value not in seen:
            seen.add(value)
            value = copies[value]
        if value == graph.input[2 * asked.ends + number].name:
            found.add(number)
    return found


def _no_round(
    state: Importer, asked: Repetition, written: Sequence[str], name_output: Callable[[str, str], None]
) -> None:
    """Give what is carried on as it is, and no rows."""
    for before, output in zip(asked.first, asked.last, strict=False):
        if output:
            name_output(before, output)
    for value, (output, _) in zip(written, asked.written, strict=False):
        if output:
            _is_empty(state, value, output, 0)


def _is_empty(state: Importer, row: str, output: str, rounds: int | None) -> bool:
    """Whether an output that is written by rows has no elements; then it is a constant."""
    kind = state.types[row]
    if kind.count and rounds != 0:
        return False
    if rounds is None:
        raise Unsupported("the number of its rows, which have no elements, depends on data")
    state.types[output] = check_size(TensorType(kind.dtype, (rounds, *kind.shape)), "its output")
    return without_elements(state, output)


def import_if(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    """Import an If.

    Raises:
        Unsupported: its branches do not give the same types.
    """
    condition = proto.input[0]
    branches = [body_named(bodies, name, 0, len(proto.output)) for name in ("then_branch", "else_branch")]
    if condition in state.constants:
        chosen = branches[0 if single(state.constants[condition], "cond") else 1]
        for old, new in zip(inline(state, chosen, (), state.unique(origin)), proto.output, strict=False):
            alias(state, old, new, opsets)
        return
    kind = state.types[condition]
    if kind.count != 1 or kind.dtype is not DType.BOOL:
        raise Unsupported(f"its condition is {kind}; expected one element, bool")
    before, sides = len(state.problems), []
    prefixes = [state.unique(origin) for _ in branches]
    for branch, prefix in zip(branches, prefixes, strict=True):
        with state.apart() as nodes, state.in_doubt():
            made = inline(state, branch, (), prefix)
        sides.append((nodes, made))
    if len(state.problems) > before:
        state.leave_out(proto.output)
        return
    _emit(state, proto, origin, sides)


def _emit(
    state: Importer, proto: onnx.NodeProto, origin: str, sides: Sequence[tuple[Sequence[Node], Sequence[str]]]
) -> None:
    outputs: list[str] = []
    results: tuple[list[str], list[str]] = ([], [])
    bounds: dict[str, tuple[Bound, Bound]] = {}
    given = zip(sides[0][1], sides[1][1], proto.output, strict=False)
    for yes, no, output in [one for each in given if each[2] for one in _elements(state, *each)]:
        check_is_tensor(state, {yes: f"its output {output!r}", no: f"its output {output!r}"})
        if state.types[yes] != state.types[no]:
            stated = "; state the same --max in both" if yes in state.bounds and no in state.bounds else ""
            raise Unsupported(f"its branches give {state.types[yes]} and {state.types[no]}{stated}")
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
        value for (nodes, _), made in zip(sides, results, strict=True) for value in free_values(state, nodes, made)
    )
    name = proto.name or outputs[0]
    bodies = [
        graph_of(state, f"{name} ({which})", [*shared], nodes, made)
        for which, (nodes, _), made in zip(Branches.names, sides, results, strict=True)
    ]
    attrs = Branches(bodies=tuple(bodies))
    state.append("If", origin, [proto.input[0], *shared], outputs, attrs)


def _elements(state: Importer, yes: str, no: str, output: str) -> list[tuple[str, str, str]]:
    """Return an output and what it is in each branch; if that is a sequence, the same of each element."""
    if yes not in state.sequences or no not in state.sequences:
        return [(yes, no, output)]
    pair = state.sequences[yes], state.sequences[no]
    if len(pair[0]) != len(pair[1]):
        raise Unsupported(f"its branches give sequences of {len(pair[0])} and {len(pair[1])} elements")
    state.budget.afford("nodes", len(pair[0]), f"If {output}")
    state.sequences[output] = [state.unique(f"{output}/{number}") for number in range(len(pair[0]))]
    return [*zip(*pair, state.sequences[output], strict=True)]


def _bounds_of(state: Importer, yes: str, no: str) -> tuple[Bound, Bound]:
    """Return how much of an output is there in each branch, where that depends on data in one of them at least."""
    axes = {state.bounds[value].axis for value in (yes, no) if value in state.bounds}
    if len(axes) > 1:
        raise Unsupported("along which dimension an output's size depends on data differs between its branches")
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
    """Return the value that has the number of an output's elements; each branch gives its own, if they differ."""
    if pair[0].count == pair[1].count:
        return pair[0].count
    counts = [bound.count for bound in pair]
    for name, yes, no in zip(outputs, *results, strict=True):
        if [yes, no] == counts:
            return name  # of another output, which has as many
    name = state.unique(f"{output}_count")
    state.types[name] = TensorType(DType.INT32, ())
    outputs.append(name)
    results[0].append(counts[0])
    results[1].append(counts[1])
    return name


def import_loop(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    """Import a Loop.

    Raises:
        Unsupported: its body does not fit to it, or how many rows it writes is neither known nor stated.
        ModelError: it can only be written out, and exceeds the budget.
    """
    trips, condition, *values = [*proto.input, "", ""][: max(len(proto.input), 2)]
    body = body_named(bodies, "body", 2 + len(values), 1 + max(len(values), len(proto.output)))
    if len(body.graph.output) < 1 + len(values):
        raise Unsupported(f"its body has {len(body.graph.output)} outputs, for {len(values)} values that it carries on")
    limit = max(int(single(state.constants[trips], "M")), 0) if trips in state.constants else None
    going = bool(single(state.constants[condition], "cond")) if condition in state.constants else not condition
    may_be_written_out = going and limit != 0 and (limit is not None or not trips)  # they are the same in each run
    written_out = partial(loop_written_out, state, proto, body, values, limit, origin, opsets)
    is_better = limit is not None and not state.keeps_rounds and is_short(body, limit)
    if may_be_written_out and is_better and written_out():
        return
    asked = Repetition(
        body, trips, condition, values, (), proto.output[: len(values)],
        [(output, False) for output in proto.output[len(values) :]],
        [name for name in (*proto.output, proto.name) if name], ends=True,
    )  # fmt: skip
    in_rounds = partial(import_rounds, state, asked, origin, lambda old, new: alias(state, old, new, opsets))
    try:
        with state.attempt():
            in_rounds()
    except NotThisWay as failed:
        constant = isinstance(failed.reason, NothingOfTheRun)
        may_be_written_out &= not isinstance(failed.reason, NeverEnds)
        if may_be_written_out and written_out(tries=constant):
            return
        if constant:
            in_rounds(constant=True)
        else:
            state.give_up(failed, proto.output)


_OWN_OPSETS = {"": 21}


@dataclass(frozen=True, slots=True)
class Scan:
    """A Scan as it is asked for.

    body: its graph.
    states, scanned: the first of each carried value; what is read by rows.
    axes, turned: along which dimension each of those is read, and whether from its end.
    out_axes, out_turned: the same of what is written by rows.
    outputs: the last of each carried value, what is written by rows; "": not wanted.
    """

    body: Body
    states: Sequence[str]
    scanned: Sequence[str]
    axes: Sequence[int]
    turned: Sequence[bool]
    out_axes: Sequence[int]
    out_turned: Sequence[bool]
    outputs: Sequence[str]


def import_scan(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    """Import a Scan.

    Raises:
        Unsupported: its body, axes and inputs do not fit together.
        ModelError: it can only be written out, and exceeds the budget.
    """
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute if attr.name != "body"}
    inputs, count, batch = list(proto.input), attrs["num_scan_inputs"], None
    if opsets.get("", 21) < 9:  # Scan 8: sequence lengths first, and a batch dimension
        if inputs[0]:
            raise Unsupported("sequence lengths of Scan 8 are not supported")
        batch, inputs = (state.types[inputs[1]].shape or (0,))[0], inputs[1:]
    if not 1 <= count <= len(inputs):
        raise Unsupported(f"it has {count} scan inputs among {len(inputs)} inputs")
    check_is_tensor(state, {value: f"its input {value!r}" for value in inputs})
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    body = body_named(bodies, "body", len(inputs), max(len(states), len(proto.output)))
    made = len(body.graph.output) - len(states)
    axes = attrs.get("scan_input_axes") or [0] * count
    turned = attrs.get("scan_input_directions") or attrs.get("directions") or [0] * count
    out_axes, out_turned = (attrs.get(key) or [0] * made for key in ("scan_output_axes", "scan_output_directions"))
    if not (len(axes) == len(turned) == count and len(out_axes) == len(out_turned) == made):
        raise Unsupported(f"its axes and directions are not those of {count} inputs and {made} outputs")
    outputs = [*proto.output, *[""] * (len(body.graph.output) - len(proto.output))]
    scan = Scan(
        body, states, scanned, axes, [bool(one) for one in turned], out_axes, [bool(one) for one in out_turned], outputs
    )
    if batch is None:
        _import_one(state, scan, origin, opsets)
    else:
        _import_batch(state, scan, batch, origin, opsets)


def _import_batch(state: Importer, scan: Scan, batch: int, origin: str, opsets: Opsets) -> None:
    """Import a Scan for each image of a batch."""
    if batch < 1:
        raise Unsupported("it has no batch")
    state.budget.check("rounds", batch, f"Scan {origin}")
    images: list[list[str]] = []
    for image in range(batch):
        index = state.constant(f"{origin}/image", np.asarray(image, np.int64))
        states, scanned = (
            [node_of(state, opsets, "Gather", [value, index], origin, axis=0) for value in values]
            for values in (scan.states, scan.scanned)
        )
        own = [state.unique(f"{output}/image") if output else "" for output in scan.outputs]
        _import_one(state, replace(scan, states=states, scanned=scanned, outputs=own), origin, opsets)
        images.append(own)
    for column, new in zip(zip(*images, strict=True), scan.outputs, strict=True):
        if new:
            stack(state, list(column), new, 0, False, origin, opsets)


def _import_one(state: Importer, scan: Scan, origin: str, opsets: Opsets) -> None:
    shapes = [state.types[value].shape for value in scan.scanned]
    if any(not -len(shape) <= axis < len(shape) for shape, axis in zip(shapes, scan.axes, strict=True)):
        raise Unsupported(f"its scan_input_axes are {list(scan.axes)} of {[list(shape) for shape in shapes]}")
    rounds = shapes[0][scan.axes[0]]
    if any(shape[axis] != rounds for shape, axis in zip(shapes, scan.axes, strict=True)):
        raise Unsupported(f"its inputs {[list(shape) for shape in shapes]} differ in length along {list(scan.axes)}")
    if not state.keeps_rounds and is_short(scan.body, rounds):
        _written_out(state, scan, rounds, origin, opsets)
        return
    try:
        with state.attempt():
            _in_rounds(state, scan, rounds, origin, opsets, constant=not state.budget.allows("rounds", rounds))
    except NotThisWay as failed:
        if not rounds:
            state.give_up(failed, scan.outputs)
            return
        _written_out(state, scan, rounds, origin, opsets)


def _written_out(state: Importer, scan: Scan, rounds: int, origin: str, opsets: Opsets) -> None:
    count = len(scan.states)
    carried, rows = scan_written_out(
        state, scan.body, scan.states, scan.scanned, scan.axes, scan.turned, rounds, origin, opsets
    )
    for old, new in zip(carried, scan.outputs[:count], strict=True):
        alias(state, old, new, opsets)
    for values, new, axis, back in zip(rows, scan.outputs[count:], scan.out_axes, scan.out_turned, strict=True):
        if new:
            rank = len(state.types[values[0]].shape) + 1
            stack(state, values, new, axis % rank, back, origin, opsets)


def _in_rounds(state: Importer, scan: Scan, rounds: int, origin: str, opsets: Opsets, *, constant: bool) -> None:
    """Let the run compute it, if it is not `constant`; what is read or written along another axis is transposed."""
    count = len(scan.states)
    rows = []
    for value, axis, back in zip(scan.scanned, scan.axes, scan.turned, strict=True):
        rank = len(state.types[value].shape)
        first = axis % rank
        if first:
            order = [first, *(one for one in range(rank) if one != first)]
            value = node_of(state, _OWN_OPSETS, "Transpose", [value], origin, perm=order)
        rows.append((value, back))
    written = [
        (state.unique(f"{output}/rows") if output and axis else output, back)
        for output, axis, back in zip(scan.outputs[count:], scan.out_axes, scan.out_turned, strict=True)
    ]
    asked = Repetition(scan.body, "", "", scan.states, rows, scan.outputs[:count], written, (), ends=False, most=rounds)
    import_rounds(state, asked, origin, lambda old, new: alias(state, old, new, opsets), constant=constant)
    for (value, _), output, axis in zip(written, scan.outputs[count:], scan.out_axes, strict=True):
        if output and axis and value in state.types:
            rank = len(state.types[value].shape)
            if not -rank <= axis < rank:
                raise Unsupported(f"its scan_output_axes has {axis} of {rank} dimensions")
            dim = axis % rank
            order = [*range(1, dim + 1), 0, *range(dim + 1, rank)]
            state.run(helper.make_node("Transpose", [value], [output], name=origin, perm=order), _OWN_OPSETS)


CONTROL: dict[str, Callable[[Importer, onnx.NodeProto, str, Opsets, Bodies], None]] = {
    "If": import_if,
    "Loop": import_loop,
    "Scan": import_scan,
}
"""What imports each."""
