"""`mtool update`: the part of a project that is mtool's, renewed."""

from mtool.cli import parameters
from mtool.cli.output import Output
from mtool.errors import UsageError


def update(out: Output, force: parameters.Force = False, keep: parameters.Keep = False) -> None:
    """Renew the generated folder of the project that you are in.

    After another model, other options or another mtool. Your own files are never touched; a generated file that you
    edited stops it, unless you say --keep or --force.
    """
    from mtool.workflow import new_project, own_project

    if force and keep:
        raise UsageError("--force and --keep do not go together")
    changed = new_project.update_project(edits="force" if force else "keep" if keep else "stop")
    found = own_project.require()
    folder = found.folder_for(found.board)
    out.result({"folder": str(folder), "changed": changed})
    out.text(f"{folder}: {'renewed' if changed else 'up to date'}")
