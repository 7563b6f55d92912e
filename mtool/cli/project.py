"""`mtool new`, `update`, `generate`, `build`, `compile` and `partition`: write and build what a model needs."""

import dataclasses
import shlex
from pathlib import Path

from mtool import commands
from mtool.base.errors import UsageError
from mtool.base.option_values import Format, ProjectType
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.manifest.plan_check import check_plans
from mtool.stages.formatting import kilobytes

# `mtool new`: a project of your own.


def new(
    out: Output,
    folder: Path,
    model: Path,
    board: str,
    type: ProjectType = "standalone",
    test_board: str = "",
    keep: bool = False,
    *,
    options: parameters.ChangedOptions,
) -> None:
    """Start a project of your own: a program around a model, its tests and its CI."""
    from mtool.commands import new_project

    started = new_project.new_project(
        folder, model, board=board, kind=type, test_board=test_board, options=options, edits="keep" if keep else "stop"
    )
    project = started.project
    out.result(
        {
            "folder": str(folder),
            "board": project.board,
            "test_board": project.test_board,
            "type": project.type,
            "fits": started.fits,
            "own": [*started.own],
        }
    )
    shown = [
        ("src", "yours: the firmware of EEMBC's runner" if project.type == "mlperftiny" else "yours: the program"),
        ("clips", "yours: recordings for `mtool replay` and the tests"),
        ("drive.py", "yours: drives the model from this computer"),
        ("generated", "mtool's: updated by `mtool update`"),
        ("tests", f"limits on instructions, memory and accuracy, on {project.test_board} by `mtool test`"),
        (".github/workflows", "the same, for every commit"),
        (".gitlab-ci.yml", "the same, on GitLab"),
    ]
    for name, meaning in shown:
        path = folder / name
        if path.exists():
            out.text(f"{f'{path}/' if path.is_dir() else str(path):<34} {meaning}")
    if started.fits:
        out.text(f"next: cd {folder} && mtool build")
    else:
        out.text(f"next: a smaller model, or another board: mtool check {shlex.quote(str(model))}")


# `mtool update`: update the part of a project that mtool generates.


def update(out: Output, force: bool = False, keep: bool = False) -> None:
    """Update the generated folder of the project that you are in.

    Run it after a change of the model, the options or mtool. Your own files are never touched; if you edited a
    generated file, the command stops, unless you give --keep or --force.
    """
    from mtool.commands import new_project

    if force and keep:
        raise UsageError("--force and --keep can't be combined")
    folder, changed = new_project.update_project(edits="force" if force else "keep" if keep else "stop")
    out.result({"folder": str(folder), "changed": changed})
    out.text(f"{folder}: {'updated' if changed else 'up to date'}")


# The options of a board's template, as a table: `mtool build --board B --options`.


def show_template_options(out: Output, board: str, template: str) -> None:
    """List the options of a template, each with its values, its default and its meaning.

    Raises:
        BoardError: the board is unknown.
        UsageError: the template is unknown, or the board has none.
    """
    from mtool import boards, project

    selected, values = project.choose(boards.get(board), template, {})
    rows = []
    for name, option in sorted(selected.options.items()):
        least = "" if option.minimum is None else f" of at least {option.minimum}"
        takes = ", ".join(option.choices) or {"int": f"a number{least}", "bool": "true, false"}.get(option.type, "text")
        rows.append([name, takes, str(values[name]), option.help])
    out.result(
        {
            "board": board,
            "template": selected.name,
            "options": {name: option.model_dump(mode="json") for name, option in sorted(selected.options.items())},
        }
    )
    out.text(f"options of the template {selected.name}: --option NAME=VALUE")
    out.text(table(("name", "value", "default", ""), rows, folds=True))


# `mtool generate`: a model's project, without a build.


def generate(
    out: Output,
    models: list[Path],
    board: str = parameters.HOST,
    output_dir: Path | None = None,
    *,
    options: parameters.FirmwareOptions,
    list_options: bool = False,
) -> None:
    """Compile a model and write its project; nothing is built.

    Prints the commands that build it without mtool; `mtool run FOLDER` builds and runs it.
    """
    if list_options:
        show_template_options(out, board, options[0].template)
        return
    compiled = commands.compile_models(models, board=board, options=options, folder=output_dir)[0]
    folder = commands.write_project(compiled, output_dir)
    lines = commands.build_plan(compiled, output_dir, kinds=commands.ALL_KINDS)[0][1:]
    out.result({"folder": str(folder), "commands": lines})
    out.text(f"{folder}/", *(f"  {line}" for line in lines))


# `mtool build`: a model's project, built.


