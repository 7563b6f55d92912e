import random
from unittest import mock

import numpy as np
import pytest
from graphs import HOST, compiled, model
from onnx import helper

from mtool.compiler.plan.first_fit import lay_out
from mtool.compiler.plan.memory import Storage, live_bound


def overlaps(pieces: list[Storage], placed: dict[int, int]) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i in range(len(pieces))
        for j in range(i)
        if pieces[i].live & pieces[j].live
        and placed[i] < placed[j] + pieces[j].bytes
        and placed[j] < placed[i] + pieces[i].bytes
    ]


@pytest.mark.parametrize("seed", range(30))
def test_live_storages_never_overlap(seed: int) -> None:
    chance = random.Random(seed)
    pieces = []
    for _ in range(chance.randrange(1, 25)):
        first = chance.randrange(20)
        pieces.append(Storage.whole(chance.randrange(1, 500), first, first + chance.randrange(6)))
    placed, size = lay_out(pieces)
    assert not overlaps(pieces, placed)
    assert size >= live_bound(pieces)
    assert all(offset % 4 == 0 and offset + pieces[n].bytes <= size for n, offset in placed.items())


def test_a_chain_of_elementwise_loops_runs_in_place() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    plan = compiled(model(nodes, {"x": (np.float32, (1, 8))}, ["y"], {"w": np.ones((8, 100), np.float32)}))
    assert plan.arena_bytes == 32 + 400  # the softmax writes over its input


def test_order_keeps_the_peak_low() -> None:
    """Two wide branches, each reduced to little: computing one after the other needs one at a time."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["x", "w2"], ["b"]),
        helper.make_node("MatMul", ["a", "r"], ["c"]),
        helper.make_node("MatMul", ["b", "r"], ["d"]),
        helper.make_node("Concat", ["c", "d"], ["y"], axis=1),
    ]
    constants = {
        "w": np.full((4, 1000), 0.5, np.float32),
        "w2": np.full((4, 1000), 0.25, np.float32),
        "r": np.ones((1000, 2), np.float32),
    }
    plan = compiled(model(nodes, {"x": (np.float32, (1, 4))}, ["y"], constants), HOST)
    assert plan.arena_bytes < 4000 + 200
    assert plan.arena_bytes == plan.arena_bound_bytes


@pytest.mark.parametrize("seed", range(10))
def test_a_crowd_is_laid_out_without_a_search(seed: int) -> None:
    chance = random.Random(seed)
    pieces = []
    for _ in range(chance.randrange(1, 60)):
        first = chance.randrange(-1, 20)
        piece = Storage.whole(chance.randrange(1, 500), first, first + chance.randrange(6))
        piece.alignment = chance.choice([4, 8])
        pieces.append(piece)
    with mock.patch("mtool.compiler.plan.first_fit.SEARCHED_PAIRS", 0):
        placed, size = lay_out(pieces)
    assert not overlaps(pieces, placed)
    assert live_bound(pieces) <= size <= 3 * live_bound(pieces)
    assert all(offset % pieces[n].alignment == 0 for n, offset in placed.items())
    assert size % 4 == 0 and all(offset + pieces[n].bytes <= size for n, offset in placed.items())


def test_thousands_that_live_together_are_laid_out_in_a_moment() -> None:
    pieces = [Storage.whole(8 + 4 * (n % 3), -1, 2000) for n in range(2000)]
    placed, size = lay_out(pieces)
    assert size == sum(piece.bytes for piece in pieces) and len({*placed.values()}) == 2000


def test_the_search_for_an_order_is_bounded() -> None:
    """Many operators that may run in any order: the result is an order, and one with a small peak."""
    nodes = [helper.make_node("Tanh", ["x"], [f"t{n}"]) for n in range(60)]
    nodes += [helper.make_node("MatMul", [f"t{n}", "w"], [f"m{n}"]) for n in range(60)]
    nodes.append(helper.make_node("Concat", [f"m{n}" for n in range(60)], ["y"], axis=1))
    proto = model(nodes, {"x": (np.float32, (1, 50))}, ["y"], {"w": np.ones((50, 1), np.float32)})
    with mock.patch("mtool.compiler.plan.order.MOST", 1000):
        plan = compiled(proto, HOST)
    assert plan.arena_bytes < 200 + 12 * 200 + 4 * 60 * 4  # not 60 vectors of 50 at one time
