"""scripts/setup: what it prints when everything is there."""

import os
import shutil
import subprocess
from pathlib import Path

SETUP = Path(__file__).parents[2] / "scripts" / "setup"


def test_setup_ends_with_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SETUP, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (0, 0))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed-verify").touch()
    (tmp_path / "bin").mkdir()
    for name in ("python3", "gcc", "cmake", "ninja", "arm-none-eabi-gcc", "qemu-system-arm", "dpkg-query"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\nprintf installed\n")
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [tmp_path / "scripts" / "setup"], env={**os.environ, "PATH": path, "PYTHON": "python3"}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert ran.stderr == "setup: ready: . .venv/bin/activate\n"
