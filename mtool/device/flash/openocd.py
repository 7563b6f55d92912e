"""OpenOCD: ST-LINK, CMSIS-DAP, J-Link, FTDI and other probes.

Settings: config (its configuration files, separated by spaces: "board/stm32f746g-disco.cfg").
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class OpenOcd(Runner):
    """Program, verify and reset in one session."""

    name = "openocd"
    programs = ("openocd",)
    install = "sudo apt-get install openocd"
    takes = ".elf"
    selects = "probe"
    verifies = True
    least_version = (0, 10)
    causes = (
        Cause(Kind.PERMISSION, r"LIBUSB_ERROR_ACCESS|libusb_open\(\) failed with LIBUSB_ERROR_ACCESS"),
        Cause(Kind.BUSY, r"LIBUSB_ERROR_BUSY"),
        Cause(
            Kind.LOCKED,
            r"device is read-?protected|read protection|flash.*(is )?locked|AP.*lock engaged|device security bit"
            r"|is_readout_protected|protected sector",
        ),
        Cause(
            Kind.WRONG_CHIP,
            r"UNEXPECTED|expected 1 of 1: 0x|Cannot identify target|unknown device id|wrong device",
        ),
        Cause(Kind.VERIFY, r"verify failed|checksum mismatch|contents differ"),
        Cause(
            Kind.NO_PROBE,
            r"open failed|unable to (find|open)|no device found|LIBUSB_ERROR_NO(T_FOUND|_DEVICE)|No J-Link",
        ),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """`program FILE verify reset exit`; a probe is named by its adapter's serial number."""
        argv = [self.program()]
        for config in job.setting("config").split():
            argv += ["-f", config]
        if job.probe:
            command = "hla_serial" if version and version < (0, 12) else "adapter serial"
            argv += ["-c", f"{command} {job.probe}"]
        return [*argv, "-c", f"program {{{job.firmware}}} verify reset exit"]

    def unlock(self, job: Job) -> str:
        """Of an STM32: its flash driver has the command."""
        configs = " ".join(f"-f {config}" for config in job.setting("config").split())
        command = f'{self.program()} {configs} -c "init; reset halt; DRIVER unlock 0; reset; exit"'
        return f"{command}, where DRIVER is the one that `flash list` tells"
