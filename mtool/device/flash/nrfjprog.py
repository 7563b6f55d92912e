"""nrfjprog: Nordic's older tool, over a J-Link.

Settings: family ("NRF52", "NRF53", "NRF91").
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class NrfJprog(Runner):
    """Program the sectors that change, verify, reset."""

    name = "nrfjprog"
    programs = ("nrfjprog",)
    install = "nrfjprog comes with nRF Command Line Tools from www.nordicsemi.com; or give --runner nrfutil"
    takes = ".hex"
    selects = "probe"
    verifies = True
    least_version = (10, 0)
    causes = (
        Cause(Kind.PERMISSION, r"permission|LIBUSB_ERROR_ACCESS"),
        Cause(Kind.LOCKED, r"access protection|readback protection|APPROTECT|NOT_AVAILABLE_BECAUSE_PROTECTION"),
        Cause(Kind.WRONG_CHIP, r"WRONG_FAMILY|does not match the family|unknown device|family.*(not|un)supported"),
        Cause(Kind.VERIFY, r"verify (failed|error)|VERIFY_ERROR"),
        Cause(Kind.BUSY, r"already (open|in use)|JLINKARM.*busy"),
        Cause(
            Kind.NO_PROBE,
            r"no debuggers? (is|are) connected|no (emulator|debugger)|EMULATOR_NOT_CONNECTED|LOW_VOLTAGE"
            r"|cannot connect to a debug probe",
        ),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """One call does all of it."""
        argv = [self.program(), "--family", job.setting("family"), "--program", str(self.image(job)), "--sectorerase"]
        argv += ["--verify", "--reset"]
        return [*argv, "--snr", job.probe] if job.probe else argv

    def unlock(self, job: Job) -> str:
        """Recover: a mass erase that opens the access port."""
        return f"{self.program()} --family {job.setting('family')} --recover"
