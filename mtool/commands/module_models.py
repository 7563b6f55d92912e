"""The models of a project's device that came to it as modules."""

from pathlib import Path

from mtool import manifest
from mtool.base.errors import UsageError
from mtool.device import session
from mtool.device.session.loaded import interfaces, takes_modules
from mtool.manifest import Manifest
from mtool.stages.deployment import HOST, Deployment


def board_of(folder: Path, board: str) -> str:
    """Return the board of a project, whose device has a model of a module; `board` is the one that is named.

    Raises:
        UsageError: it is no project, or that of another board than the one that is named.
    """
    described = manifest.load(folder).project
    if described is not None and board not in (HOST, described.board.name):
        raise UsageError(f"{folder} is a project for {described.board.name}, not for {board}", hint="leave --board out")
    return HOST if described is None else described.board.name


def loaded_model(folder: Path, name: str, deployment: Deployment) -> Manifest | None:
    """Return the manifest of the model of a name that came as a module to a project's device; None: it has none.

    Raises:
        MtoolError: the project is none, or its device does not answer.
    """
    described = manifest.load(folder)
    if described.project is None or not takes_modules(described.project):
        return None
    if not name:
        return None
    with session.open(folder, port=deployment.port, probe=deployment.probe) as device:
        numbers = interfaces(device.session)
        return device[name].manifest if name in {one.name for one in numbers.values()} else None
