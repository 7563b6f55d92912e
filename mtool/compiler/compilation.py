"""The compile half as one function: a model file in, C files and a manifest out."""

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
from mtool.compiler.request import USUAL, Compilation, Request
from mtool.manifest import Claim, Refusal

if TYPE_CHECKING:
    from mtool.compiler.backends.chosen import Chosen
    from mtool.compiler.backends.interface import Context
    from mtool.compiler.backends.partition import Claim as Claimed
    from mtool.compiler.backends.partition import Division
import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from mtool.base import allocator
from mtool.base.errors import ModelError
from mtool.base.filetree import FileTree
from mtool.base.identifiers import firmware_name
from mtool.base.option_values import Arenas, Partial
from mtool.boards.protection import Unit, needed_unit
from mtool.compiler.codegen.firmware import firmware_files
from mtool.compiler.codegen.functions import Stored
from mtool.compiler.codegen.generation import Emitted, emit
from mtool.compiler.codegen.protect import Place
from mtool.compiler.codegen.weights import ModelConstants, constants_of
from mtool.compiler.frontend.reading import file_hash
from mtool.compiler.ir.control import has_bodies
from mtool.compiler.ir.types import Array
from mtool.compiler.passes.streamed_input import with_streamed_input
from mtool.compiler.plan import Choice, Plan
from mtool.compiler.plan.partial import Shared
from mtool.compiler.plan.pools.for_time import Offers, offers_of, with_constants_in_ram
from mtool.compiler.plan.shared_arena import every_pause, interleave, share_arena
from mtool.compiler.planning import (
    attempts_at,
    constants_in_ram,
    grown_of,
    order_of,
    partial_of,
    plan_for,
    schedules_of,
    settled,
    with_offers,
)
from mtool.compiler.tuned.known import Known

# Ask backends which operators of a model they compute, and give them their regions.


_REASONS = 5  # that an error has, of the operators with the most multiply-accumulates
log = logging.getLogger(__name__)


def partitioned(graph: Graph, path: Path, board: Board, request: Request) -> tuple[Graph, tuple[Claim, ...]]:
    """Give backends their regions; return the graph with these, and who computes which operator."""
    from mtool.compiler.backends.partition import partition

    asked = _partition_inputs(graph, path, board, request)
    found = partition(*asked, falls_back=request.backend_fallback, cost_in_c=_cost_in_c(board))
    _refuse_idle(asked[2], found.claims, request)
    return found.graph, tuple(map(_claim_of, found.claims))


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
    asked = _partition_inputs(frontend.load(path, request), path, board, request)
    found = divide(*asked, cost_in_c=_cost_in_c(board))
    claims = found.claims()
    _refuse_idle(asked[2], claims, request)
    return found, tuple(map(_claim_of, claims))


def _partition_inputs(
    graph: Graph, path: Path, board: Board, request: Request
) -> tuple[Graph, Graph, "list[Chosen]", "Context"]:
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


def _claim_of(one: "Claimed") -> Claim:
    return Claim(
        operator=one.operation.name,
        kind=one.operation.kind,
        backend=one.backend,
        region=one.region,
        refusals=tuple(Refusal(backend=name, reason=why) for name, why in one.refusals),
    )


_LARGE_BYTES = 16 << 20  # of constants, from which on their memory is worth a search for cycles


def unit_for(board: Board, request: Request) -> Unit | None:
    """Return the memory protection unit of a model that asks for protection; None: it does not.

    Raises:
        UsageError: it does, and the board's core has no such unit.
    """
    return needed_unit(board.cpu) if request.protect else None


def compile_model(path: Path, board: Board, request: Request = USUAL) -> Compilation:
    """Compile one model, as `compile_models` does."""
    return compile_models([(path, request)], board)


@dataclass(frozen=True, slots=True)
class PlannedModel:
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


def planned(path: Path, board: Board, request: Request = USUAL, *, is_alone: bool = True) -> PlannedModel:
    """Read a model and make its plan for a board; `is_alone`: no other shares its arena, which may be split.

    Raises:
        MtoolError: as `compile_model`.
    """
    notes = _Notes()
    plan = plan_for(
        _lowered(path, board, request, notes), board, request, model_hash := file_hash(path), is_alone=is_alone
    )
    return PlannedModel(path, request, plan, model_hash, notes.constants, notes.claims)


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


