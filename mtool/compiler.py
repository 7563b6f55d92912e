"""The compile half as one function: a model file in, C files and a manifest out."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtool import codegen, frontend, passes
from mtool.boards import Board
from mtool.codegen import Conventions
from mtool.errors import UsageError
from mtool.filetree import FileTree
from mtool.frontend.given import NOTHING, Given
from mtool.frontend.reading import file_hash
from mtool.ir import Graph
from mtool.manifest import Manifest
from mtool.ops.schedule import Target
from mtool.plan import Choices, Io, Partial, Plan, make_plan

log = logging.getLogger(__name__)

Role = Literal["weights", "arena"]


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

    Raises:
        UsageError: the file is missing, what is given names nothing of the model, `partial` and the conventions do
            not go together, or a schedule that is asked for can't compute its node.
        ModelError: the model is malformed or can't be compiled; every reason is listed.
    """
    start = time.monotonic()
    graph = frontend.load(path, given)
    plan = plan_for(passes.run(graph, target_of(board)), board, io, partial_of(partial, conventions), schedules)
    files, manifest = codegen.generate(plan, path.name, file_hash(path), conventions)
    seconds = time.monotonic() - start
    log.info("compile %.1f s, %d operators, arena %d B", seconds, len(plan.steps), plan.arena_bytes)
    return Compiled(files, manifest, seconds)


def plan_for(graph: Graph, board: Board, io: Io, partial: Partial, schedules: Choices | None = None) -> Plan:
    """Return the plan for a board; where its memory is too small for the arena, "auto" takes what is smallest."""
    plan = make_plan(graph, target_of(board), io, partial, schedules)
    memory = board.memory_for("arena")
    if partial != "auto" or memory is None or plan.arena_bytes <= memory.size:
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


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a model's constants and arena fit a board; None: the board does not say how much it has."""

    board: str
    flash_bytes: int
    flash_limit_bytes: int | None
    ram_bytes: int
    ram_limit_bytes: int | None

    @property
    def fits(self) -> bool:
        """Whether both fit, with `CODE_RESERVE_BYTES` of flash left for code."""
        return not self.lacking

    @property
    def lacking(self) -> dict[Role, int]:
        """The bytes needed of each memory that is too small, by what it holds."""
        needed: list[tuple[Role, int, int | None]] = [
            ("weights", self.flash_bytes + CODE_RESERVE_BYTES, self.flash_limit_bytes),
            ("arena", self.ram_bytes, self.ram_limit_bytes),
        ]
        return {role: count for role, count, limit in needed if limit is not None and count > limit}


def fit_of(manifest: Manifest, board: Board) -> Fit:
    """Compare what a compiled model needs with what a board has."""
    flash, ram = board.memory_for("weights"), board.memory_for("arena")
    return Fit(
        board.name,
        manifest.constant_bytes,
        flash.size if flash else None,
        manifest.arena_bytes,
        ram.size if ram else None,
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What `mtool check` tells: the manifest for the first board, and the fit on each."""

    manifest: Manifest
    fits: tuple[Fit, ...]


CODE_RESERVE_BYTES = 16 * 1024


def check_model(path: Path, boards: Sequence[Board], given: Given = NOTHING) -> Report:
    """Compile a model for each board and compare what it needs with what they have; builds nothing.

    Raises:
        UsageError: the file is missing, or what is given names nothing of the model.
        ModelError: the model is malformed or can't be compiled; every reason is listed.
    """
    graph = frontend.load(path, given)
    manifests: dict[tuple[Target, Partial], Manifest] = {}

    def compiled(target: Target, partial: Partial) -> Manifest:
        if (target, partial) not in manifests:
            plan = make_plan(passes.run(graph, target), target, partial=partial)
            manifests[target, partial] = codegen.generate(plan, path.name, file_hash(path))[1]
        return manifests[target, partial]

    fits = []
    for board in boards:
        fit = fit_of(compiled(target_of(board), "auto"), board)
        fits.append(fit_of(compiled(target_of(board), "always"), board) if "arena" in fit.lacking else fit)
    return Report(next(iter(manifests.values())), tuple(fits))
