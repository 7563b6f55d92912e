"""Start a user's own project, and update the part of it that mtool generates."""

import contextlib
import logging
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from mtool import boards, project
from mtool.base import configuration, distribution, filetree
from mtool.base.configuration import FILE_NAME
from mtool.base.errors import UsageError
from mtool.base.escaping import plain
from mtool.base.filetree import Edits, FileTree
from mtool.base.option_values import ProjectType
from mtool.boards import Board
from mtool.commands import applications
from mtool.commands.user_project import GENERATED, PROGRAM, UserProject, require
from mtool.compiler import frontend
from mtool.compiler.frontend import is_tflite
from mtool.compiler.ir import DType
from mtool.device.build import toolchains
from mtool.device.build.build import BUILDERS
from mtool.preprocessing.prepending import preprocess, rate_of
from mtool.project.user_files import own_files
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.fitting import fit_of
from mtool.stages.options import Options, parse
from mtool.version import __version__

# The front ends of known models, which a new project prepends: its program passes a sensor's samples.

_FRONT_ENDS = {
    (1, 30, 1, 40): "mlperf_wake_word:rows=1",  # MLPerf Tiny's streaming wake word
    (1, 3, 40): "micro_wake_word",  # microWakeWord, with steps of 10 ms
    (1, 1, 40): "micro_speech:rows=1",  # its first version, with steps of 20 ms
    (1, 49, 40, 1): "micro_speech:rows=1",  # TensorFlow Lite Micro's micro_speech
    (1, 1960): "micro_speech:rows=1",
}
"""The front ends of known models, by the shape of the model's input."""

_FIRST = ",first=0.474"  # the middle of the features: the benchmark's reference firmware starts with rows of 0


@contextlib.contextmanager
def with_front_end(model: Path, options: Options, *, needs_one: bool) -> Iterator[Path]:
    """Yield a model that takes samples: itself, or a temporary file with its front end prepended.

    Args:
        model: the model's file.
        options: its options.
        needs_one: the model has to take samples; else it is a benchmark's.

    Raises:
        UsageError: it takes something else, and its front end is unknown.
    """
    graph = frontend.load(model, options)
    kinds = [graph.types[name] for name in graph.caller_inputs]
    if len(kinds) == 1 and kinds[0].dtype is DType.INT16 and kinds[0].count == kinds[0].shape[-1]:
        yield model
        return
    front = _FRONT_ENDS.get(kinds[0].shape) if len(kinds) == 1 else None
    if front is None:
        if needs_one:
            raise UsageError(
                f"{model.name} does not take samples of a sensor",
                details=["expected  one input, int16[samples]", f"found     {', '.join(map(str, kinds))}"],
                hint=f"prepend its front end: mtool preprocess KIND {model} (docs/preprocess.md)",
            )
        yield model
        return
    log.info("%s gets the front end %s", model.name, front)
    with tempfile.TemporaryDirectory(prefix="mtool-front-") as folder:
        front += "" if needs_one or "mlperf" not in front else _FIRST
        yield preprocess(front, model, output=Path(folder) / f"{model.stem}.onnx", options=options).path


log = logging.getLogger(__name__)

_MODELS = "models"
_MAY_BE_THERE = frozenset({".git"})
_BENCHMARKS = {12: "kws01", 10: "ic01", 2: "vww01"}  # MLPerf Tiny's, by the number of classes


@dataclass(frozen=True, slots=True)
class NewProject:
    """A new project: the contents of its `mtool.toml`, the user's files, and whether the model will fit."""

    project: UserProject
    own: tuple[str, ...]
    fits: bool = True


def new_project(
    folder: Path,
    model: Path,
    *,
    board: str,
    kind: ProjectType = "standalone",
    test_board: str = "",
    options: Mapping[str, Any] | None = None,
    edits: Edits = "stop",
) -> NewProject:
    """Write a user's own project: a program around a model, its tests and its CI.

    Args:
        folder: the project's folder, which must be new, or empty except for `.git`.
        model: the ONNX or TFLite model, which is copied into the project, as are the files of your own boards.
        board: the name of the board that the program is for.
        kind: the type of the project.
        test_board: the name of the board that its tests run on; empty: an emulated one with the same processor.
        options: options of `mtool build`, by their names in Python, with values as on the command line.
        edits: what to do with existing files: "keep" keeps them and writes the others.

    Raises:
        UsageError: the folder is not empty, or can't be written to; an option is wrong; the model does not exist; the
            template can't build a user's own program.
        MtoolError: the model can't be compiled.
    """
    target = boards.get(board)
    tested = boards.get(test_board) if test_board else test_board_for(target)
    settings = dict(options or {})
    if kind == "mlperftiny":
        settings.setdefault("io", "external")  # an inference does not overwrite its input, so that it can be repeated
    edits = _check_folder(folder, edits)
    chosen = project.choose(target, settings.get("template", ""), {})[0]
    if kind != "host-driven" and chosen.program == "none":
        raise UsageError(
            f"the template {chosen.name} does not build your own program",
            details=["its template.yaml has neither program: c nor program: sketch"],
            hint="use --type host-driven, or another template",
        )
    is_app = kind in applications.APPLICATIONS
    if is_app or kind == "mlperftiny":
        with with_front_end(model, parse(**settings), needs_one=is_app) as whole:
            return _begin(folder, whole, target, tested, kind, chosen, settings, edits)
    return _begin(folder, model, target, tested, kind, chosen, settings, edits)


