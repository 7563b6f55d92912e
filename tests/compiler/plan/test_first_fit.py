"""The search for offsets only places again what a move may affect, with the same result as placing everything."""

import random

import pytest

from mtool.compiler.plan import first_fit
from mtool.compiler.plan.memory import Part, Storage


def storages(seed: int, count: int, reach: int) -> list[Storage]:
    """Return storages of random sizes, some in parts, that live for up to `reach` of `count` steps."""
    chance = random.Random(seed)
    pieces = []
    for number in range(count):
        size, last = 4 * chance.randint(1, 60), number + chance.randint(0, reach)
        if chance.random() < 0.3:
            half, middle = size // 8 * 4, (number + last) // 2
            lives = [(1 << (end + 2)) - (1 << (number + 1)) for end in (middle, last)]
            parts = [Part(0, half, lives[0]), Part(half, size - half, lives[1])]
            pieces.append(Storage(size, tuple(part for part in parts if part.bytes)))
        else:
            pieces.append(Storage.whole(size, number, last))
    return pieces


@pytest.mark.parametrize("seed", range(12))
def test_a_move_gives_what_placing_all_again_gives(seed: int) -> None:
    pieces = storages(seed, 30, 8)
    firsts, lasts = [piece.first for piece in pieces], [piece.last for piece in pieces]
    pairs = first_fit.pairs_of(firsts, lasts)
    assert pairs is not None
    apart = first_fit.apart_of(pieces, pairs)
    near = first_fit.near_of(apart)
    chance = random.Random(seed)
    best = first_fit.place_in_order(pieces, [*range(len(pieces))], apart)
    for _ in range(60):
        source, to = chance.randrange(len(pieces)), chance.randrange(len(pieces))
        order = [*best.order]
        order.insert(to, order.pop(source))
        whole = first_fit.place_in_order(pieces, order, apart)
        moved = first_fit.moved(pieces, apart, near, best, source, to)
        assert moved == (whole if whole.bytes <= best.bytes else best)
        best = moved


def test_a_round_of_the_search_places_few_storages(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = storages(1, 400, 6)
    placed = []
    lowest = first_fit.lowest
    monkeypatch.setattr(first_fit, "lowest", lambda *arguments: placed.append(1) or lowest(*arguments))
    monkeypatch.setattr(first_fit, "live_bound", lambda pieces: 0)  # so that all rounds are made
    first_fit.lay_out(pieces)
    assert len(placed) - 4 * len(pieces) <= first_fit.SEARCH_TRIES * len(pieces) / 8
