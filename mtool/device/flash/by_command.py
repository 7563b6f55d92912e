"""command: whatever a command line says, for a rack's own tool, a script, a remote lab.

Settings: run (the command line: "labtool write --to {port} {elf}"). `mtool.toml` and `--flash-command` give it too. How
it is read is told in mtool/device/flash/command_line.py.
"""

from mtool.device.flash import command_line
from mtool.device.flash.runner import NEWEST, Command, Job, Runner, Version


class ByCommand(Runner):
    """Run a command line; exit code 0 says that the firmware is on the board and runs.

    Args:
        text: the command line; empty: the setting `run`.
    """

    name = "command"
    programs = ()
    install = ""
    takes = ".elf"
    selects = "port"
    verifies = False
    timeout_s = 600.0
    causes = ()

    def __init__(self, text: str = "") -> None:
        self._text = text

    def probe_version(self) -> Version:
        """Return (): what the program is, its command line alone knows."""
        return ()

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Put the firmware and the device into the command line."""
        values = {
            "elf": str(job.firmware),
            "hex": str(job.firmware.with_suffix(".hex")),
            "bin": str(job.firmware.with_suffix(".bin")),
            "folder": str(job.folder),
            "port": job.port,
            "probe": job.probe,
        }
        return command_line.argv(self._of(job), values, what="the flash command")

    def commands(self, job: Job, version: Version = NEWEST) -> list[Command]:
        """Convert the firmware first, where the command line asks for another format that no build makes."""
        named = command_line.names(self._of(job))
        made = [self._converted(job, f".{kind}") for kind in ("hex", "bin") if kind in named]
        return [*(command for command in made if command), Command(tuple(self.argv(job, version)))]

    def _of(self, job: Job) -> str:
        return self._text or job.setting("run")
