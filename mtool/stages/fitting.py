"""The boards that a model fits: measured if its firmware is already built, else estimated at the upper end."""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mtool import boards as registry
from mtool import project
from mtool.base import checked
from mtool.base.errors import MtoolError, UsageError
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.boards import Board
from mtool.compiler.codegen.generation import Emitted
from mtool.compiler.compilation import compile_for, compile_models
from mtool.device.build import firmware_of, measure
from mtool.device.build import fit as needed
from mtool.device.build.fit import Need, needs_of
from mtool.manifest import Manifest, is_project
from mtool.project.template import Template
from mtool.stages.compiling import CompiledModel, default_folder, requests_of, warn_of_weight_overhead
from mtool.stages.latency_estimate import (
    LatencyEstimate,
    LongestOperator,
    SoftwareFloat,
    estimate_latency,
    longest_operator,
    software_float,
)
from mtool.stages.options import Options, check_options, weights_of
from mtool.stages.sizes.estimate import estimate

log = logging.getLogger(__name__)


@frozen
class Fit:
    """What a model's firmware needs of a board's memories.

    Attributes:
        board: the board's name.
        needs: the need of each memory; none where an operating system places things.
        flash: the fullest memory that holds code or weights.
        ram: the fullest memory that holds the arena, data or the stack.
        refused: what the board's compiler does not accept, however much memory there is.
        is_built: the figures were measured on built firmware; else some are estimated.
        time: the estimated time of an inference, the sum of one of each model; None: unknown.
        longest: the slowest operator of each model.
        shares: of one model, each operator's share of an inference's estimated instructions; of several, empty.
        software_float: the cost of float32 products without an FPU; None: there are none.
        constant_bytes: the models' constants, as laid out for the board's core.
        arena_bytes: their arena on this board.
    """

    board: str
    needs: tuple[Need, ...] = ()
    flash: Need | None = None
    ram: Need | None = None
    refused: tuple[str, ...] = ()
    is_built: bool = False
    time: LatencyEstimate | None = None
    longest: tuple[LongestOperator, ...] = ()
    shares: tuple[float, ...] = ()
    software_float: SoftwareFloat | None = None
    constant_bytes: int = 0
    arena_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether a build will succeed, as far as memory goes."""
        return not self.refused and not any(need.missing_bytes for need in self.needs)

    @property
    def without_estimate(self) -> tuple[str, ...]:
        """The backends that give no estimate of what they compute, so that the time is unknown."""
        return tuple(sorted({backend for record in self.longest for backend in record.unknown}))

    def lines(self, manifest: Manifest) -> list[str]:
        """Return a line for each memory, and what the compiler does not accept."""
        return [*(needed.line(need, manifest) for need in self.needs), *self.refused]

    def hint(self, manifest: Manifest) -> str:
        """Return a hint if it does not fit; if only the estimates are too large, to build."""
        sure = any(
            sum(part.bytes for part in need.parts if not part.estimated) > need.limit_bytes for need in self.needs
        )
        if not sure and not self.refused and not self.is_built:
            return "the estimated parts (about) may turn out smaller: mtool build measures them"
        over = {need.memory: need.bytes for need in self.needs if need.missing_bytes}
        return needed.advice(manifest, registry.get(self.board), over)

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        time, energy = self.time, self.time and self.time.energy
        return {
            "board": self.board,
            "fits": self.fits,
            "is_built": self.is_built,
            "flash_bytes": self.flash and self.flash.bytes,
            "flash_limit_bytes": self.flash and self.flash.limit_bytes,
            "ram_bytes": self.ram and self.ram.bytes,
            "ram_limit_bytes": self.ram and self.ram.limit_bytes,
            "memories": [
                {
                    "name": need.memory,
                    "bytes": need.bytes,
                    "limit_bytes": need.limit_bytes,
                    "parts": [asdict(part) for part in need.parts],
                }
                for need in self.needs
            ],
            "refused": list(self.refused),
            "longest_operators": [
                {
                    "model": record.model,
                    "operator": record.operator or None,
                    "share": None if record.unknown else record.share,
                    "milliseconds": record.time and record.time.milliseconds,
                    "stretch_share": None if record.unknown else record.stretch_share,
                    "stretch_milliseconds": record.stretch and record.stretch.milliseconds,
                    "stretch_instructions": record.stretch_instructions,
                }
                for record in self.longest
            ],
            "milliseconds": time and time.milliseconds,
            "milliseconds_error": time and time.error,
            "milliseconds_of_backends": time and time.device_milliseconds,
            "without_estimate": list(self.without_estimate),
            "clock_hz": time and time.hz,
            "milliseconds_have_flash": time and time.flash_is_known,
            "milliseconds_flash_is_sure": time and time.flash_is_sure,
            "microjoules": energy and energy.microjoules,
            "microjoules_error": energy and energy.error,
            "constant_bytes": self.constant_bytes,
            "arena_bytes": self.arena_bytes,
            "software_float": self.software_float and asdict(self.software_float),
        }


@frozen
class FitReport:
    """The result of `mtool check`: the manifest for the first board, and the fit on each."""

    manifest: Manifest
    fits: tuple[Fit, ...]

    @property
    def by_time(self) -> tuple[Fit, ...]:
        """The boards that it fits first, by the time of an inference; those without an estimate after them."""
        times = {id(fit): fit.time.milliseconds if fit.time else math.inf for fit in self.fits}
        return tuple(sorted(self.fits, key=lambda fit: (not fit.fits, times[id(fit)])))


def check(
    path: str | Path,
    boards: Sequence[Board] | None = None,
    options: Options | None = None,
    *,
    folder: Path | None = None,
    hz: checked.Natural = 0,
) -> FitReport:
    """Compile a model for each board, and report what its firmware needs and whether it fits; nothing is built.

    Args:
        path: the ONNX or TFLite model.
        boards: the boards; default: all.
        options: how it would be compiled and which template would be used.
        folder: the project folder, whose build is measured if it is up to date; default: build/<model>-<board>.
        hz: the clock for the estimated times, in place of the boards' own.

    Raises:
        UsageError: the file or the folder is missing, or an option names nothing in the model or the template.
        ModelError: the model is malformed or can't be compiled; every reason is listed.
    """
    if folder is not None and not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {problem}", hint="give the folder of a built project, or leave out --output-dir")
    source, options = Path(path), options or Options()
    targets = list(registry.load_all().values()) if boards is None else list(boards)
    if not targets:
        raise UsageError("boards is empty", hint="name a board, or leave boards out for all of them")
    for board in targets:
        check_options(board, options)
    manifests, fits = [], []
    load = functools.cache(project.load)  # many boards share a template
    for board, emitted in compile_for(source, targets, options):
        manifest = emitted.manifest
        manifests.append(manifest)
        if is_project(folder or default_folder(manifest.model, board)):
            files = emitted.files(weights_of(board, options))
            fit = fit_of(CompiledModel(source, board, options, files, manifest), folder=folder)
        else:  # the files are generated only if they are needed
            fit = _estimated(board, options, manifest, functools.partial(getattr, emitted, "code"), load)
        fit = replace(fit, constant_bytes=manifest.constant_bytes, arena_bytes=manifest.arena_bytes)
        fits.append(_timed(fit, board, [emitted], [manifest], hz))
    if len(targets) < len(registry.load_all()):  # else the first board's constants say little of the others'
        warn_of_weight_overhead(manifests[0])
    if folder is not None and not any(fit.is_built for fit in fits):
        log.warning("%s has no build of this model with these options: its code size is estimated", folder)
    return FitReport(manifests[0], tuple(fits))


def check_models(
    paths: Sequence[str | Path],
    boards: Sequence[Board],
    options: Sequence[Options],
    *,
    folder: Path | None = None,
    hz: checked.Natural = 0,
) -> FitReport:
    """Check several models for one firmware, as `check`; the manifest is the first model's, which lists the others.

    Raises:
        MtoolError: as `check`, or two of the models have the same name.
    """
    sources = [Path(path) for path in paths]
    if not boards:
        raise UsageError("boards is empty", hint="name at least one board")
    if len(sources) == len(options) == 1:
        return check(sources[0], boards, options[0], folder=folder, hz=hz)
    manifests, fits = [], []
    for board in boards:
        pairs = requests_of(sources, board, options)
        compiled = compile_models(pairs, options[0].core_of(board), options[0].arenas)
        manifests.append(compiled.manifests[0])
        model = CompiledModel(sources[0], board, options[0], compiled.files, compiled.manifests[0])
        fits.append(_timed(fit_of(model, folder=folder), board, compiled.emitted, compiled.manifests, hz))
    return FitReport(manifests[0], tuple(fits))


def _timed(fit: Fit, board: Board, models: Sequence[Emitted], manifests: Sequence[Manifest], hz: int) -> Fit:
    """Return a fit with its models' estimated times, and their sum."""
    estimates = [estimate_latency(model, board, hz) for model in models]
    times = [time for time in estimates if time is not None]
    whole = None
    if times and len(times) == len(models):
        whole = replace(
            times[0],
            milliseconds=sum(time.milliseconds for time in times),
            error=max(time.error for time in times),
            energy=times[0].energy if len(times) == 1 else None,
            device_milliseconds=sum(time.device_milliseconds for time in times),
        )
    rows = zip(models, estimates, manifests, strict=True)
    longest = tuple(longest_operator(emitted, time, manifest.pauses) for emitted, time, manifest in rows)
    floats = next(filter(None, (software_float(manifest, board) for manifest in manifests)), None)
    shares = tuple(cost / (model.cost or 1) for model in models for cost in model.costs) if len(models) == 1 else ()
    return replace(fit, time=whole, longest=longest, shares=shares, software_float=floats)


