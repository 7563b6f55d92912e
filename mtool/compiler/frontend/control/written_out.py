"""Loops and scans written out: their bodies one after another, so that the number of each round is a constant."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base.escaping import argument
from mtool.compiler.frontend.control.bodies import alias, inline
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Body, Opsets


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
