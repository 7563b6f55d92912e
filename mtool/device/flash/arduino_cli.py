"""arduino-cli upload: every board of the Arduino world, with the tool that its core brings along.

Settings: none; the board's FQBN is in its `templates`.
"""

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class ArduinoCli(Runner):
    """Upload what `arduino-cli compile` made."""

    name = "arduino-cli"
    programs = ("arduino-cli",)
    install = "arduino-cli comes from arduino.github.io/arduino-cli; then: arduino-cli core install CORE"
    takes = "project"
    selects = "port"
    verifies = True
    least_version = (0, 13)
    version_argv = ("version",)
    timeout_s = 180.0
    causes = (
        Cause(Kind.PERMISSION, r"permission denied"),
        Cause(Kind.BUSY, r"resource busy|port is busy"),
        Cause(
            Kind.WRONG_CHIP,
            r"(device )?signature.*(doesn.t|does not) match|expected signature|wrong (board|chip)|device unsupported",
        ),
        Cause(Kind.LOCKED, r"is locked|security bit"),
        Cause(Kind.VERIFY, r"verif\w+ (error|failed|mismatch)|content mismatch"),
        Cause(
            Kind.NO_PROBE,
            r"no device found|cannot open port|can't open device|failed to connect|port.*(not found|not exist)"
            r"|no (upload )?port|no such file or directory|No DFU capable",
        ),
        Cause(Kind.NO_BOOT_LOADER, r"not in sync|programmer is not responding|getsync"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Upload the folder of the firmware, and verify."""
        argv = [self.program(), "upload", "--fqbn", job.framework_board, "--port", self.port(job), "--verify"]
        return [*argv, "--input-dir", str(job.firmware.parent), str(job.folder / job.firmware.parent.name)]
