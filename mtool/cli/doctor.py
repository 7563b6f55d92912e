"""`mtool doctor`: what a board needs, whether it is installed, and the command that installs it if not."""

from typing import TYPE_CHECKING

from mtool.base import plural
from mtool.base.errors import BuildError
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.stages.checkup import Item

_SHOWN = {"ok": "ok", "missing": "MISSING", "absent": "-"}


def doctor(out: Output, board: list[str] | None = None, template: str = "") -> None:
    """Show what is missing on this computer and how to install it.

    With --board, everything that the board needs is checked: compiler, C library, emulator or flash tool, the Zephyr
    tree with its modules and workspace, and the permissions for its port and probe. Ends with exit code 5 if anything
    that is needed is missing; without board and template, if the host's compiler is. "-" marks what is neither
    installed nor needed.
    """
    from mtool import boards
    from mtool.stages import checkup

    named = [boards.get(name) for name in board or ()]
    if named:
        lists = {board.name: checkup.of_board(board, template) for board in named}
    else:
        lists = {template: checkup.to_build(template) if template else checkup.overview()}
    every = [item for items in lists.values() for item in items]
    lacking = list({item.name: item for item in reversed(checkup.missing(every))}.values())[::-1]
    out.result(
        {
            "ok": not lacking,
            "tools": [
                {"board": name if named else None, **item.as_json()} for name, items in lists.items() for item in items
            ],
        }
    )
    for name, items in lists.items():
        _print(out, name, items)
    if not named and not template:
        ready = checkup.runnable(every)
        out.text(f"ready to use: {', '.join(ready) or 'no board'}; for another board: mtool doctor --board BOARD")
    if lacking:
        what = (
            f"{plural.count(len(lacking), 'thing')} are missing"
            if len(lacking) > 1
            else f"{lacking[0].name} is missing"
        )
        raise BuildError(what, details=[f"{item.name}: {item.install}" for item in lacking])


def _print(out: Output, heading: str, items: "list[Item]") -> None:
    if heading:
        out.text(heading)
    out.text(table(("", "what", "found", "needed for"), [[_SHOWN[i.state], i.name, i.found, i.needed] for i in items]))
    absent = [item for item in items if item.install]
    if absent:
        out.text("", "to install what is missing:")
        width = max(len(item.name) for item in absent)
        out.text(*(f"  {item.name:<{width}}  {item.install}" for item in dict.fromkeys(absent)))
    out.text("")
