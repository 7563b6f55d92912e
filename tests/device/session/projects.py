"""Project folders with the test firmware in them."""

import shutil
from pathlib import Path

from mtool import boards
from mtool.boards import Board
from mtool.manifest import FILE_NAME, Manifest, Project
from tests.crt import firmware


def project_of(board: Board, *, build_hash: str = firmware.BUILD_HASH, **changes: object) -> Project:
    project = Project(
        template="host",
        builder="host",
        transport="process",
        board=board,
        build_hash=build_hash,
        options={},
        firmware={"host_driven": "build/host_driven"},
    )
    return project.model_copy(update=changes)


def described() -> Manifest:
    """Return the manifest of a project of the test model."""
    return firmware.MANIFEST.model_copy(update={"project": project_of(boards.get("host"))})


def write(folder: Path, *, project: Project | None = None, program: Path | None = None, **changes: object) -> Path:
    """Write a project whose firmware is `program`; its manifest is that of the test model, but for `changes`."""
    described = project or project_of(boards.get("host"))
    manifest: Manifest = firmware.MANIFEST.model_copy(update={"project": described, **changes})
    (folder / "build").mkdir(parents=True)
    (folder / FILE_NAME).write_bytes(manifest.to_json())
    shutil.copy(program or firmware.build(), folder / "build" / "host_driven")
    return folder
