"""dfu-util: chips in USB DFU mode, such as the ROM of an STM32.

Settings: id (VID:PID in DFU mode: "0483:df11"), alt (its alternate setting, 0 by default), address (of the image;
default: the base of the memory that holds code; "": the bootloader knows).
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class DfuUtil(Runner):
    """Download a raw image and leave DFU mode."""

    name = "dfu-util"
    programs = ("dfu-util",)
    install = "sudo apt-get install dfu-util"
    takes = ".bin"
    selects = "probe"
    verifies = False
    least_version = (0, 8)
    causes = (
        Cause(Kind.PERMISSION, r"LIBUSB_ERROR_ACCESS|cannot open.*access"),
        Cause(Kind.BUSY, r"LIBUSB_ERROR_BUSY|cannot claim interface"),
        Cause(Kind.LOCKED, r"errVENDOR|read protect|device.*protected"),
        Cause(Kind.WRONG_CHIP, r"does not match|Last page at .* is not writeable|not writeable|more than one DFU"),
        Cause(Kind.NO_PROBE, r"no DFU capable USB device|no such device|lost device"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Download; `:leave` starts the firmware afterwards."""
        argv = [self.program(), "-d", job.setting("id"), "-a", job.setting("alt", 0)]
        if job.probe:
            argv += ["-S", job.probe]
        if job.settings.get("address") != "":
            argv += ["-s", f"{job.code_address()}:leave"]
        return [*argv, "-D", str(self.image(job))]

    def unlock(self, job: Job) -> str:
        """A mass erase, for STM32."""
        return f"{self.program()} -d {job.setting('id')} -a 0 -s :unprotect:force -D {self.image(job)}"
