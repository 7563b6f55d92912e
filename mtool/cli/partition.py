"""`mtool partition`: the parts of a model that backends compute, as files for their compilers."""

from pathlib import Path
from typing import Annotated

from mtool import commands
from mtool.cli import parameters
from mtool.cli.claims import claims_table
from mtool.cli.output import Output, table


def partition(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    output_dir: Annotated[
        Path | None,
        parameters.output_dir("The folder to write to; default: build/<model>-<board>-regions.", "-o"),
    ] = None,
    *,
    options: parameters.PartitionOptions,
) -> None:
    """Write the parts of a model that backends claim as files for their compilers; none is run.

    Ends with exit code 2 if no backend is given, or one writes no files, 3 if the model can't be compiled, and 5 if a
    backend fails.
    """
    parts = commands.partition(model, board=board, options=options, folder=output_dir)
    out.result(
        {
            "folder": str(parts.folder),
            "files": sorted(parts.files),
            "regions": [
                {
                    "name": region.name,
                    "backend": backend,
                    "operations": [one.name for one in region.operations],
                    "inputs": [one.tensor for one in region.inputs],
                    "outputs": [one.tensor for one in region.outputs],
                    "macs": region.macs,
                    "border_bytes": region.border_bytes,
                }
                for backend, region in parts.regions
            ],
            "claims": [one.model_dump(mode="json") for one in parts.claims],
        }
    )
    out.text(claims_table(parts.claims), "")
    rows = [
        [region.name, backend, str(len(region.operations)), f"{region.macs:,}", f"{region.border_bytes:,}"]
        for backend, region in parts.regions
    ]
    if not rows:
        out.text("no operator is claimed: nothing was written")
        return
    out.text(table(("region", "backend", "operators", "MACs", "bytes at its border"), rows, right=(2, 3, 4)), "")
    out.text(f"{parts.folder}/", *(f"  {name}" for name in parts.files))
