"""west flash: the probe is named in the way that the runner beneath understands."""

import re

from mtool.device.flash.runner import NEWEST, Job, Runner, Version

_OPENOCD = "openocd"
# OpenOCD's --serial is heeded by few of Zephyr's openocd.cfg files.
_PROBE_OPTIONS = {
    _OPENOCD: ("--cmd-pre-init", "adapter serial "),
    "stm32cubeprogrammer": ("--conn-modifiers", "sn="),
}


class West(Runner):
    """Flash the build folder of a Zephyr project."""

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Flash without building."""
        named = job.setting("runner", "")
        argv = super().argv(job, version) + ["--verify"] * self.reads_back(job)
        option, prefix = _PROBE_OPTIONS.get(named or _default_runner(job), ("--dev-id", ""))
        return [*argv, option, prefix + job.probe] if job.probe else argv

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
