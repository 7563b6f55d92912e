"""The compile half as one function: a model file in, C files and a manifest out.

A model is read, its operators go to backends or through the passes, it is planned within the request and the board's
memories, and its C is written; for several models of one firmware with one arena, and equal constants and
functions stored once.
"""

import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mtool.base import allocator, resources
from mtool.base.errors import FitError, ModelError, UsageError
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.base.identifiers import firmware_name
from mtool.base.option_values import CODE, WEIGHTS, Arenas, Partial
from mtool.boards import Board
from mtool.boards.protection import needed_unit
from mtool.compiler import frontend, passes
from mtool.compiler.codegen.firmware import firmware_files
from mtool.compiler.codegen.functions import Stored
from mtool.compiler.codegen.generation import Emitted, emit
from mtool.compiler.codegen.model import Place
from mtool.compiler.codegen.weights import ModelConstants, constants_of
from mtool.compiler.frontend.hashing import file_hash
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import has_bodies
from mtool.compiler.ir.graph import LARGE_BYTES
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.target import Target
from mtool.compiler.passes.streamed_input import with_streamed_input
from mtool.compiler.plan import Choice, Plan, make_plan
from mtool.compiler.plan.for_time import (
    Grown,
    PackingRoom,
    SlowFlash,
    constant_reads,
    hot,
    in_ram,
    offers_of,
    with_settings,
)
from mtool.compiler.plan.partial import PartialCache
from mtool.compiler.plan.pools import (
    board_pools,
    constant_pools,
    first_in_pools,
    first_that_fits,
    requested_pools,
    tensor_pools,
)
from mtool.compiler.plan.shared_arena import every_pause, interleave, share_arena
from mtool.compiler.plan.unpacked import can_be_packed
from mtool.compiler.request import USUAL, Compilation, Request
from mtool.compiler.tuned.results import TuningResults
from mtool.manifest import Claim, Refusal
from mtool.manifest.plan_check import check_plans

_T = TypeVar("_T")


def target_of(board: Board) -> Target:
    """Return the target that the compile half uses for a board."""
    return Target(board.cpu, board.features)


def with_offers(plan: Plan, board: Board, request: Request, schedules: Mapping[str, Choice]) -> Plan:
    """Return a plan with the constants that may lie in the requested pools, or have copies there.

    Raises:
        FitError: constants are requested in several memories, but the core reads them from only one.
    """
    flash, pools = (SlowFlash.of(board), constant_pools(board, request.pools)) if request.pools else (None, ())
    chosen = request.conventions
    if pools and plan.target.flash_is_apart:
        raise FitError(f"the constants of {plan.graph.name} can't lie in {pools[0].name}: {board.cpu} has one flash")
    if pools:
        plan = replace(plan, constant_pools=pools, reads=constant_reads(plan))
    if chosen.context or chosen.has_functions or request.optimize == "size":
        return plan
    if pools:
        return replace(plan, offers=tuple(read for read in plan.reads if read.operator not in schedules))
    return plan if flash is None else replace(plan, offers=constant_reads(plan, flash, schedules))


def check_code(plan: Plan, board: Board, request: Request) -> None:
    """Refuse code in RAM on a board without such a memory, and inside memory protection.

    Raises:
        UsageError: an operator requests it there.
    """
    moved = [step.node.title for step in plan.steps if getattr(step.schedule, CODE, "")]
    if moved and (request.protect or board.memory_for("hot_code") is None):
        why = "--protect does not let models execute RAM" if request.protect else f"{board.name} has no RAM for code"
        raise UsageError(
            f"the code of {', '.join(moved)} can't be placed in RAM: {why}", hint="leave out code=ram in --schedule"
        )


def attempts_at(partial: Partial, grown: Grown) -> Iterator[tuple[Partial, Grown]]:
    """Yield slower and slower ways to plan a model, for a board whose memory is too small for the arena.

    First "auto" becomes "always"; then no operator takes memory for time, which includes working memory.
    """
    none: Grown = ()
    for growing in dict.fromkeys((grown, none)):
        yield partial, growing
        if partial == "auto":
            yield "always", growing


