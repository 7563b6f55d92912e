"""gdb: any target behind a gdb server. QEMU's machines are flashed so: started halted with `-gdb tcp:HOST:PORT -S`.

Settings: none; the port is "host:port".
"""

from mtool.base.proc import Completed
from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version


class Gdb(Runner):
    """Load the ELF file, compare every section with what the target reads back, reset and let it run."""

    name = "gdb"
    programs = ("gdb-multiarch", "arm-none-eabi-gdb", "gdb")
    install = "sudo apt-get install gdb-multiarch"
    takes = ".elf"
    selects = "port"
    verifies = True
    timeout_s = 60.0
    causes = (
        Cause(Kind.NO_PROBE, r"connection (refused|timed out)|could not connect|remote.*(closed|failed)"),
        Cause(Kind.VERIFY, r"MIS-MATCHED|One or more sections"),
        Cause(Kind.WRONG_CHIP, r"architecture .* (is not|incompatible)|Cannot access memory|Load failed"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """One batch."""
        argv = [self.program(), "-nx", "-batch"]
        commands = [
            "set confirm off",
            "set remotetimeout 10",
            f"target extended-remote {self.port(job)}",
            "load",
            "compare-sections",
            "monitor system_reset",
            "detach",
        ]
        return [*argv, *(word for command in commands for word in ("-ex", command)), str(job.firmware)]

    def succeeded(self, done: Completed) -> bool:
        """A batch goes on after a command that failed, so its output must tell that all were carried out."""
        return "Transfer rate" in done.output and "matched." in done.output and "MIS-MATCHED" not in done.output
