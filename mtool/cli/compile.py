"""`mtool compile`: a model's C files, without a project."""

import dataclasses
from typing import Annotated

import typer

from mtool import commands
from mtool.base.option_values import Format
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.stages.formatting import kilobytes


def compile(
    out: Output,
    models: parameters.ModelFiles,
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
) -> None:
    """Write a model as C, without a project.

    Of several models it is the C of a firmware that has them all.
    """
    from mtool.project import About
    from mtool.project.package import NO_BINARIES

    told = About.of(about or ())
    options = [dataclasses.replace(one, portable=True) for one in options]  # to be compiled for another core, perhaps
    if emit in NO_BINARIES:
        options = [dataclasses.replace(one, weights="text") for one in options]
    compiled, *more = (
        [commands.compile(path, board=board, options=own) for path, own in zip(models, options, strict=True)]
        if emit == "mlf"  # whose modules know nothing of each other
        else commands.compile_models(models, board=board, options=options, folder=output_dir)
    )
    files = compiled.package(emit, about=told, more=more if emit == "mlf" else ())
    folder = commands.write_package(compiled, files, output_dir, form=emit)
    manifest = compiled.manifest
    out.result(
        {
            "folder": str(folder),
            "format": emit,
            "files": sorted(files),
            "manifest": manifest.model_dump(mode="json"),
            **({"models": [one.model_dump(mode="json") for one in manifest.models]} if manifest.firmware else {}),
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
