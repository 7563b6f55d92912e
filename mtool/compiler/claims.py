"""Ask backends which operators of a model they compute, and give them their regions."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.compiler import frontend, passes
from mtool.compiler.ir import Graph
from mtool.compiler.plan import make_plan
from mtool.compiler.planning import target_of
from mtool.compiler.request import Request
from mtool.manifest import Claim, Refusal

if TYPE_CHECKING:
    from mtool.compiler.backends.chosen import Chosen
    from mtool.compiler.backends.interface import Context
    from mtool.compiler.backends.partition import Claim as Claimed
    from mtool.compiler.backends.partition import Division

_REASONS = 5  # that an error has, of the operators with the most multiply-accumulates

log = logging.getLogger(__name__)


def partitioned(graph: Graph, path: Path, board: Board, request: Request) -> tuple[Graph, tuple[Claim, ...]]:
    """Give backends their regions; return the graph with these, and who computes which operator."""
    from mtool.compiler.backends.partition import partition

    asked = _asked(graph, path, board, request)
    found = partition(*asked, falls_back=request.backend_fallback, cost_in_c=_cost_in_c(board))
    _refuse_idle(asked[2], found.claims, request)
    return found.graph, tuple(map(_told, found.claims))


def division(path: Path, board: Board, request: Request) -> tuple["Division", tuple[Claim, ...]]:
    """Return the regions that backends claim of a model, and who would compute what; nothing is compiled.

    Raises:
        UsageError: there is no such model, a backend or an option of it is wrong or it computes nothing, or a size is
            known at run time only.
        ModelError: the model is malformed, or something in it can't be compiled.
    """
    from mtool.compiler.backends.partition import divide

    open_sizes = frontend.run_time_sizes(path, request)
    if open_sizes:
        check_no_backends(request, open_sizes)
    asked = _asked(frontend.load(path, request), path, board, request)
    found = divide(*asked, cost_in_c=_cost_in_c(board))
    claims = found.claims(region.name for _, region in found.regions)
    _refuse_idle(asked[2], claims, request)
    return found, tuple(map(_told, claims))


def _asked(graph: Graph, path: Path, board: Board, request: Request) -> tuple[Graph, Graph, "list[Chosen]", "Context"]:
    """Return what the partitioner is given; operators are recognised in a graph that rounds as ONNX does."""
    from mtool.compiler.backends.chosen import choose
    from mtool.compiler.backends.interface import BoardMemory, Context
    from mtool.compiler.backends.partition import aligned

    chosen = choose(request.backends)
    view = graph
    if frontend.is_tflite(path):
        view = aligned(frontend.load(path, replace(request, rounding="onnx", whole=True)), graph)
    memories = {name: BoardMemory(one.size, one.holds) for name, one in board.memories.items()}
    context = Context(target_of(board), board.name, memories, request.rounding, request.tolerance)
    return view, graph, chosen, context


def check_no_backends(request: Request, open_sizes: Mapping[str, int]) -> None:
    """Raise a UsageError if backends are asked for and a size is known at run time only."""
    if request.backends:
        raise UsageError(
            f"backends compute shapes that are known when they compile; {next(iter(open_sizes))} is a run-time size",
            hint=f"give it one size: --dim {next(iter(open_sizes))}=N",
        )


def _cost_in_c(board: Board) -> Callable[[Graph], float]:
    """Return what estimates the instructions of a graph that is compiled to C for a board."""
    target = target_of(board)
    return lambda body: make_plan(passes.run(body, target), target, partial="never").cost


def _refuse_idle(chosen: "Sequence[Chosen]", claims: "Sequence[Claimed]", request: Request) -> None:
    """Refuse a backend that computes nothing, unless it is optional or its regions fall back to C; tell the reasons.

    Raises:
        UsageError: it computes nothing of the model.
    """
    for one, spec in zip(chosen, request.backends, strict=True):
        name = one.backend.name
        failed = any(not claim.backend and name not in dict(claim.refusals) for claim in claims)
        if any(claim.backend == name for claim in claims) or (request.backend_fallback and failed):
            continue
        reasons: Counter[str] = Counter()
        for claim in claims:
            reasons.update({dict(claim.refusals).get(name, ""): claim.operation.macs or 1})
        told = [why for why, _ in reasons.most_common() if why]
        what = f"the backend {name} computes nothing of the model"
        if not spec.optional:
            raise UsageError(
                what,
                details=told[:_REASONS],
                hint=f"leave it out, or give --backend {spec.where}:optional, with which mtool check tells of each "
                "operator",
            )
        log.warning("%s%s; mtool check tells of each operator", what, "".join(f": {why}" for why in told[:1]))


def _told(one: "Claimed") -> Claim:
    return Claim(
        operator=one.operation.name,
        kind=one.operation.kind,
        backend=one.backend,
        region=one.region,
        refusals=tuple(Refusal(backend=name, reason=why) for name, why in one.refusals),
    )