def build(
    out: Output,
    models: list[Path],
    board: str = parameters.HOST,
    output_dir: Path | None = None,
    *,
    options: parameters.FirmwareOptions,
    list_options: bool = False,
    dry_run: bool = False,
) -> None:
    """Compile a model and build its firmware.

    Several models share one firmware.
    """
    if list_options:
        show_template_options(out, board, options[0].template)
        return
    compiled = commands.compile_models(models, board=board, options=options, folder=output_dir)[0]
    if dry_run:
        lines, _ = commands.build_plan(compiled, output_dir, kinds=commands.ALL_KINDS)
        out.result({"commands": lines})
        out.text(*lines)
        return
    from mtool.device.build.fit import line

    prepared = commands.build_model(compiled, output_dir, kinds=commands.ALL_KINDS)
    protection = {model.model: model.protection.model_dump() for model in prepared.manifest.models if model.protection}
    sizes = {kind: prepared.sizes(kind) for kind in prepared.built.firmware}
    firmware = {kind: str(path) for kind, path in prepared.built.firmware.items()}
    stack = prepared.stack_bounds()
    out.result(
        {
            "folder": str(prepared.folder),
            "firmware": firmware,
            "toolchain": prepared.built.toolchain,
            "up_to_date": prepared.built.up_to_date,
            "sizes": {
                kind: {
                    "flash_bytes": size.flash_bytes,
                    "ram_bytes": size.ram_bytes,
                    "weights_in_ram_bytes": size.weights_in_ram_bytes,
                    "memories": {need.memory: need.bytes for need in size.memories},
                }
                for kind, size in sizes.items()
            },
            "stack": {name: bound.model_dump() for name, bound in stack.items()},
            **({"protection": protection} if protection else {}),
        }
    )
    for kind, path in firmware.items():
        needs = [f"  {line(need, prepared.manifest)}" for need in sizes[kind].memories]
        flash, ram = (kilobytes(count) for count in (sizes[kind].flash_bytes, sizes[kind].ram_bytes))
        out.text(f"{kind:<12} {path}", *(needs or [f"  the models' own: flash {flash}, RAM {ram}"]))
    out.text(*(f"{'stack':<12} {name}: at most {bound}" for name, bound in stack.items()))


# `mtool compile`: a model's C files, without a project.


def compile(
    out: Output,
    models: list[Path],
    board: str = parameters.HOST,
    output_dir: Path | None = None,
    *,
    options: parameters.SourceOptions,
    emit: Format = "c",
    about: list[str] | None = None,
    rpc: bool = False,
    verify_plan: bool = False,
) -> None:
    """Write a model as C, without a project.

    With several models: the C of a firmware that has them all.
    """
    from mtool.project import About
    from mtool.project.package import NO_BINARIES

    metadata = About.of(about or ())
    options = [dataclasses.replace(option, portable=True) for option in options]  # it may be compiled for another core
    if emit in NO_BINARIES:
        options = [dataclasses.replace(option, weights="text") for option in options]
    compiled, *more = (
        [commands.compile(path, board=board, options=each) for path, each in zip(models, options, strict=True)]
        if emit == "mlf"  # whose modules do not know each other
        else commands.compile_models(models, board=board, options=options, folder=output_dir)
    )
    if verify_plan:
        for model in (compiled, *more):
            check_plans(model.manifest.models)
    files = compiled.package(emit, about=metadata, more=more if emit == "mlf" else (), rpc=rpc)
    folder = commands.write_package(compiled, files, output_dir, form=emit)
    manifest = compiled.manifest
    out.result(
        {
            "folder": str(folder),
            "format": emit,
            "files": sorted(files),
            "manifest": manifest.model_dump(mode="json"),
            **({"models": [model.model_dump(mode="json") for model in manifest.models]} if manifest.firmware else {}),
        }
    )
    out.text(f"{folder}/")
    out.text(table(("", ""), [[f"  {path}", kilobytes(len(files[path]))] for path in files], right=(1,)))
    if verify_plan:
        out.text("", f"memory plan checked: {sum(len(model.operators) for model in manifest.models)} operators")
    if emit == "cmake" and board == parameters.HOST:
        out.text("", "for this computer's core; for a microcontroller's, name its board: --board NAME (mtool boards)")


def partition(
    out: Output,
    model: Path,
    board: str = parameters.HOST,
    output_dir: Path | None = None,
    *,
    options: parameters.PartitionOptions,
) -> None:
    """Write the parts of a model that backends claim as files for their compilers; no compiler is run.

    Ends with exit code 2 if no backend is given or a backend writes no files, 3 if the model can't be compiled, and 5
    if a backend fails.
    """
    from mtool.cli.check import claims_table

    parts = commands.partition(model, board=board, options=options, folder=output_dir)
    out.result(
        {
            "folder": str(parts.folder),
            "files": sorted(parts.files),
            "regions": [
                {
                    "name": region.name,
                    "backend": backend,
                    "operations": [operation.name for operation in region.operations],
                    "inputs": [tensor.tensor for tensor in region.inputs],
                    "outputs": [tensor.tensor for tensor in region.outputs],
                    "macs": region.macs,
                    "border_bytes": region.border_bytes,
                }
                for backend, region in parts.regions
            ],
            "claims": [claim.model_dump(mode="json") for claim in parts.claims],
        }
    )
    out.text(claims_table(parts.claims), "")
    rows = [
        [region.name, backend, str(len(region.operations)), f"{region.macs:,}", f"{region.border_bytes:,}"]
        for backend, region in parts.regions
    ]
    if not rows:
        out.text("no backend claims an operator: nothing was written")
        return
    out.text(table(("region", "backend", "operators", "MACs", "bytes at its border"), rows, right=(2, 3, 4)), "")
    out.text(f"{parts.folder}/", *(f"  {name}" for name in parts.files))
