"""A compiled model's C, written as a package."""

from collections.abc import Sequence
from pathlib import Path

from mtool.base.option_values import Format
from mtool.project import About
from mtool.stages.building import write_package
from mtool.stages.compiling import CompiledModel


def write(
    model: CompiledModel,
    folder: Path,
    *,
    form: Format = "c",
    about: About | None = None,
    more: Sequence[CompiledModel] = (),
    rpc: bool = False,
) -> Path:
    """Write the package of a model, as `mtool compile --emit` does, and return the folder."""
    return write_package(model, model.package(form, about=about, more=more, rpc=rpc), folder, form=form)
