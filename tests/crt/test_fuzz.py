"""The runtime under libFuzzer with the address and undefined-behaviour sanitizers; scripts/fuzz.py runs longer."""

import shutil
import subprocess
from pathlib import Path

import amount
import pytest

from tests.crt import fuzzing

SECONDS = amount.of(30, 1)


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [pytest.param(name, marks=[] if name in ("server", "loader") else pytest.mark.slow) for name in fuzzing.TARGETS],
)
def test_no_input_harms(target: str, tmp_path: Path) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    asked = fuzzing.command(target, tmp_path, seconds=SECONDS)
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stderr.rpartition("stat::number_of_executed_units:")[2].split()[0]) > 1000
