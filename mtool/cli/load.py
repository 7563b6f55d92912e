"""`mtool load`: a module, into a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtool.cli import parameters
from mtool.cli.output import Output

if TYPE_CHECKING:
    from mtool.commands.loading import Progress


def load(
    out: Output,
    module: Annotated[
        Path, typer.Argument(metavar="MODULE", help="The module, .mtm (`mtool module`).", show_default=False)
    ],
    project: Annotated[
        Path | None,
        typer.Argument(
            metavar="PROJECT",
            help="The folder of the firmware that runs on the device; without it, what answers at --port.",
            show_default=False,
        ),
    ] = None,
    board: Annotated[str, parameters.boards("The board at --port; default: the project's.")] = "",
    port: parameters.Port = "",
    probe: parameters.Probe = "",
    *,
    ram: Annotated[bool, typer.Option("--ram", help="Into RAM, where the next reset forgets it.")] = False,
    since: Annotated[
        Path | None,
        typer.Option(
            "--since",
            metavar="OLD.mtm",
            help="The module that is in flash: its difference from the new one is sent; default: the same, where that "
            "module was loaded from here.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Give a device a module: its model is one of the device's from then on, with no new firmware.

    It goes into the free slot of the flash, and takes the place of the one of its name, or of the one that was loaded
    first where no slot is left, when it is whole and was checked: which one is said before. Whatever breaks off leaves
    what was there, and the same command goes on where it was. Ends with exit code 2 if
    the module is none for this device, 4 if it does not fit, 8 if the device stops answering, 10 if it refuses it.
    """
    from mtool.commands import loading

    with _bar(out) as progress:
        done = loading.load_module(
            module, project, port=port, probe=probe, board=board, ram=ram, since=since, progress=progress
        )
    names = list(dict.fromkeys(one.name for one in done.models))  # one hides another of its name
    out.result(
        {
            "module": str(module),
            "name": done.module.name,
            "model_hash": done.module.model_hash.hex(),
            "counter": done.module.counter,
            "place": done.place.name.lower(),
            "bytes": done.file_bytes,
            "there_bytes": done.there_bytes,
            "delta_bytes": done.delta_bytes,
            "replaced": done.replaced or None,
            "is_kept": done.is_kept,
            "seconds": round(done.seconds, 3),
            "models": [
                {"name": one.name, "place": one.place.name.lower(), "model_hash": one.model_hash} for one in done.models
            ],
        }
    )
    delta = f", sent as a delta of {done.delta_bytes:,} B" if done.delta_bytes else ""
    before = f", {done.there_bytes:,} of them there before" if done.there_bytes else ""
    instead = f", in place of {done.replaced}" if done.replaced else ""
    out.text(f"{done.module.name} is in {done.place.name.lower()}: {done.file_bytes:,} B{before}{delta}{instead}")
    out.text(f"the device has: {', '.join(names)}")
    if not done.is_kept:
        what = "its RAM" if done.place.name == "RAM" else "its flash"
        out.text(f"the emulator has ended, and {what} with it: the next one starts without it")


@contextmanager
def _bar(out: Output) -> Iterator["Progress"]:
    """Yield what shows how far the load is, on a terminal."""
    if out.verbosity < 0 or not out.stderr.is_terminal:
        yield lambda there, whole: None
        return
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=out.stderr, transient=True) as bar:
        task = bar.add_task("load")
        yield lambda there, whole: bar.update(task, completed=there, total=whole)