def _begin(
    folder: Path,
    model: Path,
    target: Board,
    tested: Board,
    kind: ProjectType,
    chosen: project.Template,
    options: Mapping[str, Any],
    edits: Edits,
) -> NewProject:
    """Write the project of a model."""
    compiled = compile(model, board=target, options=parse(**options))
    inputs, outputs = len(compiled.manifest.inputs), len(compiled.manifest.outputs)
    if kind == "mlperftiny" and (inputs, outputs) != (1, 1):
        raise UsageError(
            "MLPerf Tiny's models have one input and one output",
            details=[f"this one has {inputs} and {outputs}"],
            hint="use --type standalone",
        )
    values = _values(folder, kind, compiled, tested, chosen, options)
    user_files = own_files(kind, compiled.manifest, target, chosen, values)
    tree = user_files.merged(_model_files(model), _MODELS).merged(_board_files(target, tested), boards.FOLDER)
    return _write(folder, tree, user_files, compiled, edits)


def update_project(*, edits: Edits = "stop") -> tuple[Path, bool]:
    """Update the generated folder of the project that the working folder is in.

    Returns:
        The generated folder, and whether anything changed.

    Raises:
        UsageError: it is not in a project, or files in the generated folder were edited and `edits` is "stop".
        MtoolError: the model can't be compiled.
    """
    project = require()
    project.check_model()
    target = project.folder_for(project.board)
    options = project.options_for(project.board, keep=edits == "keep", force=edits == "force")
    model = compile(project.model, board=project.board, options=options, folder=target)
    return target, filetree.write(model.render_project()[0], target, edits=edits)


def test_board_for(board: Board) -> Board:
    """Return the board for tests without an attached board: itself if it is emulated, else an emulated one like it."""
    if _runs_here(board):
        return board
    alike = [other for other in boards.load_all().values() if other.cpu == board.cpu and _runs_here(other)]
    alike.sort(key=lambda other: {*other.features} != {*board.features})
    return alike[0] if alike else boards.get("host")


def _runs_here(board: Board) -> bool:
    return bool(board.templates) and (
        board.emulator is not None or project.load(next(iter(board.templates))).transport == "process"
    )


def _check_folder(folder: Path, edits: Edits) -> Edits:
    """Return how existing files are treated.

    Raises:
        UsageError: the folder is a project already, or has other contents.
    """
    for name in (FILE_NAME, filetree.FOLDER, GENERATED):
        if (folder / name).exists():
            raise UsageError(
                f"{folder} is a project already",
                details=[f"it has {name}"],
                hint="to update its generated files: mtool update" if name == FILE_NAME else "give another folder",
            )
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    policy: Edits = "keep" if there <= _MAY_BE_THERE else edits
    filetree.check_folder(folder, edits=policy)
    return policy


def _write(folder: Path, tree: FileTree, user_files: FileTree, compiled: CompiledModel, edits: Edits) -> NewProject:
    """Write the user's part and then mtool's; if that fails, nothing is left."""
    with filetree.written_once(tree, folder, edits=edits):
        user_project = require(folder)
        options = user_project.with_program(compiled.options, user_project.board, folder / GENERATED)
        filetree.write(replace(compiled, options=options).render_project()[0], folder / GENERATED)
    fit = fit_of(compiled, folder=folder / GENERATED)
    if not fit.fits:
        log.warning("%s does not fit %s", compiled.path.name, fit.board)
        for line in (*fit.lines(compiled.manifest), fit.hint(compiled.manifest)):
            log.warning("  %s", line)
    return NewProject(user_project, tuple(user_files), fit.fits)


def _model_files(model: Path) -> FileTree:
    """Return a model's file and the files with its external data."""
    files = {model.name: model.read_bytes()}
    if not is_tflite(model):
        with contextlib.suppress(Exception):  # it was compiled: what onnx can't read is a .tflite file
            proto = onnx.load(str(model), load_external_data=False)
            for tensor in proto.graph.initializer:
                location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
                if location and location not in files:
                    files[location] = (model.parent / location).read_bytes()
    return FileTree(files)


