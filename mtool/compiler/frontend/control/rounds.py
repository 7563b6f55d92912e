"""Rounds: a body of a Loop or a Scan as a graph that the run computes again and again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mtool.compiler.frontend.control.bodies import check_is_tensor, free_values, graph_of, inline, without_elements
from mtool.compiler.frontend.control.repetition import (
    NeverEnds,
    NothingOfTheRun,
    Repetition,
    limit_of,
    stated_names,
    unknown_of,
)
from mtool.compiler.frontend.control.written_out import most_asked_for
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.inference import check_size
from mtool.compiler.frontend.problems import Unsupported, ValueNeeded
from mtool.compiler.frontend.scope import Body, domain_of
from mtool.compiler.ir import DType, Node, TensorType
from mtool.compiler.ir.control import Carried, Rounds
from mtool.compiler.operators.bounds import Bound

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
            body=graph_of(state, f"{origin} (body)", inner, body.nodes, results),
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
