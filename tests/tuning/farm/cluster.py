"""A Dask scheduler and workers with simulated boards, as separate processes."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mtool.base.errors import CommunicationError
from mtool.tuning.farm.client import Farm
from tests.tuning.farm.stand_in import BOARD

ROOT = Path(__file__).parents[3]


@dataclass
class Cluster:
    port: int
    folder: Path
    scheduler: "subprocess.Popen[bytes] | None" = None
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self, *options: str) -> None:
        argv = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
        self.scheduler = self._start("scheduler", [*argv, "--host", "127.0.0.1", "--port", str(self.port), *options])

    def start_worker(self, count: int, *behaviours: str) -> None:
        argv = [sys.executable, "-m", "tests.tuning.farm.stand_in", self.address, str(count), *behaviours]
        self.workers.append(self._start(f"worker{len(self.workers)}", argv))

    def said(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.err")))

    def restart_scheduler(self) -> None:
        assert self.scheduler is not None
        end(self.scheduler, signal.SIGKILL)
        self.start_scheduler()

    def kill_worker(self, number: int) -> None:
        end(self.workers[number], signal.SIGKILL)

    def _start(self, name: str, argv: list[str]) -> "subprocess.Popen[bytes]":
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        with (self.folder / f"{name}.err").open("ab") as said:
            return subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=said, stderr=said)


def end(process: "subprocess.Popen[bytes]", number: int = signal.SIGTERM) -> None:
    process.send_signal(number)
    process.wait(timeout=30)


@contextlib.contextmanager
def cluster(folder: Path, *options: str) -> Iterator[Cluster]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    made = Cluster(port, folder)
    try:
        made.start_scheduler(*options)
        yield made
    finally:
        for process in filter(None, (*made.workers, made.scheduler)):
            if process.poll() is None:
                end(process, signal.SIGKILL)


def connected(made: Cluster, boards: int, patience_s: float = 120.0) -> Farm:
    """Return a connection, as soon as all boards are there, on a computer that may have much else to do."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            farm = Farm(made.address, BOARD)
            break
        except CommunicationError:
            if time.monotonic() > deadline:
                raise
    wait_for(lambda: farm.wait(0.2) == [] and farm.boards == boards, patience_s)
    return farm


def wait_for(condition: object, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it has not come about"
        time.sleep(0.05)
