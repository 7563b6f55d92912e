"""A compiled model and the files written for it; compile one model, or several for one firmware."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtool import boards, manifest
from mtool.base import filetree, plural, resources
from mtool.base.errors import FitError, UsageError
from mtool.base.escaping import short_name
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.base.option_values import Format, Slide
from mtool.boards import Board
from mtool.compiler.request import Request
from mtool.compiler.tuned.results import TuningResults
from mtool.manifest import Manifest, Protection, link_key
from mtool.stages import formatting
from mtool.stages.options import Options, check_options, protects, tuning_results_of, weights_of

if TYPE_CHECKING:
    from mtool.project import About, Module, Runtime
    from mtool.project.portable import Core


log = logging.getLogger(__name__)
_LEAST_OVERHEAD_BYTES = 1024  # smaller growth of an operator's constants is not reported; the manifest has all of it
_NAMED = 3


def warn_of_weight_overhead(manifest: Manifest) -> None:
    """Warn of constants that take at least a tenth more flash than in the model's file: name the largest, and why.

    Growth that was chosen for speed, where the board has room (plan.for_time), is logged at debug level only.
    """
    reported = [row for row in manifest.weight_overhead if row.flash_bytes - row.file_bytes >= _LEAST_OVERHEAD_BYTES]
    for row in reported:
        if row.for_speed:
            log.debug("%s: %s B more flash: %s", row.operator, f"{row.flash_bytes - row.file_bytes:,}", row.reason)
    grown = [row for row in reported if not row.for_speed]
    if not grown:
        return
    before, after = (sum(getattr(row, kind) for row in grown) for kind in ("file_bytes", "flash_bytes"))
    for row in grown[:_NAMED]:
        log.warning(
            "%s takes %s B in the model's file and %s B in flash: %s",
            short_name(row.tensor), f"{row.file_bytes:,}", f"{row.flash_bytes:,}", row.reason,
        )  # fmt: skip
    if len(grown) > _NAMED:
        log.warning(
            "%d operators' constants take %s B in the model's file and %s B in flash: `weight_overhead` in mtool.json",
            len(grown), f"{before:,}", f"{after:,}",
        )  # fmt: skip


def log_summary(source: Path, described: Manifest, start: float, *, is_cached: bool = False) -> None:
    """Log a summary of a compiled model: its tensors, size, operators and arena."""
    inputs = ", ".join(formatting.tensor(tensor) for tensor in described.inputs if tensor.range is None)
    outputs = ", ".join(map(formatting.tensor, described.outputs))
    for limits in (tensor.range for tensor in described.sizes):
        if limits is not None:
            outputs += f"   {short_name(limits.dimension)} = {limits.least} to {limits.most} at run time"
    if described.states:
        state_bytes = sum(state.bytes for state in described.states)
        outputs += f"   keeps {plural.count(len(described.states), 'state')}, {state_bytes:,} B"
    size = f"{formatting.amount(described.macs)} MACs, {formatting.amount(described.parameters)} parameters"
    log.info("%s   %s -> %s   %s", short_name(source.stem), inputs, outputs, size)
    functions = len({operator.function for operator in described.operators})
    operators = described.operators
    by_rows = {op.whole for op in operators if op.whole and not op.label.endswith(" rows")}  # keep rows, pad rows
    count = sum(1 for operator in operators if not operator.whole) + len(by_rows)
    some = f" ({len(by_rows)} by rows)" if by_rows else ""
    note = f"{plural.count(count, 'operator')}{some} in {plural.count(functions, 'function')}"
    arena = formatting.arena(described)
    cached = ", from the cache" if is_cached else ""
    log.info("  %-9s %4.1f s   %s, %s%s", "compile", time.monotonic() - start, note, arena, cached)
    if described.protection is not None:
        log.info("  %-9s          %s", "protect", _areas(described.protection))
    warn_of_weight_overhead(described)


def _areas(protection: Protection) -> str:
    """Return the protected areas as text: the size and granule of each."""
    areas = [
        f"{area.access}s {area.name} " + (f"{area.bytes:,} B " if area.bytes else "") + f"(granule {area.granule:,} B)"
        for area in protection.areas
    ]
    return f"{protection.unit}: {', '.join(areas)}"


@frozen
class CompiledModel:
    """A compiled model: its C files and manifest, for one board.

    If a firmware has several models, each has the files of all of them; `firmware` are their paths and options.
    """

    path: Path
    board: Board
    options: Options
    files: FileTree
    manifest: Manifest
    firmware: tuple[tuple[Path, Options], ...] = ()

    def refuse_certain(self) -> None:
        """Fail before a build that can't succeed: the constants and the arena alone exceed a memory.

        Raises:
            FitError: they do.
        """
        from mtool.stages.sizes import estimate

        options = self.options
        estimate.refuse_certain(
            self.files, self.manifest, self.board, options.template, options.of_template(self.board)
        )

    def render_project(self) -> tuple[FileTree, Manifest]:
        """Return the project folder's files, and the manifest for its `mtool.json`."""
        from mtool import project

        return project.render(
            self._in_project(),
            self.manifest,
            self.board,
            template=self.options.template,
            options=self.options.of_template(self.board),
            program=self.options.program,
            trust=self.options.trust_template,
        )

    def sources(self) -> FileTree:
        """Return the files for a build of your own: the model's, the runtime files that they use, and `mtool.json`."""
        from mtool import project

        texts = {name: self.files[name] for name in self.files if not name.endswith("_rpc.c")}
        files = FileTree(texts, self.files.outline)
        headers, runtime = _runtime()
        needed = {name: runtime[name] for name in project.runtime_sources(files, runtime)}
        if self.options.single_file:
            files, needed = self._single(files, project.Runtime(headers.files, needed)), {}
        return self._complete({**files.files, **needed}, self.manifest)

    def _served(self, form: Format) -> "tuple[FileTree, Manifest]":
        """Return `sources` with the RPC server (crt/include/mt_rpc.h), and the manifest with its project."""
        from mtool import project

        _, runtime = _runtime()
        port = filetree.from_folder(resources.path("crt") / "rpc")
        all_files = {**self._in_project().files, **runtime.files, **port.files}
        if (key := link_key.of_option(self.options.template_options)) is not None:
            all_files |= {**link_key.headers(key), **link_key.file(key).files}
        files, described = project.own_firmware(all_files, self.manifest, self.board, form)
        return self._complete(files, described), described

    def _complete(self, files: dict[str, bytes], described: Manifest) -> FileTree:
        """Return files with the runtime headers that they include, and `mtool.json`."""
        from mtool import project

        headers, _ = _runtime()
        included = {name: headers[name] for name in project.runtime_headers([FileTree(files)], headers)}
        return FileTree({**included, **files, manifest.FILE_NAME: described.to_json()})

    def _single(self, files: FileTree, runtime: "Runtime") -> FileTree:
        from mtool import project

        models = [model.model for model in self.manifest.models]
        return project.single_file(files, models, self.manifest.firmware_name, runtime)

    def _in_project(self) -> FileTree:
        """Return the model's files for a project, which has the runtime's sources beside them."""
        from mtool import project

        if not self.options.single_file:
            return self.files
        headers, runtime = _runtime()
        beside = {Path(name).with_suffix(".h").name for name in project.runtime_sources(self.files, runtime)}
        alone = {name: headers[name] for name in headers if name not in beside}
        return self._single(self.files, project.Runtime(alone))

    def package(
        self,
        form: Format,
        *,
        about: "About | None" = None,
        more: Sequence["CompiledModel"] = (),
        rpc: bool = False,
    ) -> FileTree:
        """Return the files of the model's package; "c" is `sources`.

        A model that was compiled for this computer is compiled for each core that the package supports.

        Args:
            form: the package's format.
            about: its author, version and license.
            more: other models in the same archive, each compiled by itself; "mlf" only.
            rpc: with the RPC server, for firmware of your own that a session drives (crt/include/mt_rpc.h).

        Raises:
            UsageError: the format does not support the model's options, several models or the board.
            MtoolError: as `compile`, for one of the cores; or large constants are in a binary file.
        """
        from mtool import project

        manifest = self.manifest
        if form == "mlf" and (
            manifest.caller_has_arena or manifest.firmware or manifest.pools or manifest.constant_pools
        ):
            raise UsageError(
                "--emit mlf holds models with one arena of their own, each by itself",
                hint="leave out --arena and --pool, or use another format: --emit cmake",
            )
        if more and form != "mlf":
            raise UsageError(
                f"--emit {form} holds the models of one firmware",
                hint="compile them together (compile_models), or use --emit mlf",
            )
        if form == "zephyr-module" and self.board.cpu != "host" and "zephyr" not in self.board.templates:
            raise UsageError(
                f"{self.board.name} is not a Zephyr board, as --emit zephyr-module needs",
                details=[f"no Zephyr name is known for it ({self.board.cpu})"],
                hint="leave out --board for a module for any core, or choose a Zephyr board: mtool boards",
            )
        if len(names := {model.manifest.model for model in (self, *more)}) <= len(more):
            raise UsageError("two models of the archive have the same name", details=[f"names: {', '.join(names)}"])
        cores = project.CORES.get(form, ()) if self.board.cpu == "host" else ()
        if rpc and (cores or form == "mlf"):
            raise UsageError(
                f"--rpc is not supported by --emit {form}" + (" without --board" if cores else ""),
                details=["the host must know which core's C the firmware runs"] if cores else (),
                hint="choose the core by its board: --board BOARD" if cores else "use another format: --emit cmake",
            )
        if cores and (self.options.single_file or self.options.backends):
            single = "holds C for many cores, which does not fit in a single file"
            why = single if self.options.single_file else "holds C for many cores, and a backend compiles for one"
            raise UsageError(f"--emit {form} without --board {why}", hint="choose the core by its board: --board BOARD")
        pools = [pool for _, request in self.firmware for pool in request.pools]
        if cores and (unplaced := [pool.name for pool in pools if not pool.section]):
            raise UsageError(
                f"--emit {form} without --board holds C for many cores, whose boards do not all have {unplaced[0]}",
                hint=f"name its section: --pool {unplaced[0]}=BYTES,section=NAME; or the board: --board BOARD",
            )
        variants: dict[Core, CompiledModel] = {}
        reasons: dict[Core, str] = {}
        for core in cores:
            try:
                model = self._for(core)
                why = core.refusal(model.manifest)
            except FitError as too_large:  # for its pools
                why = too_large.what
            if why:
                log.warning("left out %s: %s", core.describes.partition(":")[0], why)
                reasons[core] = why
            else:
                variants[core] = model
        if cores and not variants:
            raise FitError(f"{manifest.firmware_name} fits none of the cores", details=[*reasons.values()])
        last = [*variants.values()][-1] if variants else self
        packed = project.Packed(
            module=last._module(form if rpc else ""),
            cores={core: (model.sources(), model.manifest) for core, model in variants.items()},
            refused=reasons,
            more=tuple(model._module() for model in more),
            about=about or project.About(),
            arduino=self.board.templates.get("arduino", ""),
            arena_sections={
                request.arena_section: f"the arena of {model.model}"
                for (_, request), model in zip(self.firmware, self.manifest.models, strict=False)
                if request.arena_section
            },
        )
        return project.delivered(packed, form)

    def _for(self, core: "Core") -> "CompiledModel":
        """Return the model, with the others of its firmware, compiled for another core."""
        paths = [path for path, _ in self.firmware]
        options = [replace(chosen, weights="text", tuning_results=TuningResults()) for _, chosen in self.firmware]
        board = boards.get(core.board)
        board = board.model_copy(update={"features": board.features - core.lacks})
        return compile_models(paths, board=board, options=options)[0]

    def _module(self, served_as: Format | Literal[""] = "") -> "Module":
        from mtool import project

        epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
        seconds = int(epoch) if epoch.isdecimal() else int(self.path.stat().st_mtime)
        sources, described = self._served(served_as) if served_as else (self.sources(), self.manifest)
        return project.Module(sources, described, self.path.read_bytes(), self.board.cpu, seconds)

    def default_folder(self) -> Path:
        """Return the default project folder."""
        return default_folder(self.manifest.firmware_name, self.board)


