"""An arena in several memories: nothing overlaps or exceeds a pool, and fast pools hold what is read most."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import amount
import interpreter
import networks
import numpy as np
import pytest
import stateful
from graphs import HOST, compiled, lowered, model
from onnx import helper

import mtool
from mtool import boards
from mtool.base.errors import FitError, UsageError
from mtool.boards import PoolSettings
from mtool.compiler.codegen import conventions
from mtool.compiler.plan import Plan, make_plan
from mtool.compiler.plan.pool import Pool
from mtool.compiler.plan.pools import board_pools, in_pools, requested_pools
from mtool.stages.options import READERS

pools = READERS["pools"]
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
M7 = boards.get("nucleo_h743zi")


def bytes_are_one_tensors(plan: Plan) -> None:
    """Walk through the steps: a byte that lives belongs to one storage, and lies inside of its pool."""
    for _, offset in plan.storages:
        number, _ = plan.place(offset)
        assert plan.pools[number].pool.use != "weights"
    for bit in range(len(plan.steps) + 2):
        owner = {}
        for storage, offset in plan.storages:
            number, inside = plan.place(offset)
            assert inside % storage.alignment == 0 and inside + storage.bytes <= plan.pools[number].bytes
            for part in storage.parts:
                if part.live >> bit & 1:
                    for byte in range(inside + part.offset, inside + part.offset + part.bytes):
                        assert owner.setdefault((number, byte), id(storage)) == id(storage)
    for placed in plan.pools:
        assert placed.bytes <= placed.pool.bytes
    assert plan.arena_bytes == sum(placed.bytes for placed in plan.pools)


@pytest.mark.slow
def test_random_networks_compute_the_same_in_pools() -> None:
    done, refused = 0, 0
    for seed in range(amount.of(60, 8)):
        chance = random.Random(seed)
        graph = (stateful.vectors(seed), lowered(networks.floats(seed, 10)), lowered(networks.integers(seed)))[seed % 3]
        plan = make_plan(graph, HOST, "arena", "never")
        largest = max(storage.bytes for storage, _ in plan.storages)
        feeds = networks.feeds_of(graph, seed, 2)
        wanted = interpreter.run(graph, feeds)
        for part in (0.2, 0.5, 0.9):
            sizes = [largest + 64, int(part * plan.arena_bytes) // 4 * 4 + 16, chance.randrange(16, 4096, 4)]
            asked = [Pool(name, size, waits=chance.randrange(4)) for name, size in zip("abc", sizes, strict=True)]
            found = in_pools(plan, asked)
            if not isinstance(found, Plan):
                assert found and all(storage.bytes <= largest for storage in found)
                refused += 1
                continue
            done += 1
            bytes_are_one_tensors(found)
            end = max(placed.begin + placed.bytes for placed in found.pools)
            arena = interpreter.Arena(replace(found, arena_bytes=end))
            for fed, outputs in zip(feeds, wanted, strict=True):
                for mine, theirs in zip(arena.run(fed), outputs, strict=True):
                    np.testing.assert_array_equal(mine, theirs)
    assert done > 2 * refused


def branches() -> Plan:
    """Return the plan of two vectors that live together: one is read again and again, the other at the end."""
    nodes = [helper.make_node("Transpose", ["x"], ["hot"], perm=[1, 0]), helper.make_node("Exp", ["x"], ["cold"])]
    nodes += [helper.make_node("MatMul", ["hot", f"w{n}"], [f"p{n}"]) for n in range(3)]
    nodes += [helper.make_node("Sum", ["p0", "p1", "p2", "cold"], ["y"])]
    weights = {f"w{n}": np.ones((32, 32), np.float32) for n in range(3)}
    return compiled(model(nodes, {"x": (np.float32, (32, 32))}, ["y"], weights), HOST)


def test_what_is_read_most_lies_in_the_fast_pool() -> None:
    plan = branches()
    room = [Pool("slow", 1 << 16, waits=5), Pool("fast", 4096, waits=0)]
    found = in_pools(plan, room)
    assert isinstance(found, Plan)
    bytes_are_one_tensors(found)
    hot = next(step for step in found.steps if step.node.op in ("matmul", "dense")).node.inputs[0]
    assert [placed.pool.name for placed in found.pools] == ["slow", "fast"]
    assert found.place(found.offsets[hot])[0] == 1
    assert isinstance(in_pools(plan, room[:1]), Plan)
    alone = in_pools(plan, [Pool("one", plan.arena_bytes)])
    assert isinstance(alone, Plan) and alone.offsets == plan.offsets


def test_tensors_that_do_not_fit_are_reported() -> None:
    options = mtool.Options(pools=(Pool("ssram23", 1000), Pool("psram", 900)))
    with pytest.raises(FitError) as failed:
        mtool.compile(DIGITS, board="mps2_an386", options=options)
    reported = "\n".join([failed.value.what, *failed.value.details, failed.value.hint])
    assert "do not fit in its pools" in reported and "ssram23 has 1,000 B" in reported and "no room for" in reported
    assert "the result of conv_0: 1,024 B" in reported or "scratch of" in reported
    assert "in one piece the arena is" in reported


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("dtcm=", "expected a size"),
        ("dtcm=0", "expected a size"),
        ("=4K", "the name is missing"),
        ("dtcm=64KiB,for=code", "expected one of all, tensors, weights"),
        ("dtcm,align=24", "power of two"),
        ("dtcm,waits=-1", "number of cycles"),
        ('dtcm,section=a"b', "not a valid section name"),
        ("dtcm,section=.text", "which lie in flash"),
        ("dtcm,section=.rodata.x", "which lie in flash"),
        ("uint8_t=1K,section=.bss.x", "can't be used in C"),
        ("dtcm,color=red", "expected for="),
        ("dtcm,waits=1,waits=2", "twice"),
        ("dtcm=200KiB", "131,072 B"),
        ("flash=1K", "is not writable"),
        ("dctm=1K", "did you mean dtcm?"),
        ("ram=1K", "has no memory ram"),
        ("int=1K,section=.bss.int", "can't be used in C"),
        ("own,section=.bss.own", "has no size"),
    ],
)
def test_bad_pools_are_refused(text: str, reported: str) -> None:
    with pytest.raises(UsageError) as failed:
        requested_pools(M7, pools([text]))
    assert reported in "\n".join([failed.value.what, *failed.value.details, failed.value.hint])


@pytest.mark.parametrize(
    "given",
    [{"bytes": -1}, {"alignment": 24}, {"waits": -1}, {"section": 'a") int x; //'}],
    ids=lambda given: next(iter(given)),
)
def test_bad_values_of_the_python_api_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="pool dtcm: "):
        Pool("dtcm", **given)


def test_pools_of_a_boards_entry() -> None:
    (dtcm, own) = requested_pools(M7, pools(["dtcm", "fast=3K,waits=1.5,align=64,section=.bss.fast"]))
    assert (dtcm.bytes, dtcm.waits, dtcm.is_arena) == (128 << 10, 0, False)
    assert (own.bytes, own.waits, own.alignment, own.section) == (3072, 1.5, 64, ".bss.fast")
    by_name = {pool.name: pool for pool in board_pools(M7)}
    assert {*by_name} == {"dtcm", "axi_sram"} and by_name["axi_sram"].is_arena
    assert by_name["axi_sram"].bytes == (512 << 10) - (48 << 10)  # without the reserve for data and the stack
    assert not board_pools(boards.get("disco_l475_iot1")) and not board_pools(boards.get("host"))
    with pytest.raises(UsageError, match="twice"):
        requested_pools(M7, pools(["dtcm=1K", "dtcm=2K"]))
    with pytest.raises(UsageError, match="only in case"):
        requested_pools(boards.get("host"), pools(["dtcm=1K", "Dtcm=2K"]))


def small_board(first: int, second: int) -> boards.Board:
    """Return a board with two memories of these sizes, the first for the arena."""
    board = boards.get("mps2_an386")
    memories = dict(board.memories)
    for name, size in (("ssram23", first), ("psram", second)):
        memories[name] = memories[name].model_copy(
            update={"size": size, "pool": PoolSettings(source="a test", waits=1)}
        )
    return board.model_copy(update={"memories": memories})


@pytest.mark.slow
def test_an_arena_that_is_too_large_for_one_memory_lies_in_two() -> None:
    never = mtool.Options(partial="never", optimize="size")
    size = mtool.compile(DIGITS, board="mps2_an386", options=never).manifest.arena_bytes
    board = small_board(size - 4, 8192)
    split = mtool.compile(DIGITS, board=board, options=never).manifest
    assert [pool.name for pool in split.pools if pool.bytes] == ["ssram23", "psram"]
    (fit,) = mtool.check(DIGITS, [board], never).fits
    (psram,) = [need for need in fit.needs if need.memory == "psram"]
    assert [(part.what, part.bytes) for part in psram.parts] == [("pools", split.pools[1].bytes)]
    assert not mtool.compile(DIGITS, board=small_board(size, 8192), options=never).manifest.pools
    assert not mtool.compile(DIGITS, board=small_board(400, 400), options=never).manifest.pools  # a build says so
    for other in (replace(never, arena_section=".bss.mine"), replace(never, conventions=conventions(context=True))):
        assert not mtool.compile(DIGITS, board=board, options=other).manifest.pools
