"""Rounds: a body of a Loop or a Scan as a graph that the run computes again and again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mtool.frontend.bounds import Bound
from mtool.frontend.control.bodies import check_is_tensor, free_values, graph_of, inline, without_elements
from mtool.frontend.control.written_out import most_asked_for, single
from mtool.frontend.importer import Importer
from mtool.frontend.inference import check_size
from mtool.frontend.problems import Unsupported, ValueNeeded
from mtool.frontend.scope import Body
from mtool.ir import DType, TensorType
from mtool.ir.control import Carried, Rounds

SHORT = 64
"""Nodes of all rounds up to which a loop whose rounds are known is written out: its rounds may become constants."""

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
    prefix = state.unique(origin)
    values = [*asked.first, *(value for value, _ in asked.rows)]
    check_is_tensor(state, {value: f"its input {value!r}" for value in values})
    if any(value in state.bounds for value in values):
        raise Unsupported("the size of one of its inputs depends on data")
    passed = _passed_on(asked)
    inner = [
        value
        if number in passed or not state.types[value].count
        else state.value(f"{prefix}/{value}", state.types[value], [value])
        for number, value in enumerate(asked.first)
    ]
    rows = [_row(state, prefix, value) for value, _ in asked.rows]
    place = state.value(f"{prefix}/round", TensorType(DType.INT64, ()), [asked.trips, asked.condition])
    leading = [place, state.constant(f"{prefix}/going", np.asarray(True))] if asked.ends else []
    with state.apart() as nodes, state.in_doubt():
        made = inline(state, asked.body, [*leading, *inner, *rows], prefix)
    check_is_tensor(state, {value: f"the output {value!r} of its body" for value in made if value in state.sequences})
    if any(value not in state.types for value in made):
        return  # a problem is noted
    going = made[0] if asked.ends else ""
    last = made[asked.ends : asked.ends + len(inner)]
    written = made[asked.ends + len(inner) :]
    limit = _limit(state, asked, going)
    if limit == 0:
        _no_round(state, asked, written, name_output)
        return
    if any(value in state.bounds for value in (*last, *written)):
        raise Unsupported("the size of what a round makes depends on data")
    for value, before in zip(last, asked.first, strict=True):
        if state.types[value] != state.types[before]:
            raise Unsupported(f"what it carries on changes from {state.types[before]} to {state.types[value]}")

    carried, first, ins, outs, outputs = [], [], [], [], []
    for number, (before, inside, after) in enumerate(zip(asked.first, inner, last, strict=True)):
        output = asked.last[number] if number < len(asked.last) else ""
        if inside == before:  # it stays as it is
            if output:
                name_output(before, output)
            continue
        known = state.constants.get(before)
        carried.append(Carried(known is None, known, bool(output)))
        first += [before] * (known is None)
        ins.append(inside)
        outs.append(after)
        if output:
            state.types[output] = state.types[before]
            outputs.append(output)
    trips = [asked.trips] if asked.trips and asked.trips not in state.constants else []
    condition = [asked.condition] if asked.condition and asked.condition not in state.constants else []
    goes_on = bool(going) and going not in state.constants
    for value in (*trips, *condition, *([going] if goes_on else [])):
        if state.types[value].count != 1:
            raise Unsupported(f"what its rounds depend on, {value!r}, is no single value")
    is_counted = not trips and not condition and not goes_on
    if limit is None and not trips and not goes_on:
        raise Unsupported("it never ends")
    body_rows, turned, count = [], [], ""
    wanted = [
        (value, output, back)
        for value, (output, back) in zip(written, asked.written, strict=False)
        if output and not _is_empty(state, value, output, limit if is_counted else None)
    ]
    for value, output, back in wanted:
        if not is_counted and not _stated(state, asked):
            raise ValueNeeded(*_unknown(asked, trips, condition, going), most_asked_for(asked.names))
        assert limit is not None
        kind = state.types[value]
        state.types[output] = check_size(TensorType(kind.dtype, (limit, *kind.shape)), "its output")
        if not is_counted:
            count = count or state.unique(f"{output}_count")
            state.bounds[output] = Bound(0, count)
        body_rows.append(value)
        turned.append(back)
        outputs.append(output)
    if count:
        state.types[count] = TensorType(DType.INT32, ())
        outputs.append(count)
    if not outputs:
        return
    results = [*([going] if goes_on else []), *body_rows, *outs]
    captured = free_values(state, nodes, results, [*rows, place, *ins])
    given = {inside: value for inside, (value, _) in zip(rows, asked.rows, strict=True)}
    read = [(inside, back) for inside, (_, back) in zip(rows, asked.rows, strict=True) if inside not in state.constants]
    body = graph_of(state, f"{origin} (body)", [*(value for value, _ in read), *captured, place, *ins], nodes, results)
    attrs = Rounds(
        body=body,
        has_trips=bool(trips),
        has_condition=bool(condition),
        most=limit,
        goes_on=goes_on,
        carried=tuple(carried),
        backwards=tuple(back for _, back in read),
        reversed=tuple(turned),
        counts=bool(count),
    )
    inputs = [*trips, *condition, *first, *(given[value] for value, _ in read), *captured]
    if not inputs and not constant:
        raise NothingOfTheRun
    state.append("Loop", origin, inputs, outputs, attrs)


def _row(state: Importer, prefix: str, value: str) -> str:
    """Return a new value of the type of a row of another."""
    kind = state.types[value]
    name = state.value(f"{prefix}/{value}", TensorType(kind.dtype, kind.shape[1:]), [value])
    without_elements(state, name)
    return name


def _passed_on(asked: Repetition) -> set[int]:
    """Return the carried values that the body gives back as it gets them."""
    graph = asked.body.graph
    copies = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity" and node.output}
    found = set()
    for number in range(len(asked.first)):
        value, seen = graph.output[asked.ends + number].name, set[str]()
        while value in copies and value not in seen:
            seen.add(value)
            value = copies[value]
        if value == graph.input[2 * asked.ends + number].name:
            found.add(number)
    return found


def _limit(state: Importer, asked: Repetition, going: str) -> int | None:
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
    stated = _stated(state, asked)
    if stated and depends:
        state.used_maxima.add(stated[0])
        limits.append(state.maxima[stated[0]])
    return min(limits, default=None)


def _stated(state: Importer, asked: Repetition) -> list[str]:
    """Return the names under which a largest number of rounds is stated."""
    return [name for name in asked.names if name in state.maxima]


def _unknown(asked: Repetition, trips: Sequence[str], condition: Sequence[str], going: str) -> tuple[str, str]:
    """Return what the number of rounds depends on: a value, and what the operator calls it."""
    return (asked.trips, "M") if trips else (asked.condition if condition else going, "cond")


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
