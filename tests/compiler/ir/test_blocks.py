"""Large arrays, processed some rows at a time."""

import numpy as np
import pytest

from mtool.compiler.ir import types as blocks
from mtool.compiler.ir.types import row_blocks, row_sums


def test_blocks_are_all_rows_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 40)
    data = np.arange(23 * 6).reshape(23, 2, 3)
    found = [data[rows] for rows in row_blocks(data, multiple=2)]
    assert [len(part) for part in found] == [6, 6, 6, 5]
    np.testing.assert_array_equal(np.concatenate(found), data)
    assert [len(data[rows]) for rows in row_blocks(np.zeros((3, 100)), multiple=2)] == [2, 2]
    assert len(list(row_blocks(np.zeros((0, 4))))) == 1


@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_sums_are_exact(kind: type[np.signedinteger], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 64)
    ends = np.iinfo(kind)
    data = np.random.default_rng(3).integers(ends.min, ends.max + 1, (19, 3, 7), kind)
    data[0], data[1], data[2] = ends.min, ends.max, 0
    sums, wide = row_sums(data.transpose(0, 2, 1)), data.astype(np.int64).reshape(19, -1)
    np.testing.assert_array_equal(sums.total, wide.sum(axis=1))
    np.testing.assert_array_equal(sums.magnitude, np.abs(wide).sum(axis=1))
    np.testing.assert_array_equal(sums.positive, np.maximum(wide, 0).sum(axis=1))
