"""`mtool update`: the part of a project that is mtool's, renewed."""

from mtool.base.errors import UsageError
from mtool.cli import parameters
from mtool.cli.output import Output


def update(out: Output, force: parameters.Force = False, keep: parameters.Keep = False) -> None:
    """Renew the generated folder of the project that you are in.

    After another model, other options or another mtool. Your own files are never touched; a generated file that you
    edited stops it, unless you say --keep or --force.
    """
    from mtool.commands import new_project, user_project

    if force and keep:
        raise UsageError("--force and --keep do not go together")
    changed = new_project.update_project(edits="force" if force else "keep" if keep else "stop")
    found = user_project.require()
    folder = found.folder_for(found.board)
    out.result({"folder": str(folder), "changed": changed})
    out.text(f"{folder}: {'renewed' if changed else 'up to date'}")
