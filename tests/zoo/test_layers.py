"""The layers of public networks compile for every core, at every optimization level."""

import random
import subprocess
from pathlib import Path

import amount
import onnx
import pytest

from mtool import commands
from tests.zoo import layers

ASSEMBLY = ("mps2_an386", "mps2_an500", "mps3_an547")
BOARDS = (*ASSEMBLY, "mps2_an383", "mps2_an385", "mps2_an505", "qemu_riscv32", "qemu_riscv32_v", "host")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
EACH = 16  # layers in a model


def groups() -> list[list[layers.Layer]]:
    """Return the layers by models, in an order in which a part has all kinds."""
    rows = layers.layers()
    random.Random(0).shuffle(rows)
    return [rows[at : at + EACH] for at in range(0, len(rows), EACH)]


GROUPS = groups()


def test_the_table_has_what_networks_are_made_of() -> None:
    rows = layers.layers()
    assert {row.op for row in rows} >= {"Conv", "MaxPool", "AveragePool", "MatMul", "Add", "Softmax"}
    assert {row.type for row in rows} == {"int8", "float32"}
    assert any(row.residual for row in rows) and any(len({*row.window.get("pads", [0])}) > 1 for row in rows)


@pytest.mark.product(3)
@pytest.mark.parametrize("board", BOARDS if amount.IS_ALL else ("mps2_an386", "mps3_an547", "mps2_an383"))
@pytest.mark.parametrize("number", range(len(GROUPS) if amount.IS_ALL else 1))
def test_they_compile(number: int, board: str, tmp_path: Path) -> None:
    onnx.save(layers.model(GROUPS[number], number), tmp_path / "m.onnx")
    model = commands.compile(tmp_path / "m.onnx", board=board)
    sources = model.sources()
    for name in sources:
        (tmp_path / name).write_bytes(sources[name])
    argv = [model.board.toolchain, *model.board.cflags, "-std=c99", *WARNINGS, "-I.", "-c"]
    levels = ("-O0", "-Og", "-Os", "-O2", "-O3") if amount.IS_ALL and board in ASSEMBLY else ("-O2",)
    for level in levels:
        subprocess.run([*argv, level, *(name for name in sources if name.endswith(".c"))], cwd=tmp_path, check=True)
