"""One function for operators whose C differs only in numbers: each operator has a table of them (`--optimize size`)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mtool.compiler.ir.control import Control
from mtool.compiler.ir.parametric import DifferError
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.parametric_c import numbers_apart, skeleton_of, token_count, unrolled
from mtool.compiler.kernels.schedule import Argument, Kernel, defined_by
from mtool.compiler.plan import Plan

NUMBERS = "numbers"
"""The argument with the operator's own numbers."""
SMALL_SHARE = 0.02
"""The share of the inference below which loops are not unrolled."""
UNROLL = 4
"""Turns that are written out of the other loops."""
_BYTES_A_TOKEN = 1.6  # of code
_CALL = 8  # bytes of a call with another argument
_READ = 6  # bytes to read a number

# Inlined functions of the runtime whose arguments may be known only at run time. Others are inlined for constants, and
# some write these into instructions.
_AT_RUN_TIME = frozenset(
    {
        "mt_dsp_widen1",
        "mt_dsp_widen2",
        "mt_dsp_widen3",
        "mt_dsp_widen1_2x2",
        "mt_dsp_fill1",
        "mt_dsp_fill1_2x2",
        "mt_dsp_sum",
        "mt_dsp_sums",
        "mt_factor",
    }
)


@dataclass(slots=True)
class _Alike:
    """Kernels that differ at most in numbers, by the likenesses of their steps; their calls and their cost."""

    kernels: dict[Hashable, Kernel] = field(default_factory=dict)
    calls: int = 0
    cost: float = 0.0


def common_kernels(plan: Plan) -> dict[Hashable, Kernel]:
    """Return the kernels of a plan's steps, by their likenesses: those that differ only in numbers have one body."""
    graph, known, groups = plan.graph, dict[Hashable, _Alike](), dict[Hashable, _Alike]()
    for step in plan.steps:
        if isinstance(step.node.attrs, Control | External):
            continue
        likeness = graph.likeness(step.node)
        if likeness not in known:
            one = step.schedule.emit(step.node, graph, plan.target)
            key = one.arguments, skeleton_of(one.body), one.level, one.is_hot, one.inner, one.can_fail
            known[likeness] = groups.setdefault(key, _Alike())
            known[likeness].kernels[likeness] = one
        known[likeness].calls += 1
        known[likeness].cost += step.schedule.cost(step.node, graph, plan.target)
    kernels: dict[Hashable, Kernel] = {}
    total = sum(alike.cost for alike in groups.values())
    for alike in groups.values():
        unroll = UNROLL if alike.cost >= SMALL_SHARE * total else 0
        alike.kernels = {key: replace(one, body=unrolled(one.body, unroll)) for key, one in alike.kernels.items()}
        kernels |= alike.kernels | _joined(alike)
    return kernels


def _joined(alike: _Alike) -> dict[Hashable, Kernel]:
    """Return kernels with a common body and a table of numbers each; none if that would not make the code smaller."""
    kernels = list(alike.kernels.values())
    bodies = [kernel.body for kernel in kernels]
    count = len(set(bodies))
    if count == 1:
        return {}
    names = {defined_by(line) for kernel in kernels for line in kernel.shared}
    try:
        body, columns = numbers_apart(bodies, NUMBERS, frozenset(names) | _AT_RUN_TIME)
    except DifferError:
        return {}
    code = _BYTES_A_TOKEN * token_count(bodies[0])
    if (count - 1) * code <= (_READ + 2 * count) * len(columns) + _CALL * alike.calls:
        return {}
    first = kernels[0]
    own = replace(
        first,
        arguments=(
            *first.arguments,
            Argument(NUMBERS, "int16_t" if _are_short(columns) else "int32_t", ("constant", NUMBERS)),
        ),
        body=body,
        needs_math=any(kernel.needs_math for kernel in kernels),
        headers=tuple(dict.fromkeys(name for kernel in kernels for name in kernel.headers)),
        shared=tuple(dict.fromkeys(line for kernel in kernels for line in kernel.shared)),
    )
    found = {}
    for number, (likeness, kernel) in enumerate(alike.kernels.items()):
        table = np.array([column[number] for column in columns], np.int16 if _are_short(columns) else np.int32)
        found[likeness] = replace(
            own,
            in_ram=kernel.in_ram,
            constants={**kernel.constants, NUMBERS: table},
            layouts={**kernel.layouts, NUMBERS: "the numbers of the function for this operator"},
        )
    return found


def _are_short(columns: Sequence[Sequence[int]]) -> bool:
    return all(-(1 << 15) <= number < 1 << 15 for column in columns for number in column)
