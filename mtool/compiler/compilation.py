"""The compile half as one function: a model file in, C files and a manifest out."""

import logging
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mtool.base import allocator
from mtool.base.filetree import FileTree
from mtool.base.option_values import Partial
from mtool.boards import Board
from mtool.boards.protection import Unit, needed_unit
from mtool.compiler import frontend, passes
from mtool.compiler.claims import check_no_backends, partitioned
from mtool.compiler.codegen.functions import Stored
from mtool.compiler.codegen.generation import Emitted, emit
from mtool.compiler.codegen.protect import Place
from mtool.compiler.codegen.weights import ModelConstants, constants_of
from mtool.compiler.frontend.reading import file_hash
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import has_bodies
from mtool.compiler.ir.types import Array
from mtool.compiler.passes.streamed_input import with_streamed_input
from mtool.compiler.plan import Choice, Plan, make_plan
from mtool.compiler.plan.partial import Shared
from mtool.compiler.plan.pools.for_time import Offers, offers_of, with_constants_in_ram
from mtool.compiler.planning import (
    attempts_at,
    constants_in_ram,
    grown_of,
    order_of,
    partial_of,
    plan_for,
    schedules_of,
    settled,
    target_of,
    with_offers,
)
from mtool.compiler.request import DEFAULTS, Request
from mtool.compiler.tuned.known import Known
from mtool.manifest import Claim, Manifest

log = logging.getLogger(__name__)

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
        plan_for(_lowered(path, board, request, notes), board, request, model_hash := file_hash(path)),
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
        """Write the C of its operators, as one of the models of a firmware."""
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
    plan = plan_for(
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
        from mtool.compiler import run_time_sizes  # loaded for such a model alone

        check_no_backends(request, open_sizes)
        whole, graph = run_time_sizes.lowered(path, target_of(board), request, open_sizes)
        notes.constants = constants_of(whole)
        return graph

    def read() -> Graph:  # a graph that nothing but the passes holds
        graph = _loaded(path, request)
        notes.constants = constants_of(graph)
        if request.backends:
            graph, notes.claims = partitioned(graph, path, board, request)
        return graph

    graph = passes.run(read(), target_of(board))
    _drop_cycles(graph.constants)
    return graph


def _loaded(path: Path, request: Request) -> Graph:
    """Read a model; where an input is given by rows, its graph says so."""
    graph = frontend.load(path, request)
    return with_streamed_input(graph, request.stream) if request.is_streamed else graph


def _drop_cycles(constants: Mapping[str, Array]) -> None:
    """Free what only cycles of references hold, functions that call themselves and know a graph, if that is much."""
    if sum(data.nbytes for data in constants.values()) >= _LARGE_BYTES:
        allocator.drop_cycles()


def plan_model(path: Path, board: Board, request: Request = DEFAULTS) -> tuple[Plan, frozenset[str]]:
    """Return the plan of a model for a board, and the nodes that a schedule can be asked for; no C is written.

    Raises:
        MtoolError: as `compile_model`.
    """
    from mtool.compiler.tuned.tasks import named_nodes

    graph = _lowered(path, board, request, _Notes())
    names = frozenset(node.name for node, _ in named_nodes(graph))
    return plan_for(graph, board, request, file_hash(path)), names


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
    asked: Partial = "never" if open_sizes else partial_of(request, model_hash)
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
        for partial, grown in attempts_at(asked, grown_of(offers[of_target], board, request)):
            key = of_target, partial, grown
            if key not in plans:
                lowered = lowered or lower(board, notes)
                schedules, order = schedules_of(lowered, target, request, model_hash), order_of(request, model_hash)
                plan = make_plan(lowered, target, request.io, partial, schedules, order, grown, shared)
                plans[key] = plan, schedules
            yield key, plans[key][0]

    def emitted(board: Board) -> Emitted:
        notes = _Notes(constants)
        key, plan = settled(path.stem, board, request, attempts_for(board, notes))
        moved = constants_in_ram(plan, board, request, plans[key][1])
        about = key, moved, plan.pools, board.name if request.pools else ""
        if about not in made:
            plan = with_offers(with_constants_in_ram(plan, moved), board, request, plans[key][1])
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
