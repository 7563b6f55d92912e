"""Popular public models build for every core and compute LiteRT's results."""

import subprocess
from pathlib import Path

import amount
import models
import pytest

from mtool import commands

pytestmark = [pytest.mark.long, models.needed]

NAMES = (
    "hello_world_int8",
    "micro_speech_quantized",
    "okay_nabu",
    "person_detect",
    "mobilenet_v1_0.25_128_quant",
    "mcunet_vww",
)
BOARDS = ("mps2_an386", "mps2_an500", "mps3_an547", "mps2_an385", "mps2_an383", "qemu_riscv32")
LEVELS = ("-O0", "-Og", "-Os", "-O2", "-O3") if amount.IS_ALL else ("-O2",)
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def public(name: str) -> Path:
    return models.FOLDER / "public" / f"{name}.tflite"


@pytest.mark.product
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", NAMES)
def test_it_builds(name: str, board: str, tmp_path: Path) -> None:
    model = commands.compile(public(name), board=board)
    sources = model.sources()
    for file in sources:
        (tmp_path / file).write_bytes(sources[file])
    argv = [model.board.toolchain, *model.board.cflags, "-std=c99", *WARNINGS, "-I.", "-c"]
    for level in LEVELS:
        subprocess.run([*argv, level, *(file for file in sources if file.endswith(".c"))], cwd=tmp_path, check=True)


@pytest.mark.product
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_right(name: str, board: str, tmp_path: Path) -> None:
    deployment = commands.Deployment(tmp_path / "project")
    commands.verify(public(name), board=board, samples=2, deployment=deployment).check()
