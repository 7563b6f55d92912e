"""Options of the board: which, where it is connected, how it is flashed."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from mtool.cli import completion

_option = functools.partial(typer.Option, rich_help_panel="The board")

HOST = "host"  # the board that is always there
BoardName = Annotated[
    str,
    _option(
        "--board",
        "-b",
        metavar="BOARD",
        help="The board; `mtool boards` lists them.",
        autocompletion=completion.boards,
    ),
]
BoardOrProjects = Annotated[
    str,
    _option(
        "--board",
        "-b",
        metavar="BOARD",
        help="The board; `mtool boards` lists them; default: a project's own, else host.",
        show_default=False,
        autocompletion=completion.boards,
    ),
]


def boards(meaning: str) -> Any:
    """Return the option -b of a command that means something else by it than the board to build for."""
    return _option("--board", "-b", metavar="BOARD", help=meaning, show_default=False, autocompletion=completion.boards)


OnDevice = Annotated[
    Path | None,
    _option(
        "--on",
        metavar="PROJECT",
        help="The folder of a firmware that has the model as a module (`mtool load`): that is what runs.",
        show_default=False,
    ),
]
Port = Annotated[
    str,
    _option(
        "--port",
        "-p",
        metavar="DEVICE",
        help="The board's serial port, tcp://HOST:PORT or rtt:... (docs/transports.md); default: MTOOL_PORT, "
        "mtool.toml, the single match. emulator: the board's emulator.",
        show_default=False,
    ),
]
Probe = Annotated[
    str,
    _option(
        "--probe",
        metavar="SERIAL",
        help="The USB serial number of the board or its probe, or its beginning; default: MTOOL_PROBE.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    _option(
        "--timeout",
        metavar="SECONDS",
        min=0.001,
        help="How long an inference may take; default: generously by its estimated instructions.",
        show_default=False,
    ),
]
FlashCommand = Annotated[
    str,
    _option(
        "--flash-command",
        metavar="COMMAND",
        help="The command that flashes the board, in place of a flash tool: 'labtool write --to {port} {elf}'.",
        show_default=False,
    ),
]
PowerCommand = Annotated[
    str,
    _option(
        "--power",
        metavar="COMMAND",
        help="The command that cycles the board's power when nothing else brings it back: 'uhubctl -a cycle -p 2'.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, _option("--dry-run", help="Print the commands that would be run, and run none.")]
