"""`mtool build`: a model's project, built."""

from typing import TYPE_CHECKING, Any

from mtool import commands
from mtool.cli import parameters, template_options
from mtool.cli.output import Output
from mtool.stages import formatting

if TYPE_CHECKING:
    from mtool.manifest import Manifest
    from mtool.stages.building import Sizes


def build(
    out: Output,
    models: parameters.ModelFiles,
    board: parameters.BoardName = parameters.HOST,
    output_dir: parameters.OutputDir = None,
    *,
    options: parameters.FirmwareOptions,
    list_options: parameters.ListOptions = False,
    dry_run: parameters.DryRun = False,
) -> None:
    """Compile a model and build its firmware.

    Several models have one firmware.
    """
    if list_options:
        template_options.show(out, board, options[0].template)
        return
    compiled = commands.compile_models(models, board=board, options=options, folder=output_dir)[0]
    if dry_run:
        lines = commands.build_plan(compiled, output_dir, kinds=commands.ALL_KINDS)
        out.result({"commands": lines})
        for line in lines:
            out.text(line)
        return
    prepared = commands.build_model(compiled, output_dir, kinds=commands.ALL_KINDS)
    sizes = {kind: prepared.sizes(kind) for kind in prepared.built.firmware}
    firmware = {kind: str(path) for kind, path in prepared.built.firmware.items()}
    out.result(
        {
            "folder": str(prepared.folder),
            "firmware": firmware,
            "toolchain": prepared.built.toolchain,
            "up_to_date": prepared.built.up_to_date,
            "sizes": {
                kind: {
                    "flash_bytes": one.flash_bytes,
                    "ram_bytes": one.ram_bytes,
                    "weights_in_ram_bytes": one.weights_in_ram_bytes,
                    "memories": {need.memory: need.bytes for need in one.memories},
                }
                for kind, one in sizes.items()
            },
            **_fences(prepared.manifest),
        }
    )
    for kind, path in firmware.items():
        out.text(f"{kind:<12} {path}", *_lines(sizes[kind], prepared.manifest))


def _lines(sizes: "Sizes", manifest: "Manifest") -> list[str]:
    """Return what a firmware takes: of each memory of its board, else of flash and RAM."""
    from mtool.device.build.fit import line

    if sizes.memories:
        return [f"  {line(need, manifest)}" for need in sizes.memories]
    flash, ram = (formatting.kilobytes(count) for count in (sizes.flash_bytes, sizes.ram_bytes))
    return [f"  the models' own: flash {flash}, RAM {ram}"]


def _fences(manifest: "Manifest") -> dict[str, Any]:
    """Return the areas of each model's fence, if the models have one."""
    fences = {one.model: one.protection for one in manifest.models if one.protection is not None}
    return {"protection": {name: fence.model_dump() for name, fence in fences.items()}} if fences else {}
