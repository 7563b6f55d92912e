"""SEGGER's J-Link Commander.

Settings: device (SEGGER's name of the chip: "nRF52840_xxAA"), interface ("SWD" by default), speed (kHz, 4000).
"""

from collections.abc import Mapping
from pathlib import Path

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version

_SCRIPT = "build/flash.jlink"


class JLink(Runner):
    """Load the ELF file by a script of four commands."""

    name = "jlink"
    programs = ("JLinkExe", "JLink")
    install = "J-Link comes from www.segger.com"
    takes = ".elf"
    selects = "probe"
    verifies = True
    version_argv = ()  # it has none: it would start a session
    causes = (
        Cause(Kind.PERMISSION, r"permission|could not open.*access"),
        Cause(Kind.LOCKED, r"(read|debug) (access )?protect|secured|device is locked|flash protected"),
        Cause(Kind.WRONG_CHIP, r"unknown.*device|is unknown to this|found core does not match|supplied core-id"),
        Cause(Kind.VERIFY, r"verif\w+ failed|failed.*compare|Error while programming flash"),
        Cause(Kind.BUSY, r"in use|already open"),
        Cause(
            Kind.NO_PROBE,
            r"FAILED: (cannot|could not) connect|connecting to J-Link.*FAILED|no emulators connected|Cannot connect to",
        ),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """The Commander with a script; -ExitOnError makes its exit code tell."""
        argv = [self.program(), "-nogui", "1", "-if", job.setting("interface", "SWD"), "-speed"]
        argv += [job.setting("speed", 4000), "-device", job.setting("device")]
        if job.probe:
            argv += ["-USB", job.probe.lstrip("0")]  # the USB descriptor pads the number with zeros, the tool does not
        return [*argv, "-autoconnect", "1", "-ExitOnError", "1", "-CommandFile", str(job.folder / _SCRIPT)]

    def files(self, job: Job) -> Mapping[Path, bytes]:
        """The script."""
        return {job.folder / _SCRIPT: f'r\nloadfile "{job.firmware}"\nr\ng\nq\n'.encode()}

    def unlock(self, job: Job) -> str:
        """A mass erase."""
        chosen = f"-device {job.setting('device')} -if {job.setting('interface', 'SWD')}"
        return f"{self.program()} {chosen} -speed {job.setting('speed', 4000)}, then: erase"