def fit_of(model: CompiledModel, *, folder: Path | None = None) -> Fit:
    """Return whether a compiled model fits its board, and the memory that it needs.

    Raises:
        UsageError: there is no such template, or it has no such option.
    """
    built = _measured(model, folder or model.default_folder())
    return built or _estimated(model.board, model.options, model.manifest, lambda: model.files)


def _template_of(board: Board, options: Options, load: Callable[[str], Template] = project.load) -> Template | None:
    """Return the template that places things in a board's memories; None: there is none, or no memory is listed."""
    name = options.template or next(iter(board.templates), "")
    return load(name) if name and board.memories else None


def _measured(model: CompiledModel, folder: Path) -> Fit | None:
    """Return the fit of the firmware in a folder, the most of its kinds; None: there is none, or it is stale."""
    template = _template_of(model.board, model.options)
    if template is None or not is_project(folder):
        return None
    try:
        tree, manifest = model.render_project()
        firmware = firmware_of(folder, tree)
        if firmware is None:
            return None
        needs_by_kind = [needs_of(measure(path, manifest), manifest) for path in firmware]
    except MtoolError:
        return None  # not a project of mtool, or the toolchain is missing: estimates will do
    needs = tuple(max(of_kinds, key=lambda need: need.bytes) for of_kinds in zip(*needs_by_kind, strict=True))
    return _fit(model.board.placed_by(template.name), needs, is_built=True)


def _estimated(
    board: Board,
    options: Options,
    manifest: Manifest,
    code: Callable[[], FileTree],
    load: Callable[[str], Template] = project.load,
) -> Fit:
    """Return the fit by estimates.

    `code` returns the model's C without its constants; it is not called if the board's memories are unknown.
    """
    template = _template_of(board, options, load)
    if template is None:
        return Fit(board.name)
    placed = board.placed_by(template.name)
    estimated = estimate(code(), manifest, placed, template, template.read_options(options.of_template(board), board))
    return _fit(placed, estimated.needs, estimated.refused)


def _fit(board: Board, needs: tuple[Need, ...], refused: tuple[str, ...] = (), *, is_built: bool = False) -> Fit:
    def fullest(*roles: str) -> Need | None:
        names = {board.region_for(role) for role in roles}
        those = [need for need in needs if need.memory in names]
        return max(those, key=lambda need: (need.missing_bytes, need.bytes / need.limit_bytes), default=None)

    return Fit(
        board.name, needs, fullest("code", "weights"), fullest("arena", "data", "stack"), refused, is_built=is_built
    )
