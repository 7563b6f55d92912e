"""The table of instructions by input: what it calls fixed takes the same number for other inputs too."""

import re
import shutil
from types import ModuleType

import amount
import pytest
from script import load

from mtool import boards


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("timing_table")


def cells_of(script: ModuleType) -> dict[str, list[str]]:
    rows = re.findall(r"^\| (\S+) \| (.+) \|$", script.PAGE.read_text(), re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows if name != "operator"}


def test_the_page_has_every_operator_on_every_board(script: ModuleType) -> None:
    cells = cells_of(script)
    assert {*cells} <= {case.strip(".") for case in (f"{op.domain}.{op.name}" for op in script.DRAWN.values())}
    assert len(cells) > 200 and {len(row) for row in cells.values()} == {len(script.BOARDS)}
    first = [*script.BOARDS].index("mps2_an386")
    for name in ("QLinearConv", "QLinearMatMul", "com.microsoft.QLinearAdd", "MaxPool", "Transpose", "Conv"):
        assert cells[name][first] == script.FIXED, name
    assert cells["NonMaxSuppression"][first] != script.FIXED and cells["Exp"][first] != script.FIXED


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2_an386", "qemu_riscv32"])
def test_fixed_is_fixed(board: str, script: ModuleType) -> None:
    described = boards.get(board)
    assert described.emulator is not None
    for program in (described.toolchain, described.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    found = script.measure(board, amount.of(1000, 20), seed=1)
    column = [*script.BOARDS].index(board)
    fixed = {name for name, row in cells_of(script).items() if row[column] == script.FIXED}
    assert not {name: found[name] for name in fixed if found[name][0] != found[name][1]}
