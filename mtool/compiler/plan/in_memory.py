"""Which of the plans of a model a board has room for: in one memory, or in pools."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from mtool.base.errors import FitError
from mtool.base.escaping import short_name
from mtool.boards import Board
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import Pool
from mtool.compiler.plan.pools import Short, in_pools

_T = TypeVar("_T")

_SHOWN = 4  # storages in an error


def first_that_fits(board: Board, lent: Sequence[Pool], attempts: Iterator[tuple[_T, Plan]]) -> tuple[_T, Plan]:
    """Return the first plan whose arena the board's memory has room for, or the pools that it lends; or the last.

    Args:
        board: the board.
        lent: its pools, for an arena that is larger than that memory.
        attempts: the plans, each with what belongs to it, less and less fast.
    """
    seen = []
    for attempt in attempts:
        if not is_short(board, attempt[1].arena_bytes):
            return attempt
        seen.append(attempt)
    for about, plan in seen if lent else ():
        found = in_pools(plan, lent)
        if isinstance(found, Plan):
            return about, found
    return seen[-1]


def first_in_pools(model: str, pools: Sequence[Pool], attempts: Iterator[tuple[_T, Plan]]) -> tuple[_T, Plan]:
    """Return the first plan that lies in the pools that a user asks for.

    Args:
        model: the model's name.
        pools: with their bytes.
        attempts: as of `first_that_fits`.

    Raises:
        FitError: none does.
    """
    short: list[tuple[Plan, Short]] = []
    for about, plan in attempts:
        found = in_pools(plan, pools)
        if isinstance(found, Plan):
            return about, found
        short.append((plan, found))
    raise _error(model, pools, *min(short, key=lambda pair: sum(one.bytes for one in pair[1].left)))


def is_short(board: Board, arena_bytes: int) -> bool:
    """Return whether a board's memory is too small for an arena."""
    memory = board.memory_for("arena")
    return memory is not None and arena_bytes > memory.size


def _error(model: str, pools: Sequence[Pool], plan: Plan, short: Short) -> FitError:
    own = [pool for pool in pools if pool.use != "weights"]
    rows = [f"{pool.name} has {pool.bytes:,} B" for pool in own]
    left = sorted(short.left, key=lambda one: -one.bytes)
    rows += [f"no room for {_what(plan, one.values)}: {one.bytes:,} B" for one in left[:_SHOWN]]
    rows += [f"and {len(left) - _SHOWN} more"] * (len(left) > _SHOWN)
    rows.append(f"in one piece the arena is {plan.arena_bytes:,} B; {short.live_bytes:,} B are live at one time")
    room = max((pool.bytes for pool in own), default=0)
    if short.largest.bytes <= room:
        hint = "more bytes in one of them; --io external leaves inputs and outputs to the caller"
    elif short.largest.values[:1] and short.largest.values[0].startswith("scratch of "):
        hint = f"a pool of {short.largest.bytes:,} B, or a schedule with less scratch: --schedule NODE=SCHEDULE"
    else:
        hint = f"a tensor lies in one pool as a whole: one of {short.largest.bytes:,} B, or --io external"
    return FitError(f"the tensors of {model} do not fit its pools", details=rows, hint=hint)


def _what(plan: Plan, values: Sequence[str]) -> str:
    """Return what a storage holds: an input or output by its name, else the operator that writes it first."""
    graph = plan.graph
    for kind, names, roots in (
        ("the input", graph.inputs, graph.inputs),
        ("the output", graph.output_names, graph.caller_outputs),
    ):
        for name, value in zip(names, roots, strict=False):
            if value in values:
                return f"{kind} {short_name(name)}"
    first = values[0] if values else ""
    if first.startswith("scratch of "):
        return first
    writer = next((step.node.title for step in plan.steps if {*values} & {*step.node.outputs}), "")
    return f"the result of {writer}" if writer else f"rows of {short_name(first)}"
