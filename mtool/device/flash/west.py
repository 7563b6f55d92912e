"""west flash: Zephyr's own way, with the runner that Zephyr chooses for the board unless the setting says another.

Settings: runner (a Zephyr runner: "openocd", "jlink", "pyocd", "stm32cubeprogrammer", ...).
"""

import re
from collections.abc import Callable, Mapping

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version

_OPENOCD = "openocd"


def _by_id(probe: str) -> list[str]:
    return ["--dev-id", probe]


# How the runners without --dev-id are told the probe. OpenOCD's
# --serial is heeded by few of Zephyr's openocd.cfg files.
_PROBE_OPTIONS: Mapping[str, Callable[[str], list[str]]] = {
    _OPENOCD: lambda probe: ["--cmd-pre-init", f"adapter serial {probe}"],
    "stm32cubeprogrammer": lambda probe: ["--conn-modifiers", f"sn={probe}"],
}


class West(Runner):
    """Flash the build folder of a Zephyr project."""

    name = "west"
    programs = ("west",)
    install = "pip install west"
    takes = "project"
    selects = "probe"
    verifies = False
    timeout_s = 180.0
    causes = (
        Cause(Kind.PERMISSION, r"LIBUSB_ERROR_ACCESS|permission denied|insufficient permissions"),
        Cause(
            Kind.NO_PROBE,
            r"open failed|unable to open|no (available )?debug probes?|no J-Link|no ST-?LINK|device not found"
            r"|there are no boards connected|unable to find|no device found|could not find a UF2",
        ),
        Cause(Kind.LOCKED, r"access protection|APPROTECT|read-?out protect|RDP|is locked|device security is enabled"),
        Cause(Kind.WRONG_CHIP, r"UNEXPECTED idcode|wrong chip|unknown device|does not match the (selected|expected)"),
        Cause(Kind.VERIFY, r"verif\w+ failed|contents differ|mismatch"),
        Cause(Kind.BUSY, r"LIBUSB_ERROR_BUSY|resource busy|in use"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """`west flash` without building; the probe is named in the way that the runner beneath understands."""
        named = job.setting("runner", "")
        argv = [self.program(), "flash", "--skip-rebuild", "--build-dir", str(job.firmware.parent.parent)]
        if named:
            argv += ["--runner", named]
        if named == _OPENOCD:
            argv.append("--verify")
        return [*argv, *_PROBE_OPTIONS.get(named or _default_runner(job), _by_id)(job.probe)] if job.probe else argv

    def reads_back(self, job: Job) -> bool:
        """With OpenOCD alone."""
        return job.setting("runner", "") == _OPENOCD


def _default_runner(job: Job) -> str:
    """Return the runner that the build says Zephyr takes; "" before it is built."""
    try:
        found = re.search(r"^flash-runner: *(\S+)", (job.firmware.parent / "runners.yaml").read_text(), re.MULTILINE)
    except FileNotFoundError:
        return ""
    return found[1] if found else ""
