"""A model under memory protection (--protect): a forbidden access ends only the model, and the session continues."""

from pathlib import Path

import pytest
from amount import IS_ALL

from tests.device.session import protected

pytestmark = pytest.mark.long
BOARDS = ["mps2_an386", *(["qemu_riscv32", "mps2_an385", "mps3_an547", "mps2_an505", "mps2_an500"] if IS_ALL else [])]


@pytest.mark.parametrize("board", BOARDS)
def test_what_a_model_may_not_do_ends_it_alone(board: str, tmp_path: Path) -> None:
    protected.check(protected.make(board, tmp_path))
