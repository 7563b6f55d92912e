"""The compile half as one function: a model file in, C files and a manifest out."""

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mtool import allocator, frontend, passes
from mtool.boards import Board
from mtool.boards.protection import Unit, needed_unit
from mtool.codegen.functions import Stored
from mtool.codegen.generation import Emitted, emit
from mtool.codegen.growth import ModelConstants, constants_of
from mtool.codegen.place import Place
from mtool.errors import UsageError
from mtool.filetree import FileTree
from mtool.frontend.reading import file_hash
from mtool.ir import Graph
from mtool.ir.control import has_bodies
from mtool.ir.types import Array
from mtool.kernels.target import Target
from mtool.manifest import Claim, Manifest, Refusal
from mtool.option_values import Order, Partial
from mtool.passes.streamed_input import with_streamed_input
from mtool.plan import Choice, Plan, make_plan
from mtool.plan.board_pools import asked_pools, constant_pools, lent_pools, tensor_pools
from mtool.plan.flash import Offers, offers_of
from mtool.plan.in_memory import first_in_pools, first_that_fits
from mtool.plan.ram import SlowFlash, all_reads, constant_reads, in_ram, with_constants_in_ram
from mtool.plan.shared import Shared
from mtool.request import DEFAULTS, Request
from mtool.tuned.known import Known

if TYPE_CHECKING:
    from mtool.backends.chosen import Chosen
    from mtool.backends.interface import Context
    from mtool.backends.partition import Claim as Claimed
    from mtool.backends.partition import Division

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_LARGE_BYTES = 16 << 20  # of constants, from which on their memory is worth a search for cycles


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of the compile half: the model's files, and its manifest."""

    files: FileTree
    manifest: Manifest


def unit_for(board: Board, request: Request) -> Unit | None:
    """Return the memory protection that is to be the fence around a model; None: it is to have none.

    Raises:
        UsageError: it is to have one, and the board's core has no such unit.
    """
    return needed_unit(board.cpu) if request.protect else None


def target_of(board: Board) -> Target:
    """Return what the compile half knows of a board."""
    return Target(board.cpu, board.features)


def compile_model(path: Path, board: Board, request: Request = DEFAULTS) -> Compiled:
    """Compile an ONNX or TFLite model for a board, whose core and features choose the schedules.

    Raises:
        UsageError: the file is missing, what is given names nothing of the model, `partial` and the conventions do
            not go together, or a schedule that is asked for can't compute its node.
        ModelError: the model is malformed or can't be compiled; every reason is listed.
    """
    start = time.monotonic()
    notes = _Notes()
    # No name for the graph and the plan: a large model is not to be held once for each stage. The file is read, and
    # found to be one within the limits, before it is hashed.
    emitted = emit(
        _plan_for(_lowered(path, board, request, notes), board, request, model_hash := file_hash(path)),
        path.name, model_hash, request.conventions, notes.constants,
        Place(section=request.arena_section, unit=unit_for(board, request)),
    )  # fmt: skip
    _drop_cycles(emitted.functions.constants)
    emitted = replace(emitted, claims=notes.claims)
    compiled = Compiled(emitted.files(request.weights), emitted.manifest)
    seconds, plan = time.monotonic() - start, emitted.plan
    log.info("compile %.1f s, %d operators, arena %d B", seconds, len(plan.steps), plan.arena_bytes)
    return compiled


@dataclass(frozen=True, slots=True)
class Planned:
    """A model whose plan is made, and whose C is not yet written: a model of several may lie elsewhere in the arena."""

    path: Path
    request: Request
    plan: Plan
    model_hash: str
    constants: ModelConstants
    claims: tuple[Claim, ...]

    def emit(self, place: Place, stored: Stored) -> Emitted:
        """Write the C of its operators, as the model of a place among those of a firmware (mtool.codegen.emit)."""
        made = emit(
            self.plan, self.path.name, self.model_hash, self.request.conventions, self.constants, place, stored
        )  # fmt: skip
        return replace(made, claims=self.claims)


