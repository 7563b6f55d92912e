"""esptool: Espressif's chips, over their serial port or USB.

Settings: chip ("esp32s3"), address (of the image: 0x0 with Zephyr, 0x10000 with Arduino), baud (921600 by default).
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class Esptool(Runner):
    """Write the application image, whose hash the chip checks, and reset."""

    name = "esptool"
    programs = ("esptool", "esptool.py")
    install = "pip install esptool"
    takes = ".bin"
    selects = "port"
    verifies = True
    least_version = (3, 0)
    version_argv = ("version",)
    causes = (
        Cause(Kind.PERMISSION, r"permission denied|permission error"),
        Cause(Kind.BUSY, r"port is busy|resource busy|exclusively lock"),
        Cause(Kind.WRONG_CHIP, r"this chip is .* not|wrong --?chip|chip is .*, not|unexpected chip id"),
        Cause(Kind.LOCKED, r"secure (download|boot)|flash encryption|write protect"),
        Cause(Kind.VERIFY, r"MD5 of file does not match|hash of data.*(not|mis)match|verify failed"),
        Cause(
            Kind.NO_PROBE,
            r"failed to connect|no serial data received|could not open|doesn't exist|No such file|wrong boot mode",
        ),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Version 5 writes its words with hyphens."""
        write, before, after = "write-flash", "default-reset", "hard-reset"
        if version and version < (5,):
            write, before, after = (word.replace("-", "_") for word in (write, before, after))
        argv = [self.program(), "--chip", job.setting("chip"), "--port", self.port(job)]
        argv += ["--baud", job.setting("baud", 921600), "--before", before, "--after", after]
        return [*argv, write, job.setting("address"), str(self.image(job))]
