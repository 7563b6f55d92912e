"""`mtool build`: a model's project, built."""

from mtool import workflow
from mtool.cli import parameters, template_options
from mtool.cli.output import Output


def build(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    output_dir: parameters.OutputDir = None,
    *,
    options: parameters.ProjectOptions,
    list_options: parameters.ListOptions = False,
    dry_run: parameters.DryRun = False,
) -> None:
    """Compile a model and build its firmware."""
    if list_options:
        template_options.show(out, board, options.template)
        return
    compiled = workflow.compile(
        model,
        board=board,
        options=options,
        folder=output_dir,
    )
    if dry_run:
        lines = workflow.build_plan(compiled, output_dir, kinds=workflow.ALL_KINDS)
        out.result({"commands": lines})
        for line in lines:
            out.text(line)
        return
    prepared = workflow.build_model(compiled, output_dir, kinds=workflow.ALL_KINDS)
    firmware = {kind: str(path) for kind, path in prepared.built.firmware.items()}
    out.result(
        {
            "folder": str(prepared.folder),
            "firmware": firmware,
            "toolchain": prepared.built.toolchain,
            "up_to_date": prepared.built.up_to_date,
        }
    )
    for kind, path in firmware.items():
        out.text(f"{kind:<12} {path}")
