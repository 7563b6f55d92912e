"""Plan a model as a request asks and a board has room: from its graph of kernels to the plan that is taken."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from mtool.base.errors import UsageError
from mtool.base.option_values import Order, Partial
from mtool.boards import Board
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice, Plan, make_plan
from mtool.compiler.plan.pools.arena import first_in_pools, first_that_fits
from mtool.compiler.plan.pools.board import asked_pools, constant_pools, lent_pools, tensor_pools
from mtool.compiler.plan.pools.for_time import (
    Offers,
    SlowFlash,
    all_reads,
    constant_reads,
    in_ram,
    offers_of,
    with_constants_in_ram,
)
from mtool.compiler.request import Request
from mtool.compiler.tuned.known import Known

_T = TypeVar("_T")


def target_of(board: Board) -> Target:
    """Return what the compile half knows of a board."""
    return Target(board.cpu, board.features)


def plan_for(graph: Graph, board: Board, request: Request, model_hash: str, *, is_alone: bool = True) -> Plan:
    """Return the plan for a board, the first of `attempts_at` whose arena its memory has room for, or its pools."""
    target = target_of(board)
    schedules = schedules_of(graph, target, request, model_hash)
    partial: Partial = "never" if graph.sizes else partial_of(request, model_hash)
    order, grown = order_of(request, model_hash), grown_of(offers_of(graph, target), board, request)
    plans = (
        make_plan(graph, target, request.io, rows, schedules, order, own) for rows, own in attempts_at(partial, grown)
    )
    attempts = ((None, plan) for plan in plans)
    _, plan = settled(graph.name, board, request, attempts, is_alone=is_alone)
    plan = with_constants_in_ram(plan, constants_in_ram(plan, board, request, schedules))
    return with_offers(plan, board, request, schedules)


def with_offers(plan: Plan, board: Board, request: Request, schedules: Mapping[str, Choice]) -> Plan:
    """Return a plan that says which constants may have copies in the pools that a user asks for, or lie in them.

    Raises:
        UsageError: they are to lie in several memories, and the core reads constants from one alone.
    """
    flash, own = (_slow_flash(board), constant_pools(board, request.pools)) if request.pools else (None, ())
    chosen = request.conventions
    if own and plan.target.flash_is_apart:
        raise UsageError(f"the constants of {plan.graph.name} can't lie in {own[0].name}: {board.cpu} has one flash")
    if own:
        plan = replace(plan, constant_pools=own, reads=all_reads(plan))
    if chosen.context or chosen.has_functions or request.optimize == "size":
        return plan
    if own:
        return replace(plan, offers=tuple(one for one in plan.reads if one.operator not in schedules))
    return plan if flash is None else replace(plan, offers=constant_reads(plan, flash, schedules))


def constants_in_ram(plan: Plan, board: Board, request: Request, schedules: Mapping[str, Choice]) -> frozenset[str]:
    """Return the operators whose constants lie in RAM, since the board's flash lets its core wait."""
    flash = None if request.pools else _slow_flash(board)
    return frozenset() if flash is None else in_ram(plan, flash, request.optimize, schedules)


def _slow_flash(board: Board) -> SlowFlash | None:
    """Return what a board says of a memory of constants that lets the core wait; None: there is none."""
    memory, ram = board.memory_for("weights"), board.memory_for("data")
    if memory is None or memory.reads is None or ram is None or "data" in memory.holds:
        return None
    reads, cache = memory.reads, memory.reads.data or memory.reads.code
    taken = max((of_template.data for of_template in board.takes.values()), default=0)
    return SlowFlash(
        reads.waits(board.clock_hz), reads.width, cache.lines * reads.line, ram.size, "arena" in ram.holds, taken
    )


def attempts_at(partial: Partial, grown: frozenset[str]) -> Iterator[tuple[Partial, frozenset[str]]]:
    """Yield how a model may be planned, less and less fast, for a board whose memory is too small for the arena.

    "auto" becomes "always"; then no operator has larger constants, as those need more working memory.
    """
    for own in dict.fromkeys((grown, frozenset[str]())):
        yield partial, own
        if partial == "auto":
            yield "always", own


def settled(
    model: str, board: Board, request: Request, attempts: Iterator[tuple[_T, Plan]], *, is_alone: bool = True
) -> tuple[_T, Plan]:
    """Return the plan that is taken: in the pools that are asked for, or the first that a board has room for.

    Raises:
        UsageError: a pool is none of the board's.
        FitError: the pools have no room.
    """
    request.check_pools(asked_pools(board, request.pools))
    own = tensor_pools(board, request.pools)
    if own:
        return first_in_pools(model, own, attempts)
    return first_that_fits(board, lent_pools(board) if is_alone and request.may_be_split else (), attempts)


def grown_of(offers: Offers, board: Board, request: Request) -> frozenset[str]:
    """Return the operators that may have constants larger than their weights on a board."""
    memory = board.memory_for("weights")
    return offers.taken(request.optimize, None if memory is None else memory.size)


def schedules_of(graph: Graph, target: Target, request: Request, model_hash: str) -> Mapping[str, Choice]:
    """Return the schedules that are asked for, and those that tuning has found for the other nodes."""
    if request.known == Known():  # then the schema of logs need not be loaded
        return request.schedules
    from mtool.compiler.tuned.tasks import choices

    return {**choices(request.known, graph, target, model_hash), **request.schedules}


def partial_of(request: Request, model_hash: str) -> Partial:
    """Return how operators are computed in parts: as is asked for, else as tuning has found it best for the model."""
    asked = request.allowed_partial()
    return request.known.partial.get(model_hash, asked) if asked == "auto" else asked


def order_of(request: Request, model_hash: str) -> Order:
    """Return the order of the operators: as is asked for, else as tuning has found it best for the model."""
    return request.known.order.get(model_hash, "auto") if request.order == "auto" else request.order
