"""A compiled model and what is written of it; compile one, or several for one firmware."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import boards, manifest
from mtool.base import filetree, resources
from mtool.base.errors import UsageError
from mtool.base.escaping import short_name
from mtool.base.filetree import FileTree
from mtool.base.option_values import Format
from mtool.boards import Board
from mtool.compiler.request import Request
from mtool.compiler.tuned.known import Known
from mtool.manifest import Manifest, Protection
from mtool.stages import formatting
from mtool.stages.options import Options, check_options, known_of, weights_of

if TYPE_CHECKING:
    from mtool.project import About, Module, Runtime
    from mtool.project.portable import Core


log = logging.getLogger(__name__)
_LEAST_GROWTH_BYTES = 1024  # what an operator's constants grow by before it is told; the manifest has all of them
_NAMED = 3


def warn_of_weight_overhead(manifest: Manifest) -> None:
    """Warn of constants that take a tenth more flash than in the model's file: the largest by name, and why.

    What was chosen to, where the board has room (plan.for_time), is logged for debugging only.
    """
    told = [one for one in manifest.grown if one.flash_bytes - one.file_bytes >= _LEAST_GROWTH_BYTES]
    for one in told:
        if one.for_speed:
            log.debug("%s: %s B more of flash: %s", one.operator, f"{one.flash_bytes - one.file_bytes:,}", one.reason)
    grown = [one for one in told if not one.for_speed]
    if not grown:
        return
    before, after = (sum(getattr(one, kind) for one in grown) for kind in ("file_bytes", "flash_bytes"))
    for one in grown[:_NAMED]:
        log.warning(
            "%s takes %s B in the file and %s B in flash: %s",
            short_name(one.tensor), f"{one.file_bytes:,}", f"{one.flash_bytes:,}", one.reason,
        )  # fmt: skip
    if len(grown) > _NAMED:
        log.warning(
            "%d operators' constants, %s B in the file, take %s B in flash: `grown` in mtool.json lists them",
            len(grown), f"{before:,}", f"{after:,}",
        )  # fmt: skip


def log_summary(source: Path, described: Manifest, start: float, *, is_cached: bool = False) -> None:
    """Log what was compiled: its tensors, its size, its operators and its arena."""
    inputs = ", ".join(formatting.tensor(tensor) for tensor in described.inputs if tensor.range is None)
    outputs = ", ".join(map(formatting.tensor, described.outputs))
    for limits in (tensor.range for tensor in described.sizes):
        if limits is not None:
            outputs += f"   {short_name(limits.dimension)} = {limits.least} to {limits.most} at run time"
    if described.states:
        kept = sum(state.bytes for state in described.states)
        outputs += f"   keeps {formatting.count(len(described.states), 'state')}, {kept:,} B"
    size = f"{formatting.amount(described.macs)} MACs, {formatting.amount(described.parameters)} parameters"
    log.info("%s   %s -> %s   %s", short_name(source.stem), inputs, outputs, size)
    functions = len({operator.function for operator in described.operators})
    operators = described.operators
    by_rows = {one.whole for one in operators if one.whole and not one.label.endswith(" rows")}  # keep rows, pad rows
    count = sum(1 for one in operators if not one.whole) + len(by_rows)
    some = f" ({len(by_rows)} by rows)" if by_rows else ""
    note = f"{formatting.count(count, 'operator')}{some} in {formatting.count(functions, 'function')}"
    arena = formatting.arena(described)
    cached = ", from the cache" if is_cached else ""
    log.info("  %-9s %4.1f s   %s, %s%s", "compile", time.monotonic() - start, note, arena, cached)
    if described.protection is not None:
        log.info("  %-9s          %s", "protect", _areas(described.protection))
    warn_of_weight_overhead(described)


def _areas(protection: Protection) -> str:
    """Return the protected areas as text: what each takes, and in which granules."""
    areas = [
        f"{one.access}s {one.name} " + (f"{one.bytes:,} B " if one.bytes else "") + f"(granule {one.granule:,} B)"
        for one in protection.areas
    ]
    return f"{protection.unit}: {', '.join(areas)}"


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A compiled model: its C files and manifest, for one board.

    Of several models of one firmware each has the files of all of them.
    """

    path: Path
    board: Board
    options: Options
    files: FileTree
    manifest: Manifest

    def refuse_certain(self) -> None:
        """Say before a build that it can't succeed: the constants and the arena alone are more than a memory has.

        Raises:
            FitError: they are.
        """
        from mtool.stages.sizes import estimate

        options = self.options
        estimate.refuse_certain(self.files, self.manifest, self.board, options.template, options.template_options)

    def render_project(self) -> tuple[FileTree, Manifest]:
        """Return the project folder's files, and the manifest that is its `mtool.json`."""
        from mtool import project

        return project.render(
            self._in_project(),
            self.manifest,
            self.board,
            template=self.options.template,
            options=self.options.template_options,
            program=self.options.program,
            trust=self.options.trust_template,
        )

    def sources(self) -> FileTree:
        """Return what another build needs: the model's files, what they use of the runtime, and `mtool.json`."""
        from mtool import project

        own = {name: self.files[name] for name in self.files if not name.endswith("_rpc.c")}
        files = FileTree(own, self.files.outline)
        headers, runtime = _runtime()
        needed = {name: runtime[name] for name in project.runtime_sources(files, runtime)}
        if self.options.single_file:
            files, needed = self._single(files, project.Runtime(headers.files, needed)), {}
        complete = {**files.files, **needed}
        complete |= {name: headers[name] for name in project.runtime_headers([FileTree(complete)], headers)}
        return FileTree({**complete, manifest.FILE_NAME: self.manifest.to_json()})

    def _single(self, files: FileTree, runtime: "Runtime") -> FileTree:
        from mtool import project

        models = [one.model for one in self.manifest.models]
        return project.single_file(files, models, self.manifest.firmware_name, runtime)

    def _in_project(self) -> FileTree:
        """Return the model's files as a project has them, with the runtime's sources beside them."""
        from mtool import project

        if not self.options.single_file:
            return self.files
        headers, runtime = _runtime()
        beside = {Path(name).with_suffix(".h").name for name in project.runtime_sources(self.files, runtime)}
        alone = {name: headers[name] for name in headers if name not in beside}
        return self._single(self.files, project.Runtime(alone))

    def package(self, form: Format, *, about: "About | None" = None, more: Sequence["CompiledModel"] = ()) -> FileTree:
        """Return what is written of the model as a package; "c" is `sources`.

        A model that was compiled for this computer is compiled for each core that the package is for.

        Args:
            form: of the package.
            about: who made it, and the like.
            more: other models of the same archive, "mlf" alone.

        Raises:
            UsageError: the package is Zephyr's, and the board is none of Zephyr's.
            MtoolError: as `compile`, for one of the cores; or large constants lie in a file of bytes.
        """
        from mtool import project

        if self.manifest.caller_has_arena and form != "c":
            raise UsageError(
                f"--emit {form} has programs that call a model with an arena of its own",
                hint="leave --arena caller out, or --emit",
            )
        if (self.manifest.pools or self.manifest.constant_pools) and form != "c":
            raise UsageError(
                f"--emit {form} builds where nobody puts a model's pools into their memories",
                hint="leave --pool out, or --emit",
            )
        if (more and form != "mlf") or (self.manifest.firmware and form not in ("c", "cmake")):
            raise UsageError(
                f"--emit {form} holds one model",
                hint="several fit into --emit c and cmake, which are for one firmware, and mlf",
            )
        if form == "zephyr-module" and self.board.cpu != "host" and "zephyr" not in self.board.templates:
            raise UsageError(
                f"{self.board.name} is no board of Zephyr's, which --emit zephyr-module is for",
                details=[f"mtool knows no Zephyr name of it, {self.board.cpu}"],
                hint="leave --board out for a module for any core, or name one of Zephyr's: mtool boards",
            )
        if len(taken := {model.manifest.model for model in (self, *more)}) <= len(more):
            raise UsageError("two models of an archive have the same name", details=[f"there are: {', '.join(taken)}"])
        cores = project.CORES.get(form, ()) if self.board.cpu == "host" else ()
        if cores and (self.options.single_file or self.options.backends):
            single = "has the C of many cores, which is no single file"
            why = single if self.options.single_file else "is for many cores, and a backend compiles for one"
            raise UsageError(
                f"--emit {form} without --board {why}", hint="name the board whose core it is for: --board BOARD"
            )
        variants: dict[Core, CompiledModel] = {}
        refused: dict[Core, str] = {}
        for core in cores:
            model = self._for(core.board)
            why = core.refusal(model.manifest)
            if why:
                log.warning("not for %s: %s", core.describes.partition(":")[0], why)
                refused[core] = why
            else:
                variants[core] = model
        last = [*variants.values()][-1] if variants else self
        packed = project.Packed(
            module=last._module(),
            cores={core: (model.sources(), model.manifest) for core, model in variants.items()},
            refused=refused,
            more=tuple(model._module() for model in more),
            about=about or project.About(),
            arduino=self.board.templates.get("arduino", ""),
        )
        return project.delivered(packed, form)

    def _for(self, board: str) -> "CompiledModel":
        """Return the model, compiled for another board."""
        return compile(self.path, board=board, options=replace(self.options, weights="text", known=Known()))

    def _module(self) -> "Module":
        from mtool import project

        told = os.environ.get("SOURCE_DATE_EPOCH", "")
        seconds = int(told) if told.isdecimal() else int(self.path.stat().st_mtime)
        return project.Module(self.sources(), self.manifest, self.path.read_bytes(), self.board.cpu, seconds)

    def default_folder(self) -> Path:
        """Return where the project goes unless told."""
        return default_folder(self.manifest.firmware_name, self.board)


