"""From a model to a built project: compile, project, build."""

import logging
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import boards, filetree, locks, manifest, resources
from mtool.boards import Board
from mtool.errors import UsageError
from mtool.escaping import short_name
from mtool.filetree import Edits, FileTree
from mtool.manifest import Manifest
from mtool.option_values import Arenas, Format, Weights
from mtool.request import Request
from mtool.tuned.known import Known
from mtool.workflow import formatting
from mtool.workflow.growth import warn_of_growth
from mtool.workflow.tuned import known_for

if TYPE_CHECKING:
    from mtool.build import Built
    from mtool.project import About, Module, Program
    from mtool.project.portable import Core
    from mtool.session import Device
    from mtool.several import CompiledModels

log = logging.getLogger(__name__)

HOST_DRIVEN = "host_driven"
"""The firmware kind that a session drives."""


@dataclass(frozen=True, slots=True)
class Options(Request):
    """The options of a model, of its compilation and of its project.

    template: a template's name or folder; empty: the board's first.
    template_options: values of the template's options, as text.
    edits: what to do about files in the project folder that are not as mtool wrote them: "stop", "force" overwrites
        them, "keep" leaves them.
    trust_template: a template that is named by its path may load Python code (`_extensions`).
    tuned: tuning logs, or folders of them, to take schedules from; none: those of mtool.toml.
    program: a user's own program, which is built as the standalone firmware; None: the template's.
    arenas: of the models of a firmware, if there are several.
    portable: on this computer, loops of plain C as other cores get them, and no vectors: to be read, or compiled
        elsewhere.
    """

    template: str = ""
    template_options: Mapping[str, str] = field(default_factory=dict)
    edits: Edits = "stop"
    trust_template: bool = False
    tuned: tuple[Path, ...] = ()
    program: "Program | None" = None
    arenas: Arenas = "shared"
    portable: bool = False

    def core_of(self, board: Board) -> Board:
        """Return the board as the compile half is to see it: without vectors, if the C has to be portable."""
        return board.model_copy(update={"features": board.features - {"simd"}}) if self.portable else board


