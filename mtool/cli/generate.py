"""`mtool generate`: a model's project, without a build."""

from mtool import commands
from mtool.cli import parameters, template_options
from mtool.cli.output import Output


def generate(
    out: Output,
    models: parameters.ModelFiles,
    board: parameters.BoardName = parameters.HOST,
    output_dir: parameters.OutputDir = None,
    *,
    options: parameters.FirmwareOptions,
    list_options: parameters.ListOptions = False,
) -> None:
    """Compile a model and write its project; nothing is built.

    Tells the commands that build it, which need no mtool; `mtool run FOLDER` builds and runs it.
    """
    if list_options:
        template_options.show(out, board, options[0].template)
        return
    compiled = commands.compile_models(models, board=board, options=options, folder=output_dir)[0]
    folder = commands.write_project(compiled, output_dir)
    lines = commands.build_plan(compiled, output_dir, kinds=commands.ALL_KINDS)[1:]
    out.result({"folder": str(folder), "commands": lines})
    out.text(f"{folder}/", *(f"  {line}" for line in lines))