def _runtime() -> tuple[FileTree, FileTree]:
    """Return the runtime's headers and sources."""
    crt = resources.path("crt")
    return filetree.from_folder(crt / "include"), filetree.from_folder(crt / "src")


def default_folder(model: str, board: Board) -> Path:
    """Return the default project folder of a model: build/<model>-<board> in the working folder."""
    return Path("build") / f"{model}-{board.folder_name}"


def compile(
    path: str | Path, *, board: str | Board, options: Options | None = None, folder: Path | None = None
) -> CompiledModel:
    """Compile an ONNX or TFLite model to C for a board; nothing is written.

    Args:
        path: the model.
        board: a board or its name.
        options: how to compile, and which template to use.
        folder: where files will be written to, if known: it is checked before compiling.

    Raises:
        UsageError: the file does not exist, a symbolic dimension has no value, the template or one of its options is
            unknown, or the folder can't be written to.
        ModelError: the model is malformed, or part of it can't be compiled.
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
    """Compile models for one firmware that contains them all; nothing is written.

    Args:
        paths: the models.
        board: a board or its name.
        options: how to compile them, and which template to use; or one for each, equal in the firmware's options.
        folder: as in `compile`.

    Returns:
        The models in order, each with the files of all; write, build or open any one of them.

    Raises:
        UsageError: two of the models have the same name, or their options for the firmware differ; or there are no
            models, or the number of options differs from theirs.
        MtoolError: as `compile`, for one of them.
    """
    from mtool.stages import compile_cache

    start = time.monotonic()
    target = boards.get(board) if isinstance(board, str) else board
    opts = [options or Options()] * len(paths) if options is None or isinstance(options, Options) else [*options]
    sources = [Path(path) for path in paths]
    pairs = requests_of(sources, target, opts, folder)
    compiled = compile_cache.compiled(pairs, opts[0].core_of(target), opts[0].arenas)
    for source, described in zip(sources, compiled.manifests, strict=True):
        log_summary(source, described, start, is_cached=compiled.is_cached)
    if len(sources) > 1:
        opts = [replace(chosen, name=manifest.model) for chosen, manifest in zip(opts, compiled.manifests, strict=True)]
        saved = sum(manifest.shared_constant_bytes for manifest in compiled.manifests)
        once = f", {saved:,} B of equal constants stored once" if saved else ""
        arena_bytes = manifest.total_arena_bytes(compiled.manifests)
        log.info("  %-9s          arena %s B for all, %s B apart%s", "together", f"{arena_bytes:,}",
                 f"{compiled.apart_bytes:,}", once)  # fmt: skip
    opts = [with_windows(chosen, manifest) for chosen, manifest in zip(opts, compiled.manifests, strict=True)]
    return tuple(
        CompiledModel(source, target, chosen, compiled.files, described, tuple(zip(sources, opts, strict=True)))
        for source, chosen, described in zip(sources, opts, compiled.manifests, strict=True)
    )


def with_windows(options: Options, described: Manifest) -> Options:
    """Return a compiled model's options with the windows of its inputs, as they were compiled."""
    slides = [
        Slide(one.name, one.shape[one.window.axis], one.window.axis, one.window.rows, (one.zero_point or (0,))[0])
        for one in described.inputs
        if one.window is not None
    ]
    return replace(options, slides=tuple(slides)) if slides else options


def requests_of(
    sources: Sequence[Path], board: Board, options: Sequence[Options], folder: Path | None = None
) -> list[tuple[Path, Request]]:
    """Return the models of a firmware and how each is compiled; options are checked before compiling.

    Raises:
        UsageError: there are no models, or the number of options differs from theirs; an option is unknown, or the
            options for the firmware differ; or the folder can't be written to.
    """
    if not sources or len(options) != len(sources):
        raise UsageError(f"models to compile: {len(sources)}, options for: {len(options)}; expected one for each model")
    for name in ("template", "template_options", "program", "arenas", "portable"):
        first, *others = (getattr(chosen, name) for chosen in options)
        if any(other != first for other in others):
            raise UsageError(f"the models of a firmware need the same {name}, and these differ")
    requests: list[Request] = []
    for chosen in options:
        check_options(board, chosen, folder)
        results = tuning_results_of(board, chosen, warns=not requests)
        protect = protects(board, chosen)
        requests.append(replace(chosen, weights=weights_of(board, chosen), tuning_results=results, protect=protect))
    return list(zip(sources, requests, strict=True))
