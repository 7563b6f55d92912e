"""From a model to a built project and a session with its firmware; the commands that a build runs."""

import logging
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mtool import manifest
from mtool.base import checked, filetree, locks, plural
from mtool.base.errors import FitError, UsageError
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.base.option_values import CHANNEL, Format
from mtool.boards import Board
from mtool.manifest import Manifest, StackBound
from mtool.manifest.link_key import FILE_NAME, LinkKey, find
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.options import Options

if TYPE_CHECKING:
    from mtool.device.build import Built
    from mtool.device.build.fit import Need
    from mtool.device.session import Device
    from mtool.stages.checkup import Item


log = logging.getLogger(__name__)


def write_project(model: CompiledModel, folder: Path | None = None) -> Path:
    """Write a compiled model's project folder and return it; files that are up to date are not touched.

    Raises:
        UsageError: the folder holds something else, its files were edited, or a template or an option is unknown; or
            its firmware takes modules, and the new firmware would not, or would erase those on a device.
    """
    target = folder or model.default_folder()
    tree, described = model.render_project()
    if model.options.edits != "force":
        _check_replaced(target, described, tree)
    filetree.write(tree, target, edits=model.options.edits)
    return target


def _check_replaced(folder: Path, new: Manifest, tree: FileTree) -> None:
    """Refuse to replace firmware that takes modules with firmware that loses them; warn of anything else that is lost.

    Raises:
        UsageError: the firmware in the folder takes modules, and the new one takes none or has another key; or its
            slots have another size, or its link key is another, so that the new firmware would find neither modules nor
            counters.
    """
    from mtool.project import loaded_modules

    try:
        old = manifest.load(folder) if manifest.is_project(folder) else None
    except UsageError:  # of another version of mtool
        return
    if old is None or old.project is None or new.project is None:
        return
    before, after = old.project.options, new.project.options
    key = folder / FILE_NAME
    old_key, new_key = key.read_bytes() if key.is_file() else None, tree.files.get(FILE_NAME)
    modules = before.get(loaded_modules.MODULES, loaded_modules.NONE)
    if modules != loaded_modules.NONE:
        wrong = [name for name in (loaded_modules.MODULES, loaded_modules.KEY) if before.get(name) != after.get(name)]
        if wrong:
            raise UsageError(
                f"{folder}: this build would replace firmware that takes modules",
                details=[
                    f"{name}: there {before.get(name) or 'none'}, now {after.get(name) or 'none'}" for name in wrong
                ],
                hint="add --modules and the same --module-key, use another --output-dir, or add --force",
            )
        if old_key != new_key:
            raise UsageError(
                f"{folder}: this build changes the link key, so that the device loses its modules and their counters",
                hint="add the same --link-key, use another --output-dir, or add --force",
            )
        was, now = (loaded_modules.read(project.options, project.board) for project in (old.project, new.project))
        assert was is not None and now is not None
        is_same = (old.project.board.name, old.project.template) == (new.project.board.name, new.project.template)
        if is_same and (was.slot_bytes, was.flash_bytes) != (now.slot_bytes, now.flash_bytes):
            raise UsageError(
                f"{folder}: this build changes the size of the slots, which would erase the modules and their counters",
                details=[f"{loaded_modules.SLOT_BYTES}: there {was.slot_bytes}, now {now.slot_bytes}"],
                hint=f"add --option {loaded_modules.SLOT_BYTES}={was.slot_bytes}, choose another folder with "
                "--output-dir, or use --force",
            )
    lost = [*_lost(old, new)]
    if old_key not in (None, new_key):
        lost.append("built with another link key" if new_key else "built with --link-key, which protects it")
    if lost:
        log.warning(
            "replacing the firmware in %s, which was %s; --output-dir FOLDER keeps both", folder, ", ".join(lost)
        )


