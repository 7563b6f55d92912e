"""bossac: Atmel SAM and SAMD boards, through their bootloader.

Settings: offset (of the image behind the bootloader: 0x2000), touch (1: opening the port at 1200 baud starts the
bootloader, which is then looked for at the same port).
"""

import sys

from mtool.device.flash.runner import NEWEST, Cause, Command, Job, Kind, Runner, Version

_BOOTLOADER_S = 2.5


class Bossac(Runner):
    """Erase, write, verify, reset."""

    name = "bossac"
    programs = ("bossac",)
    install = "sudo apt-get install bossa-cli"
    takes = ".bin"
    selects = "port"
    verifies = True
    version_argv = ("--help",)
    causes = (
        Cause(Kind.PERMISSION, r"permission denied"),
        Cause(Kind.BUSY, r"resource busy"),
        Cause(Kind.LOCKED, r"security (bit|is set)|region is locked|flash region"),
        Cause(Kind.WRONG_CHIP, r"device unsupported|unsupported (device|chip)|unknown chip"),
        Cause(Kind.VERIFY, r"verify failed"),
        Cause(Kind.NO_PROBE, r"no device found|failed to open port|SAM-BA operation failed|no such file"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Erase, write, verify, reset."""
        argv = [self.program(), f"--port={self.port(job).removeprefix('/dev/')}", "--erase", "--write", "--verify"]
        if "offset" in job.settings:
            argv.append(f"--offset={job.setting('offset')}")
        return [*argv, "--reset", str(self.image(job))]

    def commands(self, job: Job, version: Version = NEWEST) -> list[Command]:
        """Start the bootloader first, where the board wants it so."""
        *before, flash = super().commands(job, version)
        if job.setting("touch", 0) == "0":
            return [*before, flash]
        touch = ("stty", "-f" if sys.platform == "darwin" else "-F", self.port(job), "1200", "hupcl")
        return [*before, Command(touch, settle_s=_BOOTLOADER_S), flash]
