"""Schedules equal portable C at every size up to two tiles, with extreme operands, in the emulator."""

from pathlib import Path

import pytest
import tails


@pytest.mark.slow
@pytest.mark.parametrize("core", range(len(tails.CORES)), ids=[one[0][0] for one in tails.CORES])
def test_every_tail(core: int, tmp_path: Path) -> None:
    """A part of the layers; scripts/schedule_table.py has all."""
    for row, wrong in tails.compared(core, tmp_path, range(0, tails.LAYERS, 16)):
        assert int(row[3]) > 0 and wrong == [], row


def test_the_table_has_every_schedule() -> None:
    rows = tails.table()
    assert [(kernel, name.strip("`")) for kernel, name, *_ in rows] == sorted(tails.registered())
    assert all(int(layers) > 0 and different == "0" for *_, layers, _, _, _, different in rows)