def planned(path: Path, board: Board, request: Request = DEFAULTS, *, is_alone: bool = True) -> Planned:
    """Read a model and make its plan for a board; `is_alone`: no other shares its arena, which may be split.

    Raises:
        MtoolError: as `compile_model`.
    """
    notes = _Notes()
    plan = _plan_for(
        _lowered(path, board, request, notes), board, request, model_hash := file_hash(path), is_alone=is_alone
    )
    return Planned(path, request, plan, model_hash, notes.constants, notes.claims)


@dataclass(slots=True)
class _Notes:
    """What is known of a model besides its graph: its constants as they were read, and who computes which operator."""

    constants: ModelConstants = field(default_factory=ModelConstants)
    claims: tuple[Claim, ...] = ()


def _lowered(path: Path, board: Board, request: Request, notes: _Notes) -> Graph:
    """Read a model and bring it to kernels, loops and calls of backends, and note what is known of it besides."""
    allocator.return_large_blocks()
    open_sizes = frontend.run_time_sizes(path, request)
    request.check_stream(open_sizes)
    if open_sizes:
        from mtool import run_time_sizes  # loaded for such a model alone

        _check_no_backends(request, open_sizes)
        whole, graph = run_time_sizes.lowered(path, target_of(board), request, open_sizes)
        notes.constants = constants_of(whole)
        return graph

    def read() -> Graph:  # a graph that nothing but the passes holds
        graph = _loaded(path, request)
        notes.constants = constants_of(graph)
        return _partitioned(graph, path, board, request, notes) if request.backends else graph

    graph = passes.run(read(), target_of(board))
    _drop_cycles(graph.constants)
    return graph


def _loaded(path: Path, request: Request) -> Graph:
    """Read a model; where an input is given by rows, its graph says so."""
    graph = frontend.load(path, request)
    return with_streamed_input(graph, request.stream) if request.is_streamed else graph


def _partitioned(graph: Graph, path: Path, board: Board, request: Request, notes: _Notes) -> Graph:
    """Give backends their regions."""
    from mtool.backends.partition import partition

    asked = _asked(graph, path, board, request)
    found = partition(*asked, falls_back=request.backend_fallback, cost_in_c=_cost_in_c(board))
    notes.claims = tuple(map(_told, found.claims))
    for backend in (one.backend.name for one in asked[2]):
        _tell_idle(backend, found.claims)
    return found.graph


def _tell_idle(backend: str, claims: Sequence["Claimed"]) -> None:
    """Warn of a backend that computes nothing, with the reason for the operator of the most multiply-accumulates."""
    refused = [(one.operation.macs, why) for one in claims for name, why in one.refusals if name == backend]
    if refused and not any(one.backend == backend for one in claims):
        _, why = max(refused, key=lambda pair: pair[0])
        log.warning("%s computes nothing of the model: %s; mtool check tells of each operator", backend, why)


def division(path: Path, board: Board, request: Request) -> tuple["Division", tuple[Claim, ...]]:
    """Return the regions that backends claim of a model, and who would compute what; nothing is compiled.

    Raises:
        UsageError: there is no such model, a backend or an option of it is wrong, or a size is known at run time only.
        ModelError: the model is malformed, or something in it can't be compiled.
    """
    from mtool.backends.partition import divide

    open_sizes = frontend.run_time_sizes(path, request)
    if open_sizes:
        _check_no_backends(request, open_sizes)
    found = divide(*_asked(frontend.load(path, request), path, board, request), cost_in_c=_cost_in_c(board))
    return found, tuple(map(_told, found.claims(region.name for _, region in found.regions)))


def _asked(graph: Graph, path: Path, board: Board, request: Request) -> tuple[Graph, Graph, "list[Chosen]", "Context"]:
    """Return what the partitioner is given; operators are recognised in a graph that rounds as ONNX does."""
    from mtool.backends.chosen import choose
    from mtool.backends.interface import BoardMemory, Context
    from mtool.backends.view import aligned

    chosen = choose(request.backends)
    view = graph
    if frontend.is_tflite(path):
        view = aligned(frontend.load(path, replace(request, rounding="onnx", whole=True)), graph)
    memories = {name: BoardMemory(one.size, one.holds) for name, one in board.memories.items()}
    context = Context(target_of(board), board.name, memories, request.rounding, request.tolerance)
    return view, graph, chosen, context


