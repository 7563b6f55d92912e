"""Batches of models: what a C compiler refuses is told by model, and no program is left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtool.errors import DeviceError
from mtool.onnx_backend import batch


@pytest.mark.parametrize("place", ["m1.c", "m1_weights.c", "./m1.c"], ids=["gcc", "weights", "clang"])
def test_a_refused_model_is_found_by_its_file(place: str) -> None:
    models: list[Any] = [SimpleNamespace(manifest=SimpleNamespace(model=name)) for name in ("m0", "m1")]
    assert batch._refused(f"{place}:3:4: error: no such thing\n1 error generated.", models) == {1: "no such thing"}


def test_a_program_that_died_is_told_and_started_again(tmp_path: Path) -> None:
    program = tmp_path / "batch"
    program.write_text("#!/bin/sh\necho found it >&2\nexit 3\n")
    program.chmod(0o755)
    no_inputs = SimpleNamespace(fed=(), manifest=SimpleNamespace(inputs=(), outputs=[SimpleNamespace(bytes=4)]))
    models: list[Any] = [no_inputs]
    with batch.Batch(program, models) as made:
        for _ in range(2):
            with pytest.raises(DeviceError, match="the program died with 3") as caught:
                made.run(0, [])
            assert caught.value.details == ("found it",)


def test_it_does_not_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "batch"
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nprintf done\nexec sleep 60\n")
    program.chmod(0o755)
    script = f"""
from pathlib import Path
from mtool.onnx_backend import batch
running = batch._Running(Path({str(program)!r}))
print(running.ask(b"", 4), flush=True)
running.ask(b"", 4)
"""
    caller = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert caller.stdout is not None and caller.stdout.readline() == b"b'done'\n"
    caller.kill()
    caller.communicate()
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.01)