def plan_model(path: Path, board: Board, request: Request = USUAL) -> tuple[Plan, frozenset[str]]:
    """Return the plan of a model for a board, and the nodes that a schedule can be asked for; no C is written.

    Raises:
        MtoolError: as `compile_model`.
    """
    from mtool.compiler.tuned.tasks import named_nodes

    graph = _lowered(path, board, request, _Notes())
    names = frozenset(node.name for node, _ in named_nodes(graph))
    return plan_for(graph, board, request, file_hash(path)), names


def compile_for(path: Path, boards: Sequence[Board], request: Request = USUAL) -> Iterator[tuple[Board, Emitted]]:
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


# The compile half for several models of one firmware: one arena, equal constants and functions stored once.


def compile_models(sources: Sequence[tuple[Path, Request]], board: Board, arenas: Arenas = "shared") -> Compilation:
    """Compile ONNX or TFLite models for one firmware on a board, whose core and features choose the schedules.

    Args:
        sources: each model and how it is compiled.
        board: the board.
        arenas: of several models. "shared": one arena, of the largest need; the models run one after another.
            "interleaved": one arena, in which each may run between two operators of those after it. "own": one for
            each; "caller": of each the caller's.

    Raises:
        UsageError: a file is missing, a request names nothing of the model, `partial` and the conventions do not go
            together, or a schedule that is asked for can't compute its node; two models have the same name, or one
            that begins with the other's, or other calling conventions; or models are to interleave that do not run
            operator by operator, or to share an arena with one whose input is given by rows or that wants it in
            another section.
        ModelError: a model is malformed or can't be compiled; every reason is listed.
    """
    if len(sources) == 1:
        return _compile_alone(*sources[0], board)
    if any(request.conventions.context for _, request in sources):
        arenas = "caller"
    sharing = arenas in ("shared", "interleaved")
    if sharing and any(request.pools for _, request in sources):
        raise UsageError(
            "models that share an arena have it in one memory, and --pool gives them several",
            hint="--arena own gives each model pools of its own",
        )
    models = _planned(sources, board, is_alone=not sharing)
    names = [one.plan.graph.name for one in models]
    _check_names(models)
    _check_conventions(models)
    firmware = firmware_name(names)
    apart_bytes = sum(one.plan.arena_bytes for one in models)
    plans = [one.plan for one in models]
    pauses: list[tuple[int, ...]] = [() for _ in models]
    unit = unit_for(board, models[0].request)
    if arenas in ("shared", "interleaved"):
        _check_sections(models)
    if arenas == "shared":
        _check_whole(models)
        plans = share_arena(plans, unit)
    elif arenas == "interleaved":
        _check_steps(models)
        _check_apart(models)
        plans, pauses = interleave(plans)
    else:
        pauses = [every_pause(plan) for plan in plans]
    models = [replace(one, plan=plan) for one, plan in zip(models, plans, strict=True)]
    stored = Stored()
    emitted = []
    for number, model in enumerate(models):
        section = model.request.arena_section
        shares = sharing and model.plan.arena_bytes > 0
        emitted.append(
            model.emit(Place.of(number, names, f"{firmware}_arena" if shares else "", section, unit), stored)
        )
    shared = firmware_files(firmware, emitted, pauses)
    files, outline = dict(shared.files), dict(shared.outline)
    for one, model in zip(emitted, models, strict=True):
        own = one.files(model.request.weights)
        outline |= own.outline
        for name, data in own.files.items():
            if files.setdefault(name, data) != data:
                raise UsageError(f"two of the models have a file {name}", hint="give one another name: --name")
    described = zip(emitted, pauses, strict=True)
    manifests = tuple(one.manifest.model_copy(update={"pauses": chosen}) for one, chosen in described)
    together = tuple(one.model_copy(update={"firmware": manifests}) for one in manifests)
    return Compilation(FileTree(files, outline), together, apart_bytes, tuple(emitted))


