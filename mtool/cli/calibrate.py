"""`mtool calibrate`: a board's timer against this computer's clock."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from mtool.cli import parameters
from mtool.cli.output import Output
from mtool.cli.parameters import argument, option


def calibrate(
    out: Output,
    folder: Annotated[Path, argument("FOLDER", "A project whose firmware runs on the board.")],
    seconds: Annotated[float, option("--seconds", "How long to measure.", min=0.01)] = 10.0,
    port: parameters.Port = "",
    probe: parameters.Probe = "",
) -> None:
    """Measure a board's timer against this computer's clock.

    What is found is kept for that board by its serial number; times that are measured from then on are corrected by it.
    """
    from mtool.device import session
    from mtool.device.session import timing

    with session.open(folder, port=port, probe=probe) as device:
        found = device.calibrate(seconds)
        path = timing.store(device.identity, found)
        out.result({"device": device.identity, **asdict(found), "stored_in": str(path)})
        out.text(f"{device.identity}: {found}")
        out.text(f"kept in {path}")
