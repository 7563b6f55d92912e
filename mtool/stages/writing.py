"""Write what a compiled model becomes: its project folder, its C alone, or a package."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import manifest
from mtool.base import filetree
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree
from mtool.base.option_values import Format
from mtool.manifest import Manifest
from mtool.stages.compiling import Model

if TYPE_CHECKING:
    from mtool.project import About

log = logging.getLogger(__name__)


def write_project(model: Model, folder: Path | None = None) -> Path:
    """Write a compiled model's project folder and return it; files that are right already are left alone.

    Raises:
        UsageError: the folder holds something else, or files of it were edited, or a template or an option is unknown;
            or its firmware takes modules, and this one would not.
    """
    target = folder or model.default_folder()
    tree, described = model.render_project()
    if model.options.edits != "force":
        _check_replaced(target, described)
    filetree.write(tree, target, edits=model.options.edits)
    return target


def _check_replaced(folder: Path, new: Manifest) -> None:
    """Refuse to replace a firmware that takes modules by one that does not; warn of all else that would be lost.

    Raises:
        UsageError: the firmware in the folder takes modules, and devices that run it are sent those that it takes.
    """
    from mtool.project import loaded_modules

    try:
        old = manifest.load(folder) if manifest.is_project(folder) else None
    except UsageError:  # of another version of mtool
        return
    if old is None or old.project is None or new.project is None:
        return
    before, after = old.project.options, new.project.options
    taken = before.get(loaded_modules.MODULES, loaded_modules.NONE)
    if taken != loaded_modules.NONE:
        wrong = [name for name in (loaded_modules.MODULES, loaded_modules.KEY) if before.get(name) != after.get(name)]
        if wrong:
            raise UsageError(
                f"{folder} has firmware that takes modules, and this build would replace it",
                details=[
                    f"{name}: there {before.get(name) or 'none'}, now {after.get(name) or 'none'}" for name in wrong
                ],
                hint="give --modules and the same --module-key, another folder with --output-dir, or --force",
            )
    lost = [*_lost(old, new)]
    if lost:
        log.warning("%s is replaced: its firmware was %s; --output-dir FOLDER keeps both", folder, ", ".join(lost))


def _lost(old: Manifest, new: Manifest) -> Iterator[str]:
    """Yield what a firmware is, by the options of its build, and the one in its place is not."""
    from mtool.device.session import CHANNEL

    there, now = old.project, new.project
    assert there is not None and now is not None
    if there.board.name != now.board.name:
        yield f"for --board {there.board.name}"
    if there.template != now.template:
        yield f"of --template {there.template}"
    elif there.options.get(CHANNEL) != now.options.get(CHANNEL):
        yield f"built with --option {CHANNEL}={there.options.get(CHANNEL)}"
    if there.program and not now.program:
        yield f"built with the program in {there.program}"
    names = {one.model for one in new.models}
    missing = [one.model for one in old.models if one.model not in names]
    if missing:
        yield f"of the model {' and '.join(missing)}"
    if any(one.protection for one in old.models) and not any(one.protection for one in new.models):
        yield "built with --protect"
    backends = {claim.backend for one in new.models for claim in one.claims}
    for name in sorted({claim.backend for one in old.models for claim in one.claims} - backends - {""}):
        yield f"built with --backend {name}"


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
