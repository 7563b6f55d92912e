"""Write docs/commands.md: every command, with every argument and option.

scripts/commands.py
"""

import inspect
import re
import sys
import textwrap
from collections import Counter
from pathlib import Path

import typer
from typer.core import TyperCommand

from mtool.cli import app

RESULT = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """# Commands

Every command with every argument and option. `make commands` writes this page from the code; don't edit it.
`mtool COMMAND --help` prints the same in a terminal. `mtool --install-completion` installs shell completion for
commands, options, boards and flash runners.

Every command takes these options before or after its name: `--json` (the result as JSON), `-v` (more output) and `-q`
(only results and errors). After its name it also takes `--boards FILE` ([your own boards](add-a-board.md)). The exit
code shows the [kind of error](errors.md):

| code | meaning |
|---:|---|
"""
SHARED = "Options of several commands"
COMMON = {"--json", "--verbose", "--quiet", "--boards", "--help-all"}

Row = tuple[str, str]


def rows_of(command: TyperCommand) -> list[Row]:
    """Return a command's arguments and options as in --help, except those that all commands have."""
    context = typer.Context(command, info_name=command.name)
    rows = []
    for parameter in command.params:
        if not COMMON & set(parameter.opts) and (record := parameter.get_help_record(context)) is not None:
            left, right = (re.sub(r"\s+", " ", text).strip() for text in record)
            rows.append((re.sub(r" <(path|str)>$", "", left), right))
    return [row for row in rows if "--help" not in row[0]]


def table(rows: list[Row]) -> list[str]:
    """Return rows as a Markdown table."""
    cells = [(name.replace("|", "\\|"), re.sub(r"([|<])", r"\\\1", meaning)) for name, meaning in rows]
    return ["| | |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in cells)] if cells else []


def page() -> str:
    """Return the page."""
    commands = {name: app.command_of(name) for name in app.COMMANDS}
    rows = {name: rows_of(command) for name, command in commands.items()}
    counted = Counter(row for found in rows.values() for row in found)
    shared = [row for row, count in counted.items() if count > 2 and row[0].startswith("-")]
    codes = re.findall(r"(\d+) ([^,.]+)", app.HELP.partition("Exit codes:")[2])
    lines = [f"| {code} | {' '.join(meaning.split())} |" for code, meaning in codes]
    for name, found in rows.items():
        paragraphs = [" ".join(text.split()) for text in (inspect.getdoc(app.load(name)) or "").split("\n\n")]
        lines += ["", f"## mtool {name}", ""]
        for paragraph in paragraphs:
            lines += [*textwrap.wrap(paragraph, 120, break_on_hyphens=False), ""]
        lines += table([row for row in found if row not in shared])
        taken = ", ".join(f"`{name}`" for row in found if row in shared for name in re.findall(r"--[a-z-]+", row[0]))
        if taken:
            lines += [
                "",
                *textwrap.wrap(f"[Also](#{SHARED.lower().replace(' ', '-')}) {taken}.", 120, break_on_hyphens=False),
            ]
    lines += ["", f"## {SHARED}", "", *table(shared)]
    return HEAD + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


if __name__ == "__main__":
    RESULT.write_text(page())
    sys.stdout.write(f"{RESULT}\n")
