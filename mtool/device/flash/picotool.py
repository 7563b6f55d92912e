"""picotool: Raspberry Pi's RP2040 and RP2350 over USB, in BOOTSEL mode or running a firmware with its reset interface.

Settings: none.
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class Picotool(Runner):
    """Load, verify and start."""

    name = "picotool"
    programs = ("picotool",)
    install = "picotool comes from github.com/raspberrypi/picotool; or hold BOOTSEL and give --runner uf2"
    takes = ".elf"
    selects = "probe"
    verifies = True
    version_argv = ("version",)
    causes = (
        Cause(Kind.PERMISSION, r"permission|appears to be a (RP\w+ )?device.*unable to connect|LIBUSB_ERROR_ACCESS"),
        Cause(Kind.WRONG_CHIP, r"family id .* (not|cannot)|not (supported|valid) (on|for) (this|the)|wrong family"),
        Cause(Kind.LOCKED, r"not accessible|permission failure.*partition|secure boot"),
        Cause(Kind.VERIFY, r"verif\w+ failed|does not match"),
        Cause(Kind.NO_PROBE, r"no accessible|no (connected )?RP\w* devices|not in BOOTSEL mode"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Load with -f, which brings a running firmware to BOOTSEL mode and back."""
        argv = [self.program(), "load", "--verify", "--execute", str(job.firmware), "-t", "elf", "-f"]
        return [*argv, "--ser", job.probe] if job.probe else argv
