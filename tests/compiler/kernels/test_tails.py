"""Schedules with SIMD equal portable C at every size up to two tiles, with extreme operands, in the emulator."""

from pathlib import Path

import pytest
import tails

from mtool.compiler.kernels.target import Target


@pytest.mark.slow
@pytest.mark.parametrize("target, prefix, board", tails.FAMILIES, ids=[family[1] for family in tails.FAMILIES])
def test_every_tail(target: Target, prefix: str, board: str, tmp_path: Path) -> None:
    covered, wrong = tails.compared(target, prefix, board, tmp_path)
    assert covered and wrong == []