def settled(
    board: Board, request: Request, attempts: Iterator[tuple[_T, Plan]], *, is_alone: bool = True
) -> tuple[_T, Plan]:
    """Return the final plan: in the requested pools, or the first plan that fits the board.

    Raises:
        UsageError: the board has no memory for a pool.
        FitError: the pools are too small.
    """
    request.check_pools(requested_pools(board, request.pools))
    pools = tensor_pools(board, request.pools)
    if pools:
        return first_in_pools(pools, attempts)
    return first_that_fits(board, board_pools(board) if is_alone and request.may_be_split else (), attempts)


if TYPE_CHECKING:
    from mtool.compiler.backends.chosen import Chosen
    from mtool.compiler.backends.interface import Context
    from mtool.compiler.backends.partition import Claim as Claimed
    from mtool.compiler.backends.partition import Division

_REASONS = 5  # that an error has, of the operators with the most multiply-accumulates
log = logging.getLogger(__name__)


def partitioned(graph: Graph, path: Path, board: Board, request: Request) -> tuple[Graph, tuple[Claim, ...]]:
    """Give backends their regions; return the graph with these, and the claims on its operators."""
    from mtool.compiler.backends.partition import partition

    arguments = _partition_inputs(graph, path, board, request)
    result = partition(*arguments, falls_back=request.backend_fallback, cost_in_c=_cost_in_c(board))
    _refuse_idle(arguments[2], result.claims, request)
    return result.graph, tuple(map(_claim_of, result.claims))


def division(path: Path, board: Board, request: Request) -> tuple["Division", tuple[Claim, ...]]:
    """Return the regions that backends would compute, and their claims, without compiling anything.

    Raises:
        UsageError: the model is missing, a backend or one of its options is wrong, it computes nothing, or a size is
            known only at run time.
        ModelError: the model is malformed, or something in it can't be compiled.
    """
    from mtool.compiler.backends.partition import divide

    open_sizes = frontend.run_time_sizes(path, request)
    if open_sizes:
        check_no_backends(request, open_sizes)
    arguments = _partition_inputs(frontend.load(path, request), path, board, request)
    result = divide(*arguments, cost_in_c=_cost_in_c(board))
    claims = result.claims()
    _refuse_idle(arguments[2], claims, request)
    return result, tuple(map(_claim_of, claims))


def _partition_inputs(
    graph: Graph, path: Path, board: Board, request: Request
) -> tuple[Graph, Graph, "list[Chosen]", "Context"]:
    """Return the partitioner's arguments; operators are recognized in a graph that rounds as ONNX does."""
    from mtool.compiler.backends.chosen import choose
    from mtool.compiler.backends.interface import BoardMemory, Context
    from mtool.compiler.backends.partition import aligned

    chosen = choose(request.backends)
    view = graph
    if frontend.is_tflite(path):
        view = aligned(frontend.load(path, replace(request, rounding="onnx", whole=True)), graph)
    memories = {name: BoardMemory(memory.size, memory.holds) for name, memory in board.memories.items()}
    context = Context(target_of(board), board.name, memories, request.rounding, request.tolerance)
    return view, graph, chosen, context


def check_no_backends(request: Request, open_sizes: Mapping[str, int]) -> None:
    """Raise a UsageError if backends are requested and a size is known only at run time."""
    if request.backends:
        raise UsageError(
            f"backends need shapes that are known at compile time; {next(iter(open_sizes))} is a run-time size",
            hint=f"give it a fixed size: --dim {next(iter(open_sizes))}=N",
        )


def _cost_in_c(board: Board) -> Callable[[Graph], float]:
    """Return a function that estimates the instructions of a graph compiled to C for a board."""
    target = target_of(board)
    return lambda body: make_plan(passes.run(body, target), target, partial="never").cost


