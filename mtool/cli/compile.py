"""`mtool compile`: a model's C files, without a project."""

from mtool import workflow
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.workflow.wording import kilobytes


def compile(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    output_dir: parameters.OutputDir = None,
    io: parameters.Io = "arena",
    dim: parameters.Dims = None,
) -> None:
    """Write a model as C, without a project."""
    compiled = workflow.compile(model, board=board, options=parameters.options(io, dim, "", None))
    folder = workflow.write_sources(compiled, output_dir)
    manifest = compiled.manifest
    out.result(
        {"folder": str(folder), "files": sorted(compiled.sources()), "manifest": manifest.model_dump(mode="json")}
    )
    out.text(f"{folder}/")
    out.text(
        table(
            ("", ""),
            [[f"  {path}", kilobytes(len(compiled.sources()[path]))] for path in compiled.sources()],
            right=(1,),
        )
    )