@dataclass(frozen=True, slots=True)
class Model:
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
        from mtool.workflow import room

        options = self.options
        room.refuse_certain(self.files, self.manifest, self.board, options.template, options.template_options)

    def render_project(self) -> tuple[FileTree, Manifest]:
        """Return the project folder's files, and the manifest that is its `mtool.json`."""
        from mtool import project

        return project.render(
            self.files,
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

        files = {name: self.files[name] for name in self.files if not name.endswith("_rpc.c")}
        headers = filetree.from_folder(resources.path("crt") / "include")
        runtime = filetree.from_folder(resources.path("crt") / "src")
        files |= {name: runtime[name] for name in project.runtime_sources(self.files, runtime)}
        files |= {name: headers[name] for name in project.runtime_headers([FileTree(files)], headers)}
        return FileTree({**files, manifest.FILE_NAME: self.manifest.to_json()})

    def package(self, form: Format, *, about: "About | None" = None, more: Sequence["Model"] = ()) -> FileTree:
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
        if (more and form != "mlf") or (self.manifest.firmware and form != "c"):
            raise UsageError(
                f"--emit {form} holds one model", hint="several fit into --emit c, which is C for one firmware, and mlf"
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
        if cores and self.options.backends:
            raise UsageError(
                f"--emit {form} without --board is for many cores, and a backend compiles for one",
                hint="name the board whose core it is for: --board BOARD",
            )
        variants: dict[Core, Model] = {}
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

    def _for(self, board: str) -> "Model":
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


def default_folder(model: str, board: Board) -> Path:
    """Return where the project of a model goes unless told: build/<model>-<board> below the working folder."""
    return Path("build") / f"{model}-{board.folder_name}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A project that is built: its folder, what `mtool.json` in it says, and what the build made."""

    folder: Path
    board: Board
    manifest: Manifest
    built: "Built"


def compile(
    path: str | Path, *, board: str | Board, options: Options | None = None, folder: Path | None = None
) -> Model:
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
    from mtool.workflow import compiled_before

    start = time.monotonic()
    target = boards.get(board) if isinstance(board, str) else board
    chosen = options or Options()
    check_options(target, chosen, folder)
    source = Path(path)
    known = known_of(target, chosen)
    request = replace(chosen, weights=weights_of(target, chosen), known=known)
    files, described, was_before = compiled_before.compiled(source, chosen.core_of(target), request)
    _tell(source, described, start, was_before=was_before)
    return Model(source, target, chosen, files, described)


def compile_models(
    paths: Sequence[str | Path],
    *,
    board: str | Board,
    options: "Options | Sequence[Options] | None" = None,
    folder: Path | None = None,
) -> tuple[Model, ...]:
    """Compile models for one firmware, which has them all; nothing is written.

    Args:
        paths: the models.
        board: a board or its name.
        options: how to compile them, and which template to use; or one for each, alike in what the firmware is.
        folder: as of `compile`.

    Returns:
        The models in their order, each with the files of all; write, build or open any one of them.

    Raises:
        UsageError: two of the models have the same name.
        MtoolError: as `compile`, for one of them.
    """
    start = time.monotonic()
    target = boards.get(board) if isinstance(board, str) else board
    each = [options or Options()] * len(paths) if options is None or isinstance(options, Options) else [*options]
    sources = [Path(path) for path in paths]
    if len(sources) == 1:
        return (compile(sources[0], board=target, options=each[0], folder=folder),)
    compiled = compiled_together(sources, target, each, folder)
    for source, described in zip(sources, compiled.manifests, strict=True):
        _tell(source, described, start)
    saved = sum(one.shared_constant_bytes for one in compiled.manifests)
    once = f", {saved:,} B of equal constants stored once" if saved else ""
    arena_bytes = manifest.total_arena_bytes(compiled.manifests)
    log.info("  %-9s          arena %s B for all, %s B apart%s", "together", f"{arena_bytes:,}",
             f"{compiled.apart_bytes:,}", once)  # fmt: skip
    return tuple(
        Model(source, target, replace(chosen, name=described.model), compiled.files, described)
        for source, chosen, described in zip(sources, each, compiled.manifests, strict=True)
    )


def compiled_together(
    sources: Sequence[Path], board: Board, options: Sequence[Options], folder: Path | None = None
) -> "CompiledModels":
    """Return several models as the compile half makes them for one firmware; the arguments as of `compile_models`.

    Raises:
        MtoolError: as `compile_models`.
    """
    from mtool.several import compile_models as compile_several

    requests: list[Request] = []
    for chosen in options:
        check_options(board, chosen, folder)
        known = known_of(board, chosen, tells=not requests)
        requests.append(replace(chosen, weights=weights_of(board, chosen), known=known))
    core = options[0].core_of(board)
    return compile_several(list(zip(sources, requests, strict=True)), core, options[0].arenas)


def _tell(source: Path, described: Manifest, start: float, *, was_before: bool = False) -> None:
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
    arena = f"arena {described.arena_bytes:,} B (bound {described.arena_bound_bytes:,} B)"
    _done("compile", start, f"{note}, {arena}" + (", from the cache" if was_before else ""))
    warn_of_growth(described)


def check_options(board: Board, options: Options, folder: Path | None = None) -> None:
    """Say now what is wrong whatever the model: a project's template, the options of that, its folder, schedules.

    Raises:
        UsageError: the template, an option of it or a schedule is unknown, or the folder holds something else or can't
            be written to.
    """
    from mtool import project
    from mtool.plan.choice import check_schedules

    if options.template or board.templates:
        project.choose(board, options.template, options.template_options)
    if options.schedules:
        check_schedules(options.schedules)
    if folder is not None:
        filetree.check_folder(folder, edits=options.edits)


def known_of(board: Board, options: Options, *, tells: bool = True) -> Known:
    """Return what tuning has found: what the options know already, else what their logs do, or those of mtool.toml.

    `tells`: that the logs know nothing for the board is told.

    Raises:
        UsageError: a log is missing or malformed.
        BuildError: there are logs, and the compiler that they are looked up for is not installed.
    """
    if options.known != Known():
        return options.known
    return known_for(board, options.tuned, options.template, options.template_options, tells=tells)


def weights_of(board: Board, options: Options) -> Weights:
    """Return how constants are written: as text where the project's builder compiles C and C++ alone, as Arduino's."""
    from mtool import project

    template = options.template or next(iter(board.templates), "")
    return "text" if template and project.load(template).builder == "arduino" else options.weights


def write_project(model: Model, folder: Path | None = None) -> Path:
    """Write a compiled model's project folder and return it; files that are right already are left alone.

    Raises:
        UsageError: the folder holds something else, or files of it were edited, or a template or an option is unknown.
    """
    target = folder or model.default_folder()
    tree, _ = model.render_project()
    filetree.write(tree, target, edits=model.options.edits)
    return target


def write_sources(
    model: Model,
    folder: Path | None = None,
    *,
    form: Format = "c",
    about: "About | None" = None,
    more: Sequence[Model] = (),
) -> Path:
    """Write a compiled model's C and what it includes, without a project, and return the folder.

    Args:
        model: what `compile` returned.
        folder: where to; default: build/<model>-<board>-<form>.
        form: "c" for the files alone, or a package: "cmake", "zephyr-module", "arduino-lib", "platformio-lib",
            "idf-component", "cmsis-pack", "mlf".
        about: who made the package, and the like.
        more: other models of the same archive, "mlf" alone.

    Raises:
        UsageError: the folder holds something else.
        MtoolError: as `compile`, for one of the cores of a package that is for many.
    """
    return write_package(model, model.package(form, about=about, more=more), folder, form=form)


def write_package(model: Model, files: FileTree, folder: Path | None = None, *, form: Format) -> Path:
    """Write the files of a model's package, as `Model.package` returned them, and return the folder.

    Raises:
        UsageError: the folder holds something else.
    """
    default = model.default_folder()
    target = folder or default.with_name(f"{default.name}-{form}")
    filetree.write(files, target, edits=model.options.edits)
    return target


@locks.keep_locks()
def build_model(model: Model, folder: Path | None = None, *, kinds: Sequence[str] = (HOST_DRIVEN,)) -> Prepared:
    """Write a compiled model's project and build its firmware of the given kinds, unless that is up to date.

    Raises:
        UsageError: the folder holds something else, or a template or an option is unknown.
        FitError: the firmware does not fit the board; what is certain is told before anything is written.
        BuildError: a toolchain is missing, or the build failed.
    """
    model.refuse_certain()
    return build_project(model.board, write_project(model, folder), kinds=kinds, model=model.manifest.model)


def build_project(board: Board, folder: Path, *, kinds: Sequence[str] = (HOST_DRIVEN,), model: str = "") -> Prepared:
    """Build the firmware of the given kinds of a project that is written, unless that is up to date.

    `model` is the name of the one whose manifest is wanted; empty: the first.

    Raises:
        FitError: the firmware does not fit the board.
        BuildError: a toolchain is missing, or the build failed.
    """
    from mtool import build as building

    start = time.monotonic()
    built = building.build(folder, kinds=kinds)
    _done("build", start, built.how + (f", {board.cpu}" if built.rebuilt else ""))
    described = built.manifest
    if model:
        chosen = manifest.named(described.models, model)
        described = chosen.model_copy(update={"project": described.project, "firmware": described.firmware})
    return Prepared(built.folder, board, described, built)


def build_plan(model: Model, folder: Path | None = None, *, kinds: Sequence[str] = (HOST_DRIVEN,)) -> list[str]:
    """Return the commands of a first build, as a shell would take them; nothing is written or run.

    Lines that start with # tell what mtool itself does.
    """
    return rendered_plan(model, *model.render_project(), folder, kinds=kinds)


def rendered_plan(
    model: Model, tree: FileTree, described: Manifest, folder: Path | None = None, *, kinds: Sequence[str]
) -> list[str]:
    """Return the same, of a project that is rendered already."""
    from mtool import build as building

    assert described.project is not None
    project_folder = folder or model.default_folder()
    return [
        f"# compile {model.path.name}, write the project {project_folder} ({len([*tree])} files)",
        f"cd {shlex.quote(str(project_folder))}",
        *building.plan(described.project, kinds),
    ]


def prepare(
    path: str | Path,
    *,
    board: str | Board,
    folder: Path | None = None,
    options: Options | None = None,
    kinds: Sequence[str] = (HOST_DRIVEN,),
) -> Prepared:
    """Compile a model, write its project and build the firmware; does again only what is stale.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        folder: the project folder; default: build/<model>-<board>.
        options: how to compile and which template to use.
        kinds: the firmware kinds to build: "host_driven" is what a session drives, "standalone" runs by itself.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    return build_model(compile(path, board=board, options=options, folder=folder), folder, kinds=kinds)


def open(what: "str | Path | Model | Prepared") -> "Device":
    """Start a session with a project's firmware; use it in a `with` statement.

    Args:
        what: a project folder that is built, or what `mtool.compile` or `mtool.prepare` returned.

    Raises:
        MtoolError: the build failed, or the firmware does not answer.
    """
    from mtool import session

    if isinstance(what, Model):
        return session.open(build_model(what).folder)
    return session.open(what.folder if isinstance(what, Prepared) else Path(what))


def _done(stage: str, start: float, note: str) -> None:
    log.info("  %-9s %4.1f s   %s", stage, time.monotonic() - start, note)