def _refuse_idle(chosen: "Sequence[Chosen]", claims: "Sequence[Claimed]", request: Request) -> None:
    """Refuse a backend that computes nothing, unless it is optional or its regions fall back to C; report why.

    Raises:
        UsageError: it computes no operator of the model.
    """
    for choice, spec in zip(chosen, request.backends, strict=True):
        name = choice.backend.name
        failed = any(not claim.backend and name not in dict(claim.refusals) for claim in claims)
        if any(claim.backend == name for claim in claims) or (request.backend_fallback and failed):
            continue
        reasons: Counter[str] = Counter()
        for claim in claims:
            reasons.update({dict(claim.refusals).get(name, ""): claim.operation.macs or 1})
        causes = [why for why, _ in reasons.most_common() if why]
        message = f"the backend {name} computes no operator of the model"
        if not spec.optional:
            raise UsageError(
                message,
                details=causes[:_REASONS],
                hint=f"leave it out, or give --backend {spec.where}:optional; mtool check then shows the reason "
                "for each operator",
            )
        first = "".join(f": {why}" for why in causes[:1])
        log.warning("%s%s; mtool check shows the reason for each operator", message, first)


def _claim_of(claimed: "Claimed") -> Claim:
    return Claim(
        operator=claimed.operation.name,
        kind=claimed.operation.kind,
        backend=claimed.backend,
        region=claimed.region,
        refusals=tuple(Refusal(backend=name, reason=why) for name, why in claimed.refusals),
    )


def compile_model(path: Path, board: Board, request: Request = USUAL) -> Compilation:
    """Compile one model, as `compile_models` does."""
    return compile_models([(path, request)], board)


@dataclass(slots=True)
class _Notes:
    """Facts about a model besides its graph: its constants as they were read, and the backends' claims."""

    constants: ModelConstants = field(default_factory=ModelConstants)
    claims: tuple[Claim, ...] = ()


@frozen
class PlannedModel:
    """A planned model whose C is not written yet: with several models, its place in the arena may change.

    Plans of one file with the same `key` have the same C.
    """

    path: Path
    request: Request
    plan: Plan
    model_hash: str
    notes: _Notes
    key: Hashable

    def emit(self, place: Place, stored: Stored | None = None) -> Emitted:
        """Write the C of its operators as part of a firmware."""
        conventions, notes = self.request.conventions, self.notes
        emitted = emit(self.plan, self.path.name, self.model_hash, conventions, notes.constants, place, stored)
        return replace(emitted, claims=notes.claims)


