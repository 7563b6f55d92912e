"""`mtool calibrate`: a board's timer against this computer's clock."""

from dataclasses import asdict
from pathlib import Path

from mtool.cli.output import Output


def calibrate(
    out: Output,
    folder: Path,
    seconds: float = 10.0,
    port: str = "",
    probe: str = "",
    *,
    link_key: Path | None = None,
) -> None:
    """Measure a board's timer against this computer's clock.

    The result is kept under the board's serial number, and corrects all times that are measured on it later.
    """
    from mtool.device import session
    from mtool.device.session import timing

    with session.open(folder, port=port, probe=probe, link_key=link_key) as device:
        calibration = device.calibrate(seconds)
        path = timing.store(device.identity, calibration)
        out.result({"device": device.identity, **asdict(calibration), "stored_in": str(path)})
        out.text(f"{device.identity}: {calibration}")
        out.text(f"kept in {path}")
