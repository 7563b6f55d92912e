"""`mtool new`: a project of your own."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from mtool.base.option_values import ProjectType
from mtool.cli import completion, parameters
from mtool.cli.output import Output


def new(
    out: Output,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where; a new or an empty folder.", show_default=False)
    ],
    model: Annotated[
        Path, typer.Option("--model", "-m", metavar="MODEL", help="The model, .onnx or .tflite.", show_default=False)
    ],
    board: Annotated[str, parameters.boards("The board that the program is for.")],
    type: Annotated[
        ProjectType,
        typer.Option("--type", help="A program around the model, a model that a host drives, or EEMBC's benchmark."),
    ] = "standalone",
    test_board: Annotated[
        str,
        typer.Option(
            "--test-board",
            metavar="BOARD",
            help="Where the tests run; default: the board if it is emulated, else an emulated one with its processor.",
            show_default=False,
            autocompletion=completion.boards,
        ),
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Leave files that are there as they are.")] = False,
    *,
    given: parameters.GivenOptions,
) -> None:
    """Begin a project of your own: a program around a model, its tests and its CI."""
    from mtool.commands import new_project

    begun = new_project.new_project(
        folder,
        model,
        board=board,
        kind=type,
        test_board=test_board,
        options=given,
        edits="keep" if keep else "stop",
    )
    found = begun.project
    out.result(
        {
            "folder": str(folder),
            "board": found.board,
            "test_board": found.test_board,
            "type": found.type,
            "fits": begun.fits,
            "own": [*begun.own],
        }
    )
    shown = [
        ("src", "yours: the program" if found.type == "standalone" else "yours: the firmware of EEMBC's runner"),
        ("drive.py", "yours: drives the model from this computer"),
        ("generated", "mtool's: renewed by `mtool update`"),
        ("tests", f"limits on instructions, memory and accuracy, on {found.test_board} by `mtool test`"),
        (".github/workflows", "the same, for every commit"),
        (".gitlab-ci.yml", "the same, on GitLab"),
    ]
    for name, meaning in shown:
        path = folder / name
        if path.exists():
            out.text(f"{f'{path}/' if path.is_dir() else str(path):<34} {meaning}")
    if begun.fits:
        out.text(f"next: cd {folder} && mtool build")
    else:
        out.text(f"next: a smaller model, or another board: mtool check {shlex.quote(str(model))}")