class _Source:
    """A model file, read and planned for boards; work that several boards share is done once.

    Raises:
        MtoolError: as `compile_model`.
    """

    def __init__(self, path: Path, request: Request, *, is_for_several: bool = False) -> None:
        allocator.return_large_blocks()
        self.path, self.request = path, request
        self.open_sizes = frontend.run_time_sizes(path, request)
        request.check_stream(self.open_sizes)
        is_kept = is_for_several and not self.open_sizes and not request.backends
        self.graph = self._read() if is_kept else None  # else a large model is not to be held once for each stage
        self.constants = constants_of(self.graph) if self.graph else ModelConstants()
        self.answers: dict[Hashable, Any] = {}
        self.partial_cache = PartialCache()

    @functools.cached_property
    def model_hash(self) -> str:
        """The hash of the file, which is read, and found to be one within the limits, before."""
        return file_hash(self.path)

    def once(self, about: Hashable, answer: Callable[[], _T]) -> _T:
        """Return a cached answer, computed at the first call."""
        if about not in self.answers:
            self.answers[about] = answer()
        result: _T = self.answers[about]
        return result

    def _read(self) -> Graph:
        """Read the model; the graph notes a streamed input."""
        graph = replace(frontend.load(self.path, self.request), for_size=self.request.optimize == "size")
        return with_streamed_input(graph, self.request.stream) if self.request.is_streamed else graph

    def lowered(self, board: Board, notes: _Notes) -> Graph:
        """Lower the model to kernels, loops and backend calls, with further facts about it."""
        target, request = target_of(board), self.request
        if self.open_sizes:
            from mtool.compiler import run_time_sizes  # loaded only for such a model

            check_no_backends(request, self.open_sizes)
            whole, graph = run_time_sizes.lowered(self.path, target, request, self.open_sizes)
            notes.constants = constants_of(whole)
            return graph
        if self.graph is not None:
            lowered: Graph = self.answers.get(passes.traits(target)) or passes.run(self.graph, target)
            if has_bodies(lowered):  # costs decide about them
                return lowered
            return self.once(passes.traits(target), lambda: lowered)

        def read() -> Graph:  # a graph that nothing but the passes holds
            graph = self._read()
            notes.constants = constants_of(graph)
            if request.backends:
                graph, notes.claims = partitioned(graph, self.path, board, request)
            return graph

        graph = passes.run(read(), target)
        _drop_cycles(graph.constants)
        return graph

    def _likeness(self, board: Board) -> Hashable:
        """Return a key that is equal for boards that get the same plans, memories aside."""
        target = target_of(board)

        def has_integers_alone(graph: Graph) -> bool:  # constants apart
            kinds = (kind for value, kind in graph.types.items() if value not in graph.constants)
            return not has_bodies(graph) and not any(kind.dtype.is_float for kind in kinds)

        if self.request.tuning_results != TuningResults():  # a measurement holds for its own core
            return target
        has_integers = self.once(
            ("integers", passes.traits(target)),
            lambda: self.graph is not None and has_integers_alone(self.lowered(board, _Notes())),
        )
        return target.integer_traits if has_integers else target.traits

    def planned(
        self, board: Board, *, is_alone: bool = True, models: int = 1, graph: Graph | None = None
    ) -> PlannedModel:
        """Return the plan for a board: the first of `attempts_at` whose arena fits its memory or pools.

        Args:
            board: the board.
            is_alone: no other model shares its arena, so that it may be split.
            models: the number of models in the firmware.
            graph: the model lowered for the board, if available.
        """
        notes, target, request = _Notes(self.constants), target_of(board), self.request
        of_target = self._likeness(board), board.name if request.backends else ""
        lowered = functools.cache(lambda: self.lowered(board, notes) if graph is None else graph)
        offers = self.once(("offers", of_target), lambda: offers_of(lowered(), target))
        allowed, memory, ram = request.allowed_partial(), board.memory_for("weights"), board.memory_for("arena")
        partial = request.tuning_results.partial.get(self.model_hash, allowed) if allowed == "auto" else allowed
        order = request.tuning_results.order.get(self.model_hash, "auto") if request.order == "auto" else request.order

        has_packed = self.once("packed", lambda: can_be_packed(lowered(), request.compress))
        room = PackingRoom.of(board, request.compress) if has_packed else None

        def plan_of(partial: Partial, grown: Grown) -> tuple[Plan, Mapping[str, Choice]]:
            chosen = schedules_of(lowered(), target, request, self.model_hash)
            plan = make_plan(
                lowered(),
                target,
                request.io,
                partial,
                chosen,
                order,
                dict(grown),
                self.partial_cache,
                room,
            )
            return plan, chosen

        grown = offers.accepted(request.optimize, memory.size if memory else None, ram.size if ram else None)
        ways = (((of_target, room), *way) for way in attempts_at("never" if self.open_sizes else partial, grown))
        attempts = ((way, self.once(way, functools.partial(plan_of, *way[1:]))[0]) for way in ways)
        key, plan = settled(board, request, attempts, is_alone=is_alone)
        schedules: Mapping[str, Choice] = self.answers[key][1]
        flash, moved = SlowFlash.of(board), dict[str, frozenset[str]]()
        if flash is not None and not request.pools and not (request.optimize == "size" and request.conventions.context):
            moved[WEIGHTS] = in_ram(plan, flash, request.optimize, schedules)
        if flash is not None and not request.protect:  # which lets a model execute the memory of code alone
            share = replace(flash, hot_bytes=flash.hot_bytes // models)
            moved[CODE] = hot(plan, share, request.optimize, request.schedules)  # tuning does not choose it
        final = with_offers(with_settings(plan, moved), board, request, schedules)
        check_code(final, board, request)
        alike = key, *moved.items(), plan.pools, board.name if request.pools else ""
        return PlannedModel(self.path, request, final, self.model_hash, notes, alike)


def schedules_of(graph: Graph, target: Target, request: Request, model_hash: str) -> Mapping[str, Choice]:
    """Return the requested schedules, and those that tuning has found for the other nodes."""
    if request.tuning_results == TuningResults():  # then the schema of logs need not be loaded
        return request.schedules
    from mtool.compiler.tuned.tasks import choices

    return {**choices(request.tuning_results, graph, target, model_hash), **request.schedules}


def _drop_cycles(constants: Mapping[str, Array]) -> None:
    """Free large objects that only reference cycles hold, such as recursive functions that refer to a graph."""
    if sum(data.nbytes for data in constants.values()) >= LARGE_BYTES:
        allocator.drop_cycles()


def plan_model(path: Path, board: Board, request: Request = USUAL) -> tuple[Plan, frozenset[str]]:
    """Return the plan of a model for a board, and the nodes that can have a schedule, without writing C.

    Raises:
        MtoolError: as `compile_model`.
    """
    from mtool.compiler.tuned.tasks import named_nodes

    source = _Source(path, request)
    graph = source.lowered(board, _Notes())
    return source.planned(board, graph=graph).plan, frozenset(node.name for node, _ in named_nodes(graph))


def compile_for(path: Path, boards: Sequence[Board], request: Request = USUAL) -> Iterator[tuple[Board, Emitted]]:
    """Compile a model for several boards like `compile_model`; shared work is done once.

    Yields:
        A board, and the model's functions, from which its manifest and files are made.

    Raises:
        UsageError: as `compile_model`.
        ModelError: as `compile_model`.
    """
    source, place = (
        _Source(path, request, is_for_several=len(boards) > 1),
        Place(section=request.arena_section, guard=request.guard),
    )
    for board in boards:
        model = source.planned(board)
        yield board, source.once(model.key, functools.partial(model.emit, place))


def compile_models(sources: Sequence[tuple[Path, Request]], board: Board, arenas: Arenas = "shared") -> Compilation:
    """Compile ONNX or TFLite models for one firmware on a board, whose core and features choose the schedules.

    Args:
        sources: each model and how it is compiled.
        board: the board.
        arenas: for several models. "shared": one arena of the largest size; the models run one after another.
            "interleaved": one arena; each model may run between two operators of those after it. "own": one for
            each; "caller": the caller has one for each.

    Raises:
        UsageError: a file is missing, a request names nothing in the model, `partial` contradicts the conventions,
            or a requested schedule can't compute its node; two models have the same name, or one that begins with
            the other's, or different calling conventions; models interleave but do not run operator by operator,
            or share an arena with one whose input is streamed or that needs another section.
        ModelError: a model is malformed or can't be compiled; every reason is listed.
    """
    start = time.monotonic()
    if any(request.conventions.context for _, request in sources):
        arenas = "caller"
    elif len(sources) == 1:
        arenas = "own"
    sharing = arenas in ("shared", "interleaved")
    if sharing and any(request.pools for _, request in sources):
        raise UsageError(
            "a shared arena lies in one memory, but --pool splits it into several",
            hint="--arena own gives each model pools of its own",
        )
    models = _planned(sources, board, is_alone=not sharing)
    names = [model.plan.graph.name for model in models]
    _check_names(models)
    _check_alike(
        models,
        "the models of a firmware have the same calling conventions",
        lambda request: request.conventions.name,
        lambda request: (
            f"--interface-api {request.conventions.interface} --operators-api {request.conventions.operators}"
            + " --arena caller" * request.conventions.context
        ),
    )
    firmware = firmware_name(names)
    plans = [model.plan for model in models]
    apart_bytes = sum(plan.arena_bytes for plan in plans)
    pauses: list[tuple[int, ...]] = [() for _ in models]
    unit = needed_unit(board.cpu, board.name) if models[0].request.protect else None
    if sharing:
        _check_alike(
            models,
            "an arena that models share lies in one section",
            lambda request: request.arena_section,
            lambda request: f"--arena-section {request.arena_section or 'of the runtime'}",
            hint="--arena own gives each an arena of its own",
        )
    if arenas == "shared":
        streamed = [model.plan.graph.name for model in models if model.request.is_streamed]
        if streamed:  # its inference lasts from the first row to the last
            raise UsageError(
                f"{streamed[0]} computes on rows as they arrive, and the other models would overwrite them in the "
                "shared arena",
                hint="--arena own",
            )
        plans = share_arena(plans, unit)
    elif arenas == "interleaved":
        _check_interleaved(models)
        plans, pauses = interleave(plans)
    else:
        pauses = [every_pause(plan) for plan in plans]
    models = [replace(model, plan=plan) for model, plan in zip(models, plans, strict=True)]
    stored = Stored()
    emitted = []
    for number, model in enumerate(models):
        arena = f"{firmware}_arena" if sharing and model.plan.arena_bytes else ""
        section, guard = model.request.arena_section, model.request.guard
        emitted.append(model.emit(Place.of(number, names, arena, section, unit, guard=guard), stored))
        _drop_cycles(emitted[-1].functions.constants)
    shared = firmware_files(firmware, emitted, pauses) if len(models) > 1 else FileTree({})
    files, outline = dict(shared.files), dict(shared.outline)
    for output, model in zip(emitted, models, strict=True):
        tree = output.files(model.request.weights)
        outline |= tree.outline
        for name, data in tree.files.items():
            if files.setdefault(name, data) != data:
                raise UsageError(f"two of the models have a file {name}", hint="give one another name: --name")
    manifests = tuple(output.manifest for output in emitted)
    if len(models) > 1:
        described = zip(manifests, pauses, strict=True)
        manifests = tuple(manifest.model_copy(update={"pauses": chosen}) for manifest, chosen in described)
        manifests = tuple(manifest.model_copy(update={"firmware": manifests}) for manifest in manifests)
    if resources.plans_are_verified():
        check_plans(manifests)
    seconds, arena_bytes = time.monotonic() - start, max(plan.arena_bytes for plan in plans)
    count = sum(len(plan.steps) for plan in plans)
    log.info("compile %.1f s, %d operators, arena %d B", seconds, count, arena_bytes if sharing else apart_bytes)
    return Compilation(FileTree(files, outline), manifests, apart_bytes, tuple(emitted))


def _planned(sources: Sequence[tuple[Path, Request]], board: Board, *, is_alone: bool) -> list[PlannedModel]:
    """Plan each model; report everything that can't be compiled, for all models at once."""
    models: list[PlannedModel] = []
    failed: list[ModelError] = []
    for path, request in sources:
        try:
            models.append(_Source(path, request).planned(board, is_alone=is_alone, models=len(sources)))
        except ModelError as error:
            failed.append(error)
    if len(failed) > 1:
        all_lines = [line for error in failed for line in (error.what, *(f"  {detail}" for detail in error.details))]
        message = f"{len(failed)} of {len(sources)} models can't be compiled"
        raise ModelError(message, details=all_lines, hint=failed[0].hint)
    if failed:
        raise failed[0]
    return models


def _check_alike(
    models: Sequence[PlannedModel],
    message: str,
    value: Callable[[Request], object],
    written: Callable[[Request], str],
    hint: str = "",
) -> None:
    """Refuse models that differ in a property that a firmware has only once; the linker checks conventions too."""
    first, *others = models
    for other in others:
        if value(other.request) != value(first.request):
            details = [f"{model.plan.graph.name} has {written(model.request)}" for model in (first, other)]
            raise UsageError(message, details=details, hint=hint)


def _check_interleaved(models: Sequence[PlannedModel]) -> None:
    """Refuse models that do not run operator by operator, or that have memory protection."""
    for model in models:
        if model.request.conventions.interface != "step":
            raise UsageError(
                f"interleaved models pause between operators, but {model.plan.graph.name} runs as a whole",
                details=[f"it has --interface-api {model.request.conventions.interface}"],
                hint="give --interface-api step too",
            )
    if any(model.request.protect for model in models):
        raise UsageError(
            "--arena interleaved puts a model's tensors between those of a paused one, where memory protection can't "
            "separate them",
            hint="--arena own",
        )


def _check_names(models: Sequence[PlannedModel]) -> None:
    """Refuse models whose symbols and macros could be the same.

    Raises:
        UsageError: two have the same name, or one that begins with the other's.
    """
    for number, model in enumerate(models):
        for other in models[:number]:
            first, second = sorted((model.plan.graph.name, other.plan.graph.name), key=len)
            if f"{second}_".startswith(f"{first}_"):
                same = "have the same name in C" if first == second else "have names that can lead to equal C symbols"
                raise UsageError(
                    f"two models {same}: {', '.join(dict.fromkeys((first, second)))}",
                    details=[f"{other.path} is {other.plan.graph.name}", f"{model.path} is {model.plan.graph.name}"],
                    hint="name all of them, in their order: "
                    + " ".join(
                        f"--name {chr(ord('a') + count % 26)}_{m.plan.graph.name}" for count, m in enumerate(models)
                    ),
                )
