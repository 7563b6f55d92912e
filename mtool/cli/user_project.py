"""Commands inside a project of a user's own: what is left out on the command line, its `mtool.toml` says."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool.base.errors import UsageError

if TYPE_CHECKING:
    from mtool.commands.user_project import OwnProject


def filled(
    values: Mapping[str, Any],
    *,
    key: str,
    command: str,
    argument: str,
    needs_board: bool,
    is_given: Callable[[str], bool],
) -> "tuple[dict[str, Any], OwnProject | None]":
    """Return a command's values with those of the project that it is run in, and the project.

    Where a model is given on the command line, the project has no part in it, and is None.

    Args:
        values: the parameters of the command by name.
        key: the name of the one that has the models.
        command: its name, for messages.
        argument: what it calls the model or what may stand in its place.
        needs_board: it has no board unless one is given.
        is_given: tells whether a parameter was given on the command line.

    Raises:
        UsageError: no model is given, and the working folder lies in no project; or a board is missing.
    """
    result = dict(values)
    if result.get("list_options"):  # of a template, whatever the model is
        return result, None
    if result[key]:
        if needs_board and not result["board"]:
            raise UsageError("missing option '--board' / '-b'", hint=f"see: mtool {command} --help")
        return result, None
    from mtool.commands import user_project

    found = user_project.find()
    if found is None:
        raise UsageError(
            f"missing argument '{argument}'", hint=f"see: mtool {command} --help; or cd into a project (mtool new)"
        )
    found.check_model()
    board = result["board"] if is_given("board") else found.board
    result |= {key: [found.model], "board": board}
    for name, value in found.values_for(board).items():
        if name in result and not is_given(name):
            result[name] = value
    if "output_dir" in result and not is_given("output_dir"):
        result["output_dir"] = _short(found.folder_for(board))
    return result, found


def _short(folder: Path) -> Path:
    """Return a folder as a person in the working folder calls it."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
