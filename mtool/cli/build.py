"""`mtool build`: a model's project, built."""

from mtool import workflow
from mtool.cli import parameters
from mtool.cli.output import Output


def build(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    output_dir: parameters.OutputDir = None,
    io: parameters.Io = "arena",
    dim: parameters.Dims = None,
    const: parameters.Constants = None,
    state: parameters.States = None,
    rounding: parameters.RoundingMode = "onnx",
    maxima: parameters.Maxima = None,
    interface_api: parameters.Interface = "c",
    operators_api: parameters.Operators = None,
    executor: parameters.ExecutorName = "aot",
    template: parameters.TemplateName = "",
    option: parameters.TemplateOptions = None,
    dry_run: parameters.DryRun = False,
) -> None:
    """Compile a model and build its firmware."""
    compiled = workflow.compile(
        model,
        board=board,
        options=parameters.options(
            io, dim, template, option, const, rounding, maxima, interface_api, operators_api, executor, state
        ),
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
