"""An interrupted command ends its child processes, at once and without a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mtool.base import proc
from mtool.base.errors import MtoolError

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


def lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_end(numbers: str) -> bool:
    """Wait until the kernel has ended those that were killed."""
    until = time.monotonic() + 5
    while running := any(map(lives, map(int, numbers.split()))):
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    return not running


@pytest.mark.product(3)
@pytest.mark.parametrize(
    ("numbers", "code"),
    [([signal.SIGTERM], 143), ([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGHUP], 129)],
    ids=["SIGTERM", "Ctrl-C twice", "SIGHUP"],
)
def test_no_compiler_is_left(numbers: list[int], code: int, tmp_path: Path) -> None:
    """The compiler is one that never ends, and neither does what it has started."""
    pids = tmp_path / "pids"
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-c*|*.args*) sleep 60 & echo $! $$ > {pids}; wait;; esac\nexec /usr/bin/cc "$@"\n'
    )
    compiler.chmod(0o755)
    env = {**os.environ, "PATH": f"{compiler.parent}:{os.environ['PATH']}", "MTOOL_CACHE": "off"}
    argv = [sys.executable, "-m", "mtool", "build", str(DIGITS), "--board", "host"]
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as command:
        until = time.monotonic() + 60
        while not pids.exists() and command.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert pids.exists(), command.communicate()[0]
        for number in numbers:
            command.send_signal(number)
        said = command.communicate(timeout=20)[0].decode()
    assert command.returncode == code, said
    assert "Traceback" not in said
    assert all_end(pids.read_text())


def test_no_group_of_its_own_outlives_a_program(tmp_path: Path) -> None:
    """Ninja starts each command in a group of its own; nothing is left of it, not even a temporary file."""
    pids, temporary = tmp_path / "pids", tmp_path / "temporary"
    inner = f"sleep 60 & echo $! $$ > {pids}; echo $TMPDIR > {temporary}; touch $TMPDIR/cc1.s; wait"
    code = f"import subprocess; subprocess.Popen(['sh', '-c', {inner!r}], start_new_session=True).wait()"
    program = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", code]
    with pytest.raises(MtoolError, match="took more than"):
        proc.run(program, what="test", timeout_s=2, has_scratch=True)
    assert not any(map(lives, map(int, pids.read_text().split())))
    assert not Path(temporary.read_text().strip()).exists()


def test_ctrl_c_before_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            pids.write_text(str(self.pid))
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(subprocess, "Popen", Started)
    with pytest.raises(KeyboardInterrupt):
        proc.run(["sleep", "60"], what="test", timeout_s=60)
    assert all_end(pids.read_text())
    assert signal.getsignal(signal.SIGINT) is before
