"""If: the branch that is known to be taken, or a node that computes one of two graphs."""

from collections.abc import Sequence

import numpy as np
import onnx

from mtool.compiler.frontend.control.bodies import (
    alias,
    body_named,
    check_is_tensor,
    free_values,
    graph_of,
    inline,
    without_elements,
)
from mtool.compiler.frontend.control.written_out import single
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Bodies, Opsets
from mtool.compiler.ir import DType, Node, TensorType
from mtool.compiler.ir.control import Branches
from mtool.compiler.operators.bounds import Bound


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
        for which, (nodes, _), made in zip(("then", "else"), sides, results, strict=True)
    ]
    attrs = Branches(then_body=bodies[0], else_body=bodies[1])
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
