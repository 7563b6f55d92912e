"""Sources: moves compose, and reproduce the data."""

import numpy as np
import pytest

from mtool.compiler.ir.graph import Move, Source, moved

DATA = np.arange(2 * 3 * 4).reshape(2, 3, 4)


def test_a_transposition_and_its_inverse_cancel() -> None:
    assert Source("x").then(("transpose", (1, 2, 0))).then(("transpose", (2, 0, 1))) == Source("x")


@pytest.mark.parametrize(
    "moves",
    [
        [("transpose", (0, 2, 1)), ("transpose", (2, 1, 0))],
        [("reshape", (6, 4)), ("reshape", (24,))],
        [("take", (3, 1, 0)), ("take", (0, 2))],
        [("transpose", (2, 0, 1)), ("reshape", (8, 3)), ("take", (0, 2))],
    ],
)
def test_moves_compose(moves: list[Move]) -> None:
    source, step_by_step = Source("x"), DATA
    for move in moves:
        source = source.then(move)
        step_by_step = moved(step_by_step, (move,))
    np.testing.assert_array_equal(moved(DATA, source.moves), step_by_step)


def test_uint8_becomes_int8() -> None:
    data = np.array([0, 127, 128, 255], np.uint8)
    signed = moved(data, Source("x").then(("signed", (128,))).moves)
    assert signed.dtype == np.int8 and signed.tolist() == [-128, -1, 0, 127]
