"""A deployment of a model: its project folder, and the device that runs it."""

from dataclasses import dataclass
from pathlib import Path

from mtool import session
from mtool.session import Device


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of a model: its project folder, and the device that runs it.

    folder: the project folder; None: build/<model>-<board> below the working folder.
    port: the serial port of the board; empty: its emulator, MTOOL_PORT, mtool.toml, the single match.
    probe: the USB serial number of the board or its probe, or the beginning of it; empty: likewise.
    flash: the command that flashes the board, in place of a runner; empty: that of mtool.toml, or a runner.
    power: the command that cycles the board's power; empty: that of mtool.toml or of the board, or none.
    """

    folder: Path | None = None
    port: str = ""
    probe: str = ""
    flash: str = ""
    power: str = ""

    def open(self, folder: Path) -> Device:
        """Open a session with the device, which runs the firmware of the project that was built in `folder`."""
        return session.open(folder, port=self.port, probe=self.probe)


DEFAULT = Deployment()
