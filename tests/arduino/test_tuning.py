"""Tuning of an attached board: simavr behind a pseudo-terminal, flashed with one trial after another."""

import os
import stat
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mtool
from mtool import boards
from mtool.base import locks
from mtool.commands import Options
from mtool.compiler.tuned import record as tuning_log
from mtool.device.flash import ports
from mtool.device.flash.ports import Attached
from mtool.stages.deployment import Deployment
from tests.arduino import simavr
from tests.compiler.tuned.pointwise import network

BOARD = "arduino_mega2560"
PROBE = "75833353934351F0B1C2"
_AVRDUDE = """#!{python}
import pathlib, sys, time
folder = pathlib.Path({folder!r})
if "-?" in sys.argv:
    print("avrdude version 7.1")
    sys.exit()
image = sys.argv[sys.argv.index("-U") + 1].split(":")[2]
(folder / "wanted.part").write_text(image)
(folder / "wanted.part").rename(folder / "wanted")
while not (folder / "done").exists():
    time.sleep(0.01)
(folder / "done").unlink()
"""


class Attachment:
    """A board behind a port: it runs what was flashed last, and nothing before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.flashed = folder, 0
        self.device, self.terminal = os.openpty()
        tty.setraw(self.terminal)
        self.port = os.ttyname(self.terminal)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        wanted = self.folder / "wanted"
        while not self.is_over.wait(0.01):
            if wanted.exists():
                image = Path(wanted.read_text())
                wanted.unlink()
                self._stop()
                built: Any = SimpleNamespace(
                    manifest=SimpleNamespace(project=SimpleNamespace(board=boards.get(BOARD))),
                    firmware={"host_driven": image.with_suffix(".elf")},
                )
                argv = simavr.command(built, "host_driven")
                self.process = subprocess.Popen(argv, stdin=self.device, stdout=self.device)
                self.flashed += 1
                (self.folder / "done").touch()

    def _stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        self.is_over.set()
        self.thread.join()
        self._stop()
        os.close(self.device)
        os.close(self.terminal)


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attachment]:
    simavr.need()
    tools = tmp_path / "tools"
    tools.mkdir()
    tool = tools / "avrdude"
    tool.write_text(_AVRDUDE.format(python=sys.executable, folder=str(tmp_path)))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    board = Attachment(tmp_path)
    monkeypatch.setattr(ports, "attached", lambda *_: [Attached(board.port, "2341:0042", PROBE, "Arduino Mega")])
    try:
        yield board
    finally:
        board.close()


@pytest.mark.slow
@pytest.mark.long
def test_an_attached_board_is_flashed_once_for_many_candidates(attached: Attachment, tmp_path: Path) -> None:
    options = Options(template_options={"builder": "cmake"})
    log = tmp_path / "t.jsonl"
    path = network(tmp_path / "m.onnx", channels=4)
    start = time.monotonic()
    found = mtool.tune(
        path, board=BOARD, output=log, options=options, trials=12, builds=False, deployment=Deployment(tmp_path / "p")
    )
    assert found.setup.unit == "ns" and found.setup.clock_hz == 16_000_000
    assert found.progress.measured == 12 and found.progress.failed == 0
    assert found.progress.firmwares <= 2, "one for the candidates, one for the finals, if some are near each other"
    assert attached.flashed <= found.progress.firmwares + 3, "the model by default, tuned, by default again"
    assert found.whole is not None
    assert 0 < found.whole.best.median <= found.whole.default.median
    read = tuning_log.read([log])
    rows = found.progress.rows.values()
    assert all(row.best is not None and 1e4 < row.best.median < 1e9 for row in rows)
    assert any(one.baseline for one in read.measurements) and len(read.plans) == 1
    assert time.monotonic() - start < 500
    locks.Lock(attached.port).release()  # no process holds it any more