def _board_files(*used: Board) -> FileTree:
    """Return the user's own board files that a project uses, so that it can be moved."""
    files = {boards.file_of(board.name) for board in used}
    return FileTree({f"{path.stem}.yaml": path.read_bytes() for path in files if path is not None})


def _roots(folder: Path) -> dict[str, list[str]]:
    """Return the folders of Zephyr's boards, chips and bindings in this mtool.toml, relative to a project."""
    config = configuration.load()
    paths_by_key = {key: getattr(config, key) for key in configuration.ROOTS}
    return {key: [_relative(path, folder) for path in paths] for key, paths in paths_by_key.items() if paths}


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def _values(
    folder: Path,
    kind: ProjectType,
    model: CompiledModel,
    tested: Board,
    template: project.Template,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the values that the user's files are rendered with, besides the model, the board and the template."""
    board, manifest, built = model.board, model.manifest, model.render_project()[1].project
    assert built is not None
    builds_here = template.builder in ("host", "cmake", "west", "zig") or board.port.get("core") == "avr"
    tools = {*_tools(tested, next(iter(tested.templates), ""))}
    tools |= {*_tools(board, template.name)} if builds_here else set()
    packages, extras = _installation(tools)
    needs_west = template.builder == "west"
    is_sound = len(manifest.inputs) == 1 and manifest.inputs[0].dtype == "int16" and bool(manifest.states)
    classes = manifest.outputs[0].bytes if manifest.outputs else 0
    classes //= 4 if manifest.outputs and manifest.outputs[0].dtype == "float32" else 1
    is_autoencoder = bool(manifest.outputs) and manifest.outputs[0].shape == manifest.inputs[0].shape
    return {
        "title": plain(folder.resolve().name),
        "type": kind,
        "test_board": tested.model_dump(mode="json"),
        # The memory of a test board that stands in for another is not a limit.
        "memory": {role: _size(board, role) or _size(tested, role) for role in ("code", "arena")},
        "options": _stored(folder, options),
        "roots": _roots(folder),
        "model_path": f"{_MODELS}/{model.path.name}",
        "distribution": distribution.NAME,
        "version": __version__,
        "extras": sorted({"litert" if is_tflite(model.path) else "verify", "test", *extras}),
        "packages": packages,
        "builds_here": builds_here,
        "firmware": f"{GENERATED}/{built.firmware['host_driven' if kind == 'host-driven' else 'standalone']}",
        "needs_west": needs_west,
        "is_attached": not _runs_here(board) or board.usb is not None,
        "app": _app(kind, model) if kind in applications.APPLICATIONS else None,
        "benchmark": "sww01" if is_sound else "ad01" if is_autoencoder else _BENCHMARKS.get(classes, "unspecified"),
        "program": PROGRAM,
    }


def _app(kind: str, model: CompiledModel) -> dict[str, Any]:
    """Return the settings of a new application, with the rate of the model's front end."""
    rate, scores = rate_of(model.path), model.manifest.outputs[0]
    settings = applications.settings_of(kind, {"rate": rate} if rate else {}, str(model.path))
    count = math.prod(scores.shape)
    if count > 1:
        for name, element in settings.keywords.items():
            log.info(
                "%s: element %d of the %d of %s; change it in [app.keywords] of %s",
                name, element, count, scores.name, FILE_NAME,
            )  # fmt: skip
    return settings.model_dump()


def _size(board: Board, role: str) -> int:
    """Return the size of the memory with a role; 0: unknown."""
    region = board.region_for(role)
    return board.memories[region].size if region is not None else 0


def _tools(board: Board, template: str) -> Iterable[str]:
    builder = project.load(template).builder if template else ""
    emulator = [board.emulator.program] if board.emulator else []
    needs = BUILDERS[builder].needs if builder else ()
    extra = {"arduino": ("cmake",), "west": ("west",)}.get(builder, ())
    return (name for name in (board.toolchain, *emulator, *needs, *extra) if name in toolchains.load_all())


def _installation(tools: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the Debian packages and mtool extras that install tools, from the suggested commands."""
    packages, extras = set(), set()
    for name in tools:
        line = toolchains.load_all()[name].install
        for listed in re.findall(r"apt-get install ([\w.+ -]+)", line):
            packages.update(listed.split())
        extras.update(re.findall(r"\[([\w-]+)\]", line))
    return sorted(packages), extras


def _stored(folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the form of `mtool.toml`: with paths relative to the project."""

    def placed(value: Any) -> Any:
        if isinstance(value, str) and Path(value).exists() and ("/" in value or "." in value):
            return _relative(Path(value), folder)
        return [placed(item) for item in value] if isinstance(value, list | tuple) else value

    return {name: placed(value) for name, value in options.items()}
