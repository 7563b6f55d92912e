"""Find and read the `mtool.json` of a project folder."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mtool.base import configuration
from mtool.base import invalid as problems
from mtool.base.errors import UsageError, of_os_error
from mtool.manifest.schema import Firmware, Manifest, Project

FILE_NAME = "mtool.json"


def firmware_of(folder: Path, project: Project, kind: str) -> Path:
    """Return the file of a firmware kind, which need not be there yet.

    Raises:
        UsageError: a link leads out of the project folder.
    """
    path = folder / project.firmware[kind]
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise UsageError(f"{path} lies outside of the project", details=[f"in {os.path.realpath(path)}"])
    return path


def is_project(folder: Path) -> bool:
    """Tell whether a folder has an `mtool.json`."""
    return (folder / FILE_NAME).is_file()


def own_hint(folder: Path) -> str:
    """Return what to do with a folder that is a project of a user's own, as `mtool new` makes them; "": it is none."""
    if not (folder / configuration.FILE_NAME).is_file():
        return ""
    return f"it is a project of your own (mtool new), whose commands are run inside it: cd {shlex.quote(str(folder))}"


def load(folder: Path, model: str = "") -> Manifest:
    """Read a model's manifest from the `mtool.json` of a project folder.

    Args:
        folder: the project's.
        model: its name; empty: the first, which mostly is the only one.

    Raises:
        UsageError: it is missing, or not a manifest of this schema, or has no such model; the message names what.
    """
    path = folder / FILE_NAME
    try:
        if not path.is_file():  # nothing, or a pipe, which would be waited for
            raise UsageError(
                f"{folder} is not an mtool project",
                details=[f"it has no {FILE_NAME}"],
                hint=own_hint(folder) or "make one with: mtool build",
            )
        found = Firmware.model_validate_json(path.read_bytes()).manifests()
    except ValidationError as invalid:
        details = problems.lines(invalid, 5)
        raise UsageError(f"{path} is not a manifest of schema 2", details=details, hint="build it again") from None
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    return named(found, model) if model else found[0]


def named(models: Sequence[Manifest], name: str) -> Manifest:
    """Return the model of a name.

    Raises:
        UsageError: there is none; the message lists them.
    """
    for one in models:
        if one.model == name:
            return one
    there = ", ".join(one.model for one in models)
    raise UsageError(f"the firmware has no model {name!r}", details=[f"it has: {there}"])
