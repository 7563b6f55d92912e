"""Models that share an arena and run one after another compute their own results; its size is the largest one's."""

import random

import amount
import interpreter
import networks
import numpy as np
import pytest
import stateful
from graphs import HOST, lowered
from interpreter import Arena

from mtool.base.option_values import Io
from mtool.compiler.ir import Graph
from mtool.compiler.plan import make_plan
from mtool.compiler.plan.memory import aligned
from mtool.compiler.plan.shared_arena import kept_bytes, share_arena


def test_without_states_the_arena_is_the_largest() -> None:
    graphs = [lowered(networks.floats(seed, 12), HOST) for seed in range(3)]
    plans = [make_plan(graph, HOST) for graph in graphs]
    assert [plan.offsets for plan in share_arena(plans)] == [plan.offsets for plan in plans]


@pytest.mark.slow
def test_models_run_in_turn_in_one_arena_and_keep_their_states() -> None:
    for seed in range(amount.of(60, 10)):
        io: Io = "external" if seed % 3 == 0 else "arena"
        chance = random.Random(seed)
        graphs: list[Graph] = [
            stateful.vectors(3 * seed),
            stateful.vectors(3 * seed + 1),
            lowered(networks.floats(seed, 8), HOST),
        ]
        chance.shuffle(graphs)
        alone = [make_plan(graph, HOST, io) for graph in graphs]
        plans = share_arena(alone)
        kept = sum(aligned(kept_bytes(plan), 16) for plan in alone)
        most = max(plan.arena_bytes for plan in plans)
        assert most <= aligned(kept, 16) + max(plan.arena_bytes - kept_bytes(plan) for plan in alone) + 64
        shared = np.full(most, 0xA5, np.uint8)
        arenas = [Arena(plan, shared) for plan in plans]
        feeds = [networks.feeds_of(graph, seed, 4) for graph in graphs]
        wanted = [interpreter.run(graph, fed) for graph, fed in zip(graphs, feeds, strict=True)]
        turns = [number for number in range(len(graphs)) for _ in range(4)]
        chance.shuffle(turns)
        for place, number in enumerate(turns):
            call = turns[:place].count(number)
            for mine, theirs in zip(arenas[number].run(feeds[number][call]), wanted[number][call], strict=True):
                np.testing.assert_array_equal(mine, theirs)
