"""`mtool compile`: a model's C files, without a project."""

import dataclasses
from typing import Annotated

import typer

from mtool import workflow
from mtool.cli import parameters
from mtool.cli.output import Output, table
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
) -> None:
    """Write a model as C, without a project."""
    from mtool.project.package import NO_BINARIES

    if emit in NO_BINARIES:
        options = dataclasses.replace(options, weights="text")
    compiled = workflow.compile(
        model,
        board=board,
        options=options,
        folder=output_dir,
    )
    folder = workflow.write_sources(compiled, output_dir, form=emit)
    manifest = compiled.manifest
    files = compiled.package(emit)
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
