"""nrfutil device: Nordic's tool, over a J-Link.

Settings: core (of a chip with several: "Application", "Network").
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class NrfUtil(Runner):
    """Program the ranges that change, verify, reset."""

    name = "nrfutil"
    programs = ("nrfutil",)
    install = "nrfutil comes from www.nordicsemi.com; then: nrfutil install device"
    takes = ".hex"
    selects = "probe"
    verifies = True
    version_argv = ("device", "--version")
    causes = (
        Cause(Kind.PERMISSION, r"permission|LIBUSB_ERROR_ACCESS"),
        Cause(Kind.LOCKED, r"access protection|readback protection|APPROTECT|ProtectionError|is protected"),
        Cause(Kind.WRONG_CHIP, r"WrongFamily|wrong family|family.*(mismatch|not match)|unsupported device"),
        Cause(Kind.VERIFY, r"verif\w+ (failed|error)|verify.*mismatch"),
        Cause(Kind.BUSY, r"already (open|in use)|is busy"),
        Cause(Kind.NO_PROBE, r"no (matching |supported )?devices? (were )?(found|connected)|not find any|No device"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """One call does all of it."""
        options = "chip_erase_mode=ERASE_RANGES_TOUCHED_BY_FIRMWARE,verify=VERIFY_READ,reset=RESET_SYSTEM"
        argv = [self.program(), "device", "program", "--firmware", str(self.image(job)), "--options", options]
        if job.setting("core", ""):
            argv += ["--core", job.setting("core")]
        return [*argv, "--serial-number", job.probe] if job.probe else argv

    def unlock(self, job: Job) -> str:
        """Recover: a mass erase that opens the access port."""
        return f"{self.program()} device recover"