def _cost_in_c(board: Board) -> Callable[[Graph], float]:
    """Return what estimates the instructions of a graph that is compiled to C for a board."""
    target = target_of(board)
    return lambda body: make_plan(passes.run(body, target), target, partial="never").cost


def _told(one: "Claimed") -> Claim:
    return Claim(
        operator=one.operation.name,
        kind=one.operation.kind,
        backend=one.backend,
        region=one.region,
        refusals=tuple(Refusal(backend=name, reason=why) for name, why in one.refusals),
    )


def _check_no_backends(request: Request, open_sizes: Mapping[str, int]) -> None:
    if request.backends:
        raise UsageError(
            f"backends compute shapes that are known when they compile; {next(iter(open_sizes))} is a run-time size",
            hint=f"give it one size: --dim {next(iter(open_sizes))}=N",
        )


def _drop_cycles(constants: Mapping[str, Array]) -> None:
    """Free what only cycles of references hold, functions that call themselves and know a graph, if that is much."""
    if sum(data.nbytes for data in constants.values()) >= _LARGE_BYTES:
        allocator.drop_cycles()


def _plan_for(graph: Graph, board: Board, request: Request, model_hash: str, *, is_alone: bool = True) -> Plan:
    """Return the plan for a board, the first of `_attempts` whose arena its memory has room for, or its pools."""
    target = target_of(board)
    schedules = _schedules(graph, target, request, model_hash)
    partial: Partial = "never" if graph.sizes else _partial(request, model_hash)
    order, grown = _order(request, model_hash), _grown(offers_of(graph, target), board, request)
    plans = (
        make_plan(graph, target, request.io, rows, schedules, order, own) for rows, own in _attempts(partial, grown)
    )
    attempts = ((None, plan) for plan in plans)
    _, plan = _settled(graph.name, board, request, attempts, is_alone=is_alone)
    plan = with_constants_in_ram(plan, _in_ram(plan, board, request, schedules))
    return _with_offers(plan, board, request, schedules)


def _with_offers(plan: Plan, board: Board, request: Request, schedules: Mapping[str, Choice]) -> Plan:
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


def _in_ram(plan: Plan, board: Board, request: Request, schedules: Mapping[str, Choice]) -> frozenset[str]:
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


def _attempts(partial: Partial, grown: frozenset[str]) -> Iterator[tuple[Partial, frozenset[str]]]:
    """Yield how a model may be planned, less and less fast, for a board whose memory is too small for the arena.

    "auto" becomes "always"; then no operator has larger constants, as those need more working memory.
    """
    for own in dict.fromkeys((grown, frozenset[str]())):
        yield partial, own
        if partial == "auto":
            yield "always", own


