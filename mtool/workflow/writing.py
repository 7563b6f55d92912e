"""Write what a compiled model becomes: its project folder, its C alone, or a package."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import filetree
from mtool.filetree import FileTree
from mtool.option_values import Format
from mtool.workflow.compiling import Model

if TYPE_CHECKING:
    from mtool.project import About


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