def _lost(old: Manifest, new: Manifest) -> Iterator[str]:
    """Yield the properties of the old firmware that the new one does not have, as phrases."""
    before, after = old.project, new.project
    assert before is not None and after is not None
    if before.board.name != after.board.name:
        yield f"built for --board {before.board.name}"
    if before.template != after.template:
        yield f"built with --template {before.template}"
    elif before.options.get(CHANNEL) != after.options.get(CHANNEL):
        yield f"built with --option {CHANNEL}={before.options.get(CHANNEL)}"
    if before.program and not after.program:
        yield f"built with the program in {before.program}"
    names = {model.model for model in new.models}
    missing = [model.model for model in old.models if model.model not in names]
    if missing:
        yield f"built for the model{'s' * (len(missing) > 1)} {' and '.join(missing)}"
    if any(model.protection for model in old.models) and not any(model.protection for model in new.models):
        yield "built with --protect"
    backends = {claim.backend for model in new.models for claim in model.claims}
    for name in sorted({claim.backend for model in old.models for claim in model.claims} - backends - {""}):
        yield f"built with --backend {name}"


def write_package(model: CompiledModel, files: FileTree, folder: Path | None = None, *, form: Format) -> Path:
    """Write the files of a model's package, as returned by `CompiledModel.package`, and return the folder.

    Raises:
        UsageError: the folder holds something else.
    """
    default = model.default_folder()
    target = folder or default.with_name(f"{default.name}-{form}")
    filetree.write(files, target, edits=model.options.edits)
    return target


HOST_DRIVEN = "host_driven"
STANDALONE = "standalone"
"""The firmware kinds: a session drives the first, the second runs by itself."""
FirmwareKind = Annotated[str, checked.OneOf((HOST_DRIVEN, STANDALONE))]
"""The name of a firmware kind."""


@frozen
class BuiltProject:
    """A built project: its folder, its manifest (`mtool.json`), the build's products, and a key for its sessions."""

    folder: Path
    board: Board
    manifest: Manifest
    built: "Built"
    link_key: LinkKey | None = None

    def sizes(self, kind: str) -> "FirmwareSizes":
        """Return the flash and RAM that a firmware kind takes.

        Raises:
            BuildError: the project has no such firmware.
        """
        from mtool.device.build import measure
        from mtool.device.build.fit import needs_of

        size = measure(self.built.firmware[kind], self.manifest)
        return FirmwareSizes(
            size.flash_code_bytes + size.flash_const_bytes,
            size.ram_static_bytes + size.arena_bytes + size.stack_bytes,
            sum(model.constant_bytes_in_ram for model in self.manifest.models),
            needs_of(size, self.manifest) if self.board.memories else (),
        )

    def find_link_key(self) -> LinkKey | None:
        """Return the key for a session with the firmware, if it has one.

        Raises:
            UsageError: it can't be read.
        """
        return find(self.link_key, self.folder)

    @property
    def plain_firmware(self) -> Path | None:
        """The firmware without the RPC server if that was built, else the other; None: neither was."""
        built = self.built.firmware
        return built.get(STANDALONE, next(iter(built.values()), None))

    def stack_bounds(self) -> dict[str, StackBound]:
        """Return the most stack that each entry point of the models needs, by its name, from the build's mtool.json.

        Empty: the core's code can't be read.
        """
        from mtool.device.build.build import BUILD_FOLDER

        models = manifest.load(self.folder / BUILD_FOLDER).models
        return {point.name: point.stack for model in models for point in model.entry_points if point.stack is not None}


@frozen
class FirmwareSizes:
    """A firmware's total flash and RAM, the weights in RAM that are part of it, and the needs of each memory.

    On the host, where an operating system places things, only the model counts, and no memory is listed.
    """

    flash_bytes: int
    ram_bytes: int
    weights_in_ram_bytes: int
    memories: "tuple[Need, ...]" = ()


@locks.keep_locks()
def build_model(
    model: CompiledModel, folder: Path | None = None, *, kinds: Sequence[str] = (HOST_DRIVEN,)
) -> BuiltProject:
    """Write a compiled model's project and build its firmware of the given kinds, unless it is up to date.

    Raises:
        UsageError: the folder holds something else, or a template or an option is unknown.
        FitError: the firmware does not fit the board; where that is certain, it is raised before anything is written.
        BuildError: a toolchain is missing, or the build failed.
    """
    model.refuse_certain()
    return build_project(model.board, write_project(model, folder), kinds=kinds, model=model.manifest.model)


