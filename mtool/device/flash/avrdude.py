"""avrdude: AVR boards, through their bootloader or a programmer.

Settings: part ("atmega328p"), programmer ("arduino"), baud (115200 by default).
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class Avrdude(Runner):
    """Write the flash and read it back."""

    name = "avrdude"
    programs = ("avrdude",)
    install = "sudo apt-get install avrdude"
    takes = ".hex"
    selects = "port"
    verifies = True
    least_version = (6, 0)
    version_argv = ("-?",)
    causes = (
        Cause(Kind.PERMISSION, r"permission denied"),
        Cause(Kind.BUSY, r"resource busy|device or resource busy"),
        Cause(
            Kind.WRONG_CHIP, r"device signature.*(doesn.t|does not) match|expected signature|invalid device signature"
        ),
        Cause(Kind.VERIFY, r"verification (error|mismatch)|verification error|content mismatch"),
        Cause(Kind.LOCKED, r"lock ?bits|is write protected"),
        Cause(
            Kind.NO_PROBE,
            r"cannot open port|can't open device|no such file or directory|cannot set attributes for port"
            r"|(could not|cannot) find USB device",
        ),
        # After the others: avrdude asks ten times, whatever the reason.
        Cause(
            Kind.NO_BOOT_LOADER,
            r"not in sync|cannot get into sync|out of sync|not responding|no device present|getsync|timeout error",
        ),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Without an erase of the chip (-D): bootloaders erase page by page."""
        argv = [self.program(), "-q", "-p", job.setting("part"), "-c", job.setting("programmer")]
        argv += ["-P", self.port(job), "-b", job.setting("baud", 115200), "-D"]
        return [*argv, "-U", f"flash:w:{self.image(job)}:i"]
