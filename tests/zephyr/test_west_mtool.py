"""`west mtool` in a workspace that has mtool as a project; Zephyr is not needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = """manifest:
  projects:
    - name: mtool
      path: mtool
      revision: x
      url: file:///nowhere/mtool
      west-commands: crt/zephyr/west-commands.yml
  self:
    path: manifest
"""

pytest.importorskip("west", reason="west is not installed")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "west.yml").write_text(MANIFEST)
    (tmp_path / "mtool").symlink_to(ROOT)
    west(tmp_path, "init", "-l", "manifest")
    return tmp_path


def west(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "west", *words]
    own = {name: value for name, value in os.environ.items() if name != "ZEPHYR_BASE"}  # the workspace's tree
    return subprocess.run(argv, cwd=folder, env=own, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_west_runs_mtools_commands_with_the_workspaces_board(workspace: Path) -> None:
    shown = west(workspace, "mtool", "boards", "mps2_an386")
    assert shown.returncode == 0 and "cortex-m4" in shown.stdout
    nameless = west(workspace, "mtool", "run", "model.onnx")
    assert nameless.returncode == 1 and "west config build.board NAME" in nameless.stderr
    west(workspace, "config", "build.board", "nucleo_f746zg")
    tree = workspace / "zephyr"
    tree.mkdir()
    (tree / "VERSION").write_text("VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\n")
    asked = west(workspace, "mtool", "run", "model.onnx")
    assert asked.returncode == 6 and "Zephyr 4.1.0 has no board nucleo_f746zg" in asked.stderr
    named = west(workspace, "mtool", "run", "--board=host", "-t", "host", "model.onnx")
    assert named.returncode == 2 and "there is no file model.onnx" in named.stderr
