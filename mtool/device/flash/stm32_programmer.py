"""STM32CubeProgrammer's command line: STM32 through an ST-LINK.

Settings: port ("SWD" by default), loader (an external loader, for boards that run from external flash).
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class Stm32Programmer(Runner):
    """Write, verify and reset through ST's own tool."""

    name = "stm32cubeprogrammer"
    programs = ("STM32_Programmer_CLI", "STM32_Programmer.sh")
    install = "STM32CubeProgrammer comes from www.st.com; put its bin folder on PATH, or give --runner openocd"
    takes = ".elf"
    selects = "probe"
    verifies = True
    causes = (
        Cause(Kind.PERMISSION, r"LIBUSB_ERROR_ACCESS|DEV_USB_COMM_ERR|permission"),
        Cause(Kind.BUSY, r"DEV_CONNECT_ERR.*in use|already (used|opened)|ST-LINK is (used|busy)"),
        Cause(Kind.LOCKED, r"read ?out protection|RDP|protected from read|write protected"),
        Cause(Kind.VERIFY, r"verification failed|data mismatch"),
        Cause(Kind.WRONG_CHIP, r"unknown (device|chip)|device id.*(not|un)supported|loader.*not.*match"),
        Cause(Kind.NO_PROBE, r"No (debug probe|ST-?LINK) detected|No STLink|DEV_NO_STLINK|ST-LINK error.*DEV_"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Connect under reset, download, verify, reset."""
        argv = [self.program(), "--connect", f"port={job.setting('port', 'SWD')}", "mode=UR", "reset=HWrst"]
        if job.probe:
            argv.append(f"sn={job.probe}")
        if job.setting("loader", ""):
            argv += ["--extload", job.setting("loader")]
        return [*argv, "--download", str(job.firmware), "--verify", "-hardRst"]

    def unlock(self, job: Job) -> str:
        """Read-out protection back to level 0."""
        return f"{self.program()} --connect port={job.setting('port', 'SWD')} mode=UR --readunprotect"