def _settled(
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


def _grown(offers: Offers, board: Board, request: Request) -> frozenset[str]:
    """Return the operators that may have constants larger than their weights on a board."""
    memory = board.memory_for("weights")
    return offers.taken(request.optimize, None if memory is None else memory.size)


def _schedules(graph: Graph, target: Target, request: Request, model_hash: str) -> Mapping[str, Choice]:
    """Return the schedules that are asked for, and those that tuning has found for the other nodes."""
    if request.known == Known():  # then the schema of logs need not be loaded
        return request.schedules
    from mtool.tuned.choosing import choices

    return {**choices(request.known, graph, target, model_hash), **request.schedules}


def _partial(request: Request, model_hash: str) -> Partial:
    """Return how operators are computed in parts: as is asked for, else as tuning has found it best for the model."""
    asked = request.allowed_partial()
    return request.known.partial.get(model_hash, asked) if asked == "auto" else asked


def _order(request: Request, model_hash: str) -> Order:
    """Return the order of the operators: as is asked for, else as tuning has found it best for the model."""
    return request.known.order.get(model_hash, "auto") if request.order == "auto" else request.order


def plan_model(path: Path, board: Board, request: Request = DEFAULTS) -> tuple[Plan, frozenset[str]]:
    """Return the plan of a model for a board, and the nodes that a schedule can be asked for; no C is written.

    Raises:
        MtoolError: as `compile_model`.
    """
    from mtool.tuned.tasks import named_nodes

    graph = _lowered(path, board, request, _Notes())
    names = frozenset(node.name for node, _ in named_nodes(graph))
    return _plan_for(graph, board, request, file_hash(path)), names


def compile_for(path: Path, boards: Sequence[Board], request: Request = DEFAULTS) -> Iterator[tuple[Board, Emitted]]:
    """Compile a model for several boards, as `compile_model` does for each; what they share is done once.

    Yields:
        A board, and what the model's manifest and its files are made of.

    Raises:
        UsageError: as `compile_model`.
        ModelError: as `compile_model`.
    """
    open_sizes = frontend.run_time_sizes(path, request)
    request.check_stream(open_sizes)
    graph = None if open_sizes or request.backends else _loaded(path, request)
    model_hash, constants = file_hash(path), ModelConstants() if graph is None else constants_of(graph)
    asked: Partial = "never" if open_sizes else _partial(request, model_hash)
    plans: dict[Hashable, tuple[Plan, Mapping[str, Choice]]] = {}
    made: dict[Hashable, Emitted] = {}
    lowered_for: dict[Hashable, Graph] = {}
    integers: dict[Hashable, bool] = {}
    offers: dict[Hashable, Offers] = {}
    shared = Shared()

    def lower(board: Board, notes: _Notes) -> Graph:
        if graph is None:
            return _lowered(path, board, request, notes)
        target = target_of(board)
        found = lowered_for.get(passes.traits(target)) or passes.run(graph, target)
        if not has_bodies(found):  # which costs decide about
            lowered_for[passes.traits(target)] = found
        return found

    def alike(board: Board) -> Hashable:
        target = target_of(board)
        if request.known != Known():  # a measurement holds for its own core
            return target
        passed = passes.traits(target)
        if passed not in integers:
            integers[passed] = graph is not None and _has_integers_alone(lower(board, _Notes(constants)))
        return target.integer_traits if integers[passed] else target.traits

    def attempts_for(board: Board, notes: _Notes) -> Iterator[tuple[Hashable, Plan]]:
        target = target_of(board)
        of_target = alike(board), board.name if request.backends else ""
        lowered = None
        if of_target not in offers:
            lowered = lower(board, notes)
            offers[of_target] = offers_of(lowered, target)
        for partial, grown in _attempts(asked, _grown(offers[of_target], board, request)):
            key = of_target, partial, grown
            if key not in plans:
                lowered = lowered or lower(board, notes)
                schedules, order = _schedules(lowered, target, request, model_hash), _order(request, model_hash)
                plan = make_plan(lowered, target, request.io, partial, schedules, order, grown, shared)
                plans[key] = plan, schedules
            yield key, plans[key][0]

    def emitted(board: Board) -> Emitted:
        notes = _Notes(constants)
        key, plan = _settled(path.stem, board, request, attempts_for(board, notes))
        moved = _in_ram(plan, board, request, plans[key][1])
        about = key, moved, plan.pools, board.name if request.pools else ""
        if about not in made:
            plan = _with_offers(with_constants_in_ram(plan, moved), board, request, plans[key][1])
            place = Place(section=request.arena_section)
            written = emit(plan, path.name, model_hash, request.conventions, notes.constants, place)
            made[about] = replace(written, claims=notes.claims)
        return made[about]

    for board in boards:
        yield board, emitted(board)


def _has_integers_alone(graph: Graph) -> bool:
    """Return whether no operator of a graph reads or makes floating-point numbers, constants apart."""
    kinds = (kind for value, kind in graph.types.items() if value not in graph.constants)
    return not has_bodies(graph) and not any(kind.dtype.is_float for kind in kinds)
