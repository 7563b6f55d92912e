"""A test rig: simulated boards in a separate process, and `mtool tune` on them as users call it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BOARD = "simulated_m4"
BOARDS = HERE / "boards.yaml"
PROGRAM = HERE / "simulated_board.py"
FACTOR = 0.02
_STARTS_S = 30.0


@dataclass(frozen=True)
class Rig:
    """Boards that run, and a folder to work in, whose mtool.toml knows them.

    Attributes:
        folder: the working folder; the log of each board's tuning is there.
        count: how many boards there are.
    """

    folder: Path
    count: int

    def port(self, number: int = 0) -> str:
        """Return the port of a board: a link to its pseudo-terminal, which is gone while it is unplugged."""
        return str(self.folder / "boards" / str(number) / "port")

    def log(self, number: int = 0) -> Path:
        """Return the log of a board's tuning."""
        return self.folder / f"tuning{number}.jsonl"

    def argv(self, model: Path, *more: str, number: int = 0) -> list[str]:
        """Return the command that tunes a model on a board; of an option that is given twice the last counts."""
        return [
            sys.executable, "-m", "mtool", "tune", str(model), "--board", BOARD, "--port", self.port(number),
            "-o", self.log(number).name, "-d", f"trials{number}", "--no-builds", *more,
        ]  # fmt: skip

    def start(self, argv: list[str]) -> "subprocess.Popen[str]":
        """Start a command in the folder, which Ctrl-C stops even where the tests run in a shell's background."""
        return subprocess.Popen(
            argv,
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def tune(self, model: Path, *more: str, number: int = 0, expect: int = 0) -> str:
        """Tune a model on a board, and return what was printed; the exit code has to be as expected."""
        process = self.start(self.argv(model, *more, number=number))
        said, _ = process.communicate(timeout=300)
        assert process.returncode == expect, said
        return said

    def status(self, number: int = 0) -> dict[str, Any]:
        """Return what a board has seen: flashes, calls of candidates, faults of each kind."""
        argv = [sys.executable, str(PROGRAM), "status", self.port(number)]
        found: dict[str, Any] = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
        return found

    def records(self, number: int = 0) -> list[dict[str, Any]]:
        """Return the lines of a log that are whole."""
        path = self.log(number)
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        found = []
        for line in filter(None, lines):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def power_command() -> str:
    """Return the command that cycles the power of a board."""
    return shlex.join([sys.executable, str(PROGRAM), "power"]) + " {port}"


def environment() -> dict[str, str]:
    """Return an environment in which `python -m mtool` is this checkout's."""
    return {**os.environ, "PYTHONPATH": str(HERE.parents[1])}


@contextmanager
def rig(
    folder: Path,
    *options: str,
    count: int = 1,
    seed: int = 0,
    factor: float = FACTOR,
    times: Sequence[Mapping[str, float]] = (),
    broken: Mapping[str, str] | None = None,
    power: bool = False,
) -> Iterator[Rig]:
    """Run boards while the block does.

    Args:
        folder: the working folder.
        options: of `simulated_board.py run`.
        count: how many boards.
        seed: of noise and faults.
        factor: of the times that pass.
        times: the truth for each board, in ns, by schedule.
        broken: the candidates that always fail, and how.
        power: mtool.toml names the command that cycles the power.
    """
    boards = folder / "boards"
    words = [sys.executable, str(PROGRAM)]
    said = {"boards": str(BOARDS), "flash": shlex.join([*words, "flash"]) + " {port} {elf}"}
    if power:
        said["power"] = power_command()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mtool.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items()))
    truth = folder / "truth.json"
    truth.write_text(json.dumps({"times": [dict(one) for one in times], "broken": dict(broken or {})}))
    argv = [*words, "run", str(boards), "--count", str(count), "--seed", str(seed), "--factor", str(factor)]
    process = subprocess.Popen([*argv, "--truth", str(truth), *options])
    try:
        deadline = time.monotonic() + _STARTS_S
        while not all((boards / str(number) / "control").exists() for number in range(count)):
            assert process.poll() is None and time.monotonic() < deadline, "the boards do not start"
            time.sleep(0.02)
        yield Rig(folder, count)
    finally:
        process.kill()
        process.wait()
