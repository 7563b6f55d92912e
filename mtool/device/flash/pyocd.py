"""pyOCD: CMSIS-DAP, ST-LINK and J-Link probes.

Settings: target (pyOCD's name of the chip: "stm32f746zg"), pack (the file of the CMSIS
pack that has this chip, if pyOCD does not know it: "packs/Keil.STM32F7xx_DFP.2.15.1.pack").
"""

import shlex

from mtool.base.proc import Completed
from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


def chip(job: Job) -> list[str]:
    """Return the options that say which chip it is."""
    pack = job.setting("pack", "")
    return ["--target", job.setting("target"), *(["--pack", pack] if pack else [])]


class PyOcd(Runner):
    """Program and reset; it fails at once where no probe is."""

    name = "pyocd"
    programs = ("pyocd",)
    install = "pip install pyocd"
    takes = ".elf"
    selects = "probe"
    verifies = False
    least_version = (0, 30)
    causes = (
        Cause(Kind.PERMISSION, r"insufficient permissions|access denied|LIBUSB_ERROR_ACCESS|Errno 13"),
        Cause(Kind.BUSY, r"resource busy|Errno 16|already (open|in use)"),
        Cause(Kind.LOCKED, r"is locked|APPROTECT|security state|flash (is )?(read|write)?-?protected"),
        Cause(
            Kind.WRONG_CHIP,
            r"target type .* not recognized|no (valid )?target|unexpected (idcode|part)|no such part|Error reading DP",
        ),
        Cause(Kind.NO_PROBE, r"no (available|connected) debug probes|no probes? (was|were)? ?found|no matching debug"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """`pyocd flash --no-wait`; without it pyOCD waits for a probe forever."""
        argv = [self.program(), "flash", "--no-wait", *chip(job)]
        if job.probe:
            argv += ["--uid", job.probe]
        return [*argv, str(job.firmware)]

    def unlock(self, job: Job) -> str:
        """A mass erase."""
        return shlex.join([self.program(), "erase", "--mass", *chip(job)])

    def succeeded(self, done: Completed) -> bool:
        """Some versions end with exit code 0 where no probe is."""
        return done.returncode == 0 and not self.causes[-1].matches(done.output)