def build_project(
    board: Board, folder: Path, *, kinds: Sequence[str] = (HOST_DRIVEN,), model: str = ""
) -> BuiltProject:
    """Build the firmware of the given kinds of an existing project, unless it is up to date.

    `model` names the model whose manifest is returned; empty: the first.

    Raises:
        FitError: the firmware does not fit the board.
        BuildError: a toolchain is missing, or the build failed.
    """
    from mtool.device import build as building

    start = time.monotonic()
    built = building.build(folder, kinds=kinds)
    if built.manifest.in_project.is_own:
        log.info("  %-9s          your own firmware, with the package in %s", "build", folder)
    else:
        note = built.how + (f", {board.cpu}" if built.rebuilt else "")
        log.info("  %-9s %4.1f s   %s", "build", time.monotonic() - start, note)
    described = built.manifest
    if model:
        entry = manifest.named(described.models, model)
        described = entry.model_copy(update={"project": described.project, "firmware": described.firmware})
    return BuiltProject(built.folder, board, described, built)


def build_plan(
    model: CompiledModel,
    folder: Path | None = None,
    *,
    kinds: Sequence[str] = (HOST_DRIVEN,),
    tools: "Sequence[Item]" = (),
) -> tuple[list[str], Manifest]:
    """Return the commands of a first build, as shell lines, and the project's manifest.

    Nothing is written or run. Lines that start with # describe what mtool itself does; missing tools are warned of.
    `tools` are needed besides the build's own.

    Raises:
        FitError: the firmware does not fit the board, as far as that is known before the build.
    """
    from mtool.device import build as building
    from mtool.stages import checkup
    from mtool.stages.fitting import fit_of

    tree, described = model.render_project()
    model.refuse_certain()
    if HOST_DRIVEN in kinds and not (fit := fit_of(model, folder=folder)).fits:
        name = " and ".join(model.model for model in described.models)
        raise FitError(
            f"{name} does not fit {fit.board}", details=fit.lines(model.manifest), hint=fit.hint(model.manifest)
        )
    template = model.options.template or next(iter(model.board.templates))
    lacking = {item.name: item for item in checkup.missing([*tools, *checkup.to_build(template, model.board)])}
    for item in lacking.values():
        log.warning("%s is missing: %s", item.name, item.install)
    project_folder = folder or model.default_folder()
    lines = [
        f"# compile {model.path.name}, write the project {project_folder} ({plural.count(len([*tree]), 'file')})",
        f"cd {shlex.quote(str(project_folder))}",
        *building.plan(described.in_project, kinds),
    ]
    return lines, described


def prepare(
    path: str | Path,
    *,
    board: str | Board,
    folder: Path | None = None,
    options: Options | None = None,
    kinds: Sequence[FirmwareKind] = (HOST_DRIVEN,),
) -> BuiltProject:
    """Compile a model, write its project and build the firmware; only stale steps are repeated.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        folder: the project folder; default: build/<model>-<board>.
        options: how to compile and which template to use.
        kinds: the firmware kinds to build: "host_driven" is driven by a session, "standalone" runs by itself.

    Raises:
        MtoolError: of the failed stage's class, see mtool.errors.
    """
    return build_model(compile(path, board=board, options=options, folder=folder), folder, kinds=kinds)


def open(what: "str | Path | CompiledModel | BuiltProject", *, link_key: Path | None = None) -> "Device":
    """Start a session with a project's firmware; use it in a `with` statement.

    Args:
        what: the folder of a built project, or the result of `mtool.compile` or `mtool.prepare`.
        link_key: the file of the device's link key; default: that in the folder, then MTOOL_LINK_KEY.

    Raises:
        MtoolError: the build failed, or the firmware does not answer.
    """
    from mtool.device import session

    if isinstance(what, CompiledModel):
        return session.open(build_model(what).folder, link_key=link_key)
    return session.open(what.folder if isinstance(what, BuiltProject) else Path(what), link_key=link_key)