def _runtime() -> tuple[FileTree, FileTree]:
    """Return the runtime's headers and sources."""
    crt = resources.path("crt")
    return filetree.from_folder(crt / "include"), filetree.from_folder(crt / "src")


def default_folder(model: str, board: Board) -> Path:
    """Return where the project of a model goes unless told: build/<model>-<board> below the working folder."""
    return Path("build") / f"{model}-{board.folder_name}"


def compile(
    path: str | Path, *, board: str | Board, options: Options | None = None, folder: Path | None = None
) -> CompiledModel:
    """Compile an ONNX or TFLite model to C for a board; nothing is written.

    Args:
        path: the model.
        board: a board or its name.
        options: how to compile, and which template to use.
        folder: where files will be written to, if that is known: what keeps them from it is told before the work.

    Raises:
        UsageError: there is no such file, a symbolic dimension has no value, the template or an option of it is
            unknown, or the folder can't be written to.
        ModelError: the model is malformed, or something in it can't be compiled.
        BoardError: there is no such board.
    """
    return compile_models([path], board=board, options=options, folder=folder)[0]


def compile_models(
    paths: Sequence[str | Path],
    *,
    board: str | Board,
    options: "Options | Sequence[Options] | None" = None,
    folder: Path | None = None,
) -> tuple[CompiledModel, ...]:
    """Compile models for one firmware, which has them all; nothing is written.

    Args:
        paths: the models.
        board: a board or its name.
        options: how to compile them, and which template to use; or one for each, alike in what the firmware is.
        folder: as of `compile`.

    Returns:
        The models in their order, each with the files of all; write, build or open any one of them.

    Raises:
        UsageError: two of the models have the same name, or options differ that are the firmware's; or there are no
            models, or options for some of them only.
        MtoolError: as `compile`, for one of them.
    """
    from mtool.stages import compile_cache

    start = time.monotonic()
    target = boards.get(board) if isinstance(board, str) else board
    each = [options or Options()] * len(paths) if options is None or isinstance(options, Options) else [*options]
    sources = [Path(path) for path in paths]
    pairs = requests_of(sources, target, each, folder)
    compiled = compile_cache.compiled(pairs, each[0].core_of(target), each[0].arenas)
    for source, described in zip(sources, compiled.manifests, strict=True):
        log_summary(source, described, start, is_cached=compiled.is_cached)
    if len(sources) > 1:
        each = [replace(chosen, name=one.model) for chosen, one in zip(each, compiled.manifests, strict=True)]
        saved = sum(one.shared_constant_bytes for one in compiled.manifests)
        once = f", {saved:,} B of equal constants stored once" if saved else ""
        arena_bytes = manifest.total_arena_bytes(compiled.manifests)
        log.info("  %-9s          arena %s B for all, %s B apart%s", "together", f"{arena_bytes:,}",
                 f"{compiled.apart_bytes:,}", once)  # fmt: skip
    return tuple(
        CompiledModel(source, target, chosen, compiled.files, described)
        for source, chosen, described in zip(sources, each, compiled.manifests, strict=True)
    )


def requests_of(
    sources: Sequence[Path], board: Board, options: Sequence[Options], folder: Path | None = None
) -> list[tuple[Path, Request]]:
    """Return the models of a firmware and how each is compiled; what is wrong with that is told before the work.

    Raises:
        UsageError: there are no models, or options for some of them only; an option is unknown, or options differ that
            are the firmware's; or the folder can't be written to.
    """
    if not sources or len(options) != len(sources):
        raise UsageError(f"there are {len(sources)} models to compile, and options for {len(options)}")
    for name in ("template", "template_options", "program", "arenas", "portable"):
        first, *others = (getattr(chosen, name) for chosen in options)
        if any(other != first for other in others):
            raise UsageError(f"the models of a firmware have the same {name}, and these have several")
    requests: list[Request] = []
    for chosen in options:
        check_options(board, chosen, folder)
        known = known_of(board, chosen, tells=not requests)
        requests.append(replace(chosen, weights=weights_of(board, chosen), known=known))
    return list(zip(sources, requests, strict=True))
