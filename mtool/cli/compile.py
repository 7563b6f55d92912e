"""`mtool compile`: a model's C files, without a project."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from mtool import workflow
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.errors import UsageError
from mtool.option_values import Format
from mtool.workflow.formatting import kilobytes


def compile(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    output_dir: parameters.SourceDir = None,
    *,
    options: parameters.SourceOptions,
    emit: Annotated[Format, typer.Option("--emit", help="The C alone, or a package of an ecosystem.")] = "c",
    about: Annotated[
        list[str] | None,
        typer.Option(
            "--about",
            metavar="KEY=VALUE",
            help="What a package says of itself: author, url, version, vendor; may be repeated.",
            show_default=False,
        ),
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(
            "--also", metavar="MODEL", help="Another model of the same --emit mlf; may be repeated.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a model as C, without a project."""
    from mtool.project import About
    from mtool.project.package import NO_BINARIES

    told = About.of(about or ())
    if also and emit != "mlf":
        raise UsageError(f"--also is for --emit mlf, and {emit} holds one model")
    options = dataclasses.replace(options, portable=True)  # who takes the C away compiles it for another core
    if emit in NO_BINARIES:
        options = dataclasses.replace(options, weights="text")
    compiled = workflow.compile(
        model,
        board=board,
        options=options,
        folder=output_dir,
    )
    more = [workflow.compile(path, board=board, options=options) for path in also or ()]
    files = compiled.package(emit, about=told, more=more)
    folder = workflow.write_package(compiled, files, output_dir, form=emit)
    manifest = compiled.manifest
    out.result(
        {
            "folder": str(folder),
            "format": emit,
            "files": sorted(files),
            "manifest": manifest.model_dump(mode="json"),
        }
    )
    out.text(f"{folder}/")
    out.text(
        table(
            ("", ""),
            [[f"  {path}", kilobytes(len(files[path]))] for path in files],
            right=(1,),
        )
    )