def _compile_alone(path: Path, request: Request, board: Board) -> Compilation:
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
    done = Compilation(emitted.files(request.weights), (emitted.manifest,), emitted.manifest.arena_bytes, (emitted,))
    seconds, plan = time.monotonic() - start, emitted.plan
    log.info("compile %.1f s, %d operators, arena %d B", seconds, len(plan.steps), plan.arena_bytes)
    return done


def _planned(sources: Sequence[tuple[Path, Request]], board: Board, *, is_alone: bool) -> list[PlannedModel]:
    """Plan each model, and tell what can't be compiled of all of them at once."""
    models: list[PlannedModel] = []
    failed: list[ModelError] = []
    for path, request in sources:
        try:
            models.append(planned(path, board, request, is_alone=is_alone))
        except ModelError as error:
            failed.append(error)
    if len(failed) > 1:
        told = [line for error in failed for line in (error.what, *(f"  {detail}" for detail in error.details))]
        raise ModelError(f"{len(failed)} of {len(sources)} models can't be compiled", details=told, hint=failed[0].hint)
    if failed:
        raise failed[0]
    return models


def _check_conventions(models: Sequence[PlannedModel]) -> None:
    """Refuse what the linker would (crt/include/mt_convention.h), in words."""
    first, *others = models
    for one in others:
        own, that = first.request.conventions, one.request.conventions
        if own.name != that.name:
            raise UsageError(
                "the models of a firmware have the same calling conventions",
                details=[
                    f"{each.plan.graph.name} has --interface-api {how.interface} --operators-api {how.operators}"
                    + " --arena caller" * how.context
                    for each, how in ((first, own), (one, that))
                ],
            )


def _check_sections(models: Sequence[PlannedModel]) -> None:
    """Refuse two sections for one arena."""
    first, *others = models
    for one in others:
        if one.request.arena_section != first.request.arena_section:
            raise UsageError(
                "an arena that models share lies in one section",
                details=[
                    f"{each.plan.graph.name} has --arena-section {each.request.arena_section or 'of the runtime'}"
                    for each in (first, one)
                ],
                hint="--arena own gives each an arena of its own",
            )


def _check_whole(models: Sequence[PlannedModel]) -> None:
    """Refuse an inference that lasts from its first row to its last in an arena that others use meanwhile."""
    streamed = [one.plan.graph.name for one in models if one.request.is_streamed]
    if streamed and len(models) > 1:
        raise UsageError(
            f"{streamed[0]} computes with rows as they arrive, and the other models would run over them in its arena",
            hint="--arena own",
        )


def _check_steps(models: Sequence[PlannedModel]) -> None:
    for one in models:
        if one.request.conventions.interface != "step":
            raise UsageError(
                f"models interleave between operators, and {one.plan.graph.name} runs as a whole",
                details=[f"it has --interface-api {one.request.conventions.interface}"],
                hint="give --interface-api step too",
            )


def _check_apart(models: Sequence[PlannedModel]) -> None:
    """Refuse models that lie among each other's tensors, each with memory protection."""
    if any(one.request.protect for one in models):
        raise UsageError(
            "--arena interleaved puts a model among a paused one's tensors, which memory protection can not part",
            hint="--arena own",
        )


def _check_names(models: Sequence[PlannedModel]) -> None:
    """Refuse models whose symbols and macros could be the same.

    Raises:
        UsageError: two have the same name, or one that begins with the other's.
    """
    for number, one in enumerate(models):
        for other in models[:number]:
            first, second = sorted((one.plan.graph.name, other.plan.graph.name), key=len)
            if f"{second}_".startswith(f"{first}_"):
                same = "have the same name in C" if first == second else "have names in C that can make equal symbols"
                raise UsageError(
                    f"two models {same}: {', '.join(dict.fromkeys((first, second)))}",
                    details=[f"{other.path} is {other.plan.graph.name}", f"{one.path} is {one.plan.graph.name}"],
                    hint="name all of them, in their order: "
                    + " ".join(f"--name {_another(count, each)}" for count, each in enumerate(models)),
                )


def _another(number: int, model: PlannedModel) -> str:
    return f"{chr(ord('a') + number % 26)}_{model.plan.graph.name}"
