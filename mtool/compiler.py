"""The compile half as one function: a model file in, C files and a manifest out."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool import codegen, frontend, passes
from mtool.boards import Board
from mtool.codegen import Conventions
from mtool.errors import UsageError
from mtool.filetree import FileTree
from mtool.frontend.given import NOTHING, Given
from mtool.frontend.reading import file_hash
from mtool.ir import Graph
from mtool.kernels.target import Target
from mtool.manifest import Manifest
from mtool.plan import Choices, Plan, make_plan
from mtool.settings import Io, Partial, Weights

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compile half gives: the model's files, its manifest, and the seconds that it took."""

    files: FileTree
    manifest: Manifest
    seconds: float


def target_of(board: Board) -> Target:
    """Return what the compile half knows of a board."""
    return Target(board.cpu, board.features)


def compile_model(
    path: Path,
    board: Board,
    given: Given = NOTHING,
    *,
    io: Io = "arena",
    partial: Partial = "auto",
    conventions: Conventions | None = None,
    schedules: Choices | None = None,
    weights: Weights = "auto",
) -> Compiled:
    """Compile an ONNX or TFLite model for a board.

    Args:
        path: the model file.
        board: the board whose core and features choose the schedules.
        given: what is said of the model beside its file.
        io: "arena": inputs and outputs lie in the arena, where the planner may overlap them with
            what is not live; "external": the caller keeps them.
        partial: whether operators may be computed a few rows at a time for a smaller arena, see mtool.plan.partial;
            "auto" becomes "always" where the board's memory is too small else.
        conventions: how the model and its operators are called; default: as typed C functions.
        schedules: those that are asked for, by node; the cost model chooses all others.
        weights: "auto": large constants lie in a `.bin` file, where the compiler can take one in; "text": all are C.

    Raises:
        UsageError: the file is missing, what is given names nothing of the model, `partial` and the conventions do
            not go together, or a schedule that is asked for can't compute its node.
        ModelError: the model is malformed or can't be compiled; every reason is listed.
    """
    start = time.monotonic()
    # No name for what is between: a large model is not to be held once for each stage.
    plan = plan_for(
        passes.run(frontend.load(path, given), target_of(board)), board, io, partial_of(partial, conventions), schedules
    )
    files, manifest = codegen.generate(plan, path.name, file_hash(path), conventions, weights)
    seconds = time.monotonic() - start
    log.info("compile %.1f s, %d operators, arena %d B", seconds, len(plan.steps), plan.arena_bytes)
    return Compiled(files, manifest, seconds)


def plan_for(graph: Graph, board: Board, io: Io, partial: Partial, schedules: Choices | None = None) -> Plan:
    """Return the plan for a board; where its memory is too small for the arena, "auto" takes what is smallest."""
    plan = make_plan(graph, target_of(board), io, partial, schedules)
    if partial != "auto" or not is_short(board, plan.arena_bytes):
        return plan
    return make_plan(graph, target_of(board), io, "always", schedules)


def partial_of(partial: Partial, conventions: Conventions | None) -> Partial:
    """Return whether operators may be computed by rows, where operators that are called by name are each a whole.

    Raises:
        UsageError: it is "always", and the conventions need whole operators.
    """
    if conventions is None or (conventions.operators == "typed" and not conventions.has_functions):
        return partial
    if partial == "always":
        raise UsageError(
            "--partial always computes operators a few rows at a time, packed functions and graph executors each as a "
            "whole",
            hint="leave --partial out, or choose --interface-api c or step, --operators-api typed and --executor aot",
        )
    return "never"


def compile_for(
    path: Path,
    boards: Sequence[Board],
    given: Given = NOTHING,
    *,
    io: Io = "arena",
    partial: Partial = "auto",
    conventions: Conventions | None = None,
    schedules: Choices | None = None,
) -> Iterator[tuple[Board, Compiled]]:
    """Compile a model for several boards, as `compile_model` does for each; what they share is done once.

    Raises:
        UsageError: as `compile_model`.
        ModelError: as `compile_model`.
    """
    graph = frontend.load(path, given)
    model_hash = file_hash(path)
    asked = partial_of(partial, conventions)
    made: dict[tuple[Target, Partial], Compiled] = {}

    def compiled(target: Target, partial: Partial) -> Compiled:
        if (target, partial) not in made:
            start = time.monotonic()
            plan = make_plan(passes.run(graph, target), target, io, partial, schedules)
            files, manifest = codegen.generate(plan, path.name, model_hash, conventions)
            made[target, partial] = Compiled(files, manifest, time.monotonic() - start)
        return made[target, partial]

    for board in boards:
        whole = compiled(target_of(board), asked)
        too_large = asked == "auto" and is_short(board, whole.manifest.arena_bytes)
        yield board, compiled(target_of(board), "always") if too_large else whole


def is_short(board: Board, arena_bytes: int) -> bool:
    """Return whether a board's memory is too small for an arena."""
    memory = board.memory_for("arena")
    return memory is not None and arena_bytes > memory.size
