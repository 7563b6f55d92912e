"""st-flash, of the open stlink tools: STM32 through an ST-LINK.

Settings: address (of the image; default: the base of the memory that holds code).
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class StFlash(Runner):
    """Write a raw image, compare it, reset."""

    name = "st-flash"
    programs = ("st-flash",)
    install = "sudo apt-get install stlink-tools"
    takes = ".bin"
    selects = "probe"
    verifies = True
    least_version = (1, 5)
    causes = (
        Cause(Kind.PERMISSION, r"LIBUSB_ERROR_ACCESS|Could not open USB device.*access|insufficient permissions"),
        Cause(Kind.BUSY, r"LIBUSB_ERROR_BUSY|unable to claim"),
        Cause(Kind.LOCKED, r"RDP|read-?out protect|write protect|flash is locked|Failed to unlock"),
        Cause(
            Kind.WRONG_CHIP, r"unknown chip id|unsupported (chip|flash)|Failed to parse flash type|chip ?id.*mismatch"
        ),
        Cause(Kind.VERIFY, r"verification of flash failed|Flash content.*(differ|mismatch)"),
        Cause(
            Kind.NO_PROBE, r"Couldn't find any ST-Link|no ST-?Link|Failed to connect to target|unable to find .*serial"
        ),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """`st-flash write`, which verifies by itself."""
        probe = ["--serial", job.probe] if job.probe else []
        return [self.program(), *probe, "--reset", "write", str(self.image(job)), job.code_address()]

    def unlock(self, job: Job) -> str:
        """An erase under reset."""
        return f"{self.program()} --connect-under-reset erase"
