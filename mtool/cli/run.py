"""`mtool run`: a model's outputs on a board."""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool import commands
from mtool.base import files
from mtool.base.errors import UsageError
from mtool.base.escaping import short_name
from mtool.base.plural import count
from mtool.cli import parameters
from mtool.cli.boards import FLASH, RAM, capacity
from mtool.cli.output import Output, written

if TYPE_CHECKING:
    from mtool.commands import RunResult
    from mtool.manifest import Tensor
    from mtool.stages.samples import Array, Sample

_SHOWN = 16  # elements of an output that are printed


def run(
    out: Output,
    model: Path,
    board: str = "",
    input: Path | None = None,
    output: Path | None = None,
    fill: str = "random",
    dump: Path | None = None,
    seed: int = 0,
    *,
    on: Path | None = None,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
) -> None:
    """Run a model on a board and show its outputs.

    A project's folder is run as it is, and built first if necessary.
    Without MODEL, in a project of yours (docs/own-project.md): its program runs, unless there is --input or --output.
    """
    from mtool.stages.job import board_of, own_firmware

    if input is not None and fill != "random":
        raise UsageError("--input and --fill can't be combined", hint="leave one of them out")
    if options.program is not None and not options.program.port and not any((input, output, dump, on)):
        from mtool.commands.flashing import run_program
        from mtool.stages.job import Job

        printed = bytearray()

        def show(data: bytes) -> None:
            printed.extend(data)
            if not out.as_json:
                with written():
                    sys.stdout.buffer.write(data)
                    sys.stdout.buffer.flush()

        run_program(Job(model, board, options, deployment), show)
        out.result({"output": printed.decode(errors="replace")})
        return
    if output is not None:
        _check_output(output, model, input)
    on = on or own_firmware(model, deployment)
    if on is not None:
        board = board_of(on, board)
    ran = commands.run(
        model, board=board, inputs=input, options=options, deployment=deployment, seed=seed, fill=fill, dump=dump, on=on
    )
    if output is not None:
        _save(output, ran.stacked())
    out.result(
        {
            "model": ran.prepared.manifest.model_file,
            "board": ran.prepared.board.name,
            "folder": str(ran.prepared.folder),
            "samples": len(ran.outputs),
            "cost": ran.cost.as_json(),
            "first_run": None if ran.first_run is None else ran.first_run.as_json(),
            "outputs": {name: _finite(value) for name, value in ran.stacked().items()},
        }
    )
    _print(out, ran)


def _print(out: Output, ran: "RunResult") -> None:
    from mtool.device.build import builds_whole_framework
    from mtool.stages import samples as sampling

    out.text()
    tensors = {output.name: output for output in ran.prepared.manifest.outputs}
    for sample in ran.outputs[:_SHOWN]:
        for name, value in sampling.cut(list(tensors.values()), sample).items():
            out.text(f"  {short_name(name):<9} {described(value)}{_count_note(tensors[name], sample)}")
    if len(ran.outputs) > _SHOWN:
        out.text(f"  and {count(len(ran.outputs) - _SHOWN, 'more sample')}; --output Y.npz writes all")
    board = ran.prepared.board
    for label, needed, available in (
        ("flash", ran.cost.flash(), capacity(board, FLASH)),
        ("ram", ran.cost.ram(), capacity(board, RAM)),
    ):
        out.text(f"  {label:<9} {needed}" + (f"   of {available}" if available else ""))
    if board.memories and ran.cost.firmware == commands.HOST_DRIVEN:
        project = ran.prepared.manifest.project
        others = project is not None and not builds_whole_framework(project.builder)
        out.text(f"  {'':<9} with the RPC server, by which mtool drives it" + "; without it: mtool bench" * others)


def described(value: "Array") -> str:
    """Return an output in one line, with the index of its largest element if it has several."""
    flat = value.reshape(-1)
    shown = " ".join(f"{element:.6g}" if flat.dtype.kind == "f" else str(element) for element in flat[:_SHOWN])
    more = f" … {flat.size} in all" if flat.size > _SHOWN else ""
    largest = f"   argmax {int(flat.argmax())}" if flat.size > 1 and flat.dtype.kind in "fiu" else ""
    return f"[ {shown}{more} ]{largest}"


def _count_note(tensor: "Tensor", sample: "Sample") -> str:
    """Return an output's number of elements as text, where it depends on data."""
    if tensor.count is None or tensor.count_axis is None:
        return ""
    return f"   {sample[tensor.count]} of at most {tensor.shape[tensor.count_axis]}"


def _check_output(path: Path, *read: Path | None) -> None:
    if path.suffix != ".npz":
        raise UsageError(f"--output {path}: outputs are written as .npz", hint=f"--output {path.with_suffix('.npz')}")
    files.check_writable(path, read)


def _save(path: Path, outputs: "dict[str, Array]") -> None:
    import numpy as np

    data = io.BytesIO()
    np.savez(data, **outputs)  # type: ignore[arg-type]
    files.write(path, data.getvalue(), follow=True)


def _finite(value: "Array") -> Any:
    """Return an array as nested lists; values that are not finite as text, as JSON has no numbers for them."""
    import numpy as np

    if value.dtype.kind == "f" and not np.isfinite(value).all():
        return np.where(np.isfinite(value), value.astype(object), value.astype(str)).tolist()
    return value.tolist()
