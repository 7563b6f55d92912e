"""Models that interleave in one arena compute their own results, wherever a more urgent one runs."""

import random
from collections.abc import Sequence

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
from mtool.compiler.plan import Plan, make_plan
from mtool.compiler.plan.shared_arena import costs_of, every_pause, interleave, longest_stretch


def graphs_of(seed: int) -> list[Graph]:
    made = [stateful.vectors(seed), lowered(networks.floats(seed, 10), HOST)]
    made.append(lowered(networks.integers(seed, dtype=np.int8), HOST))
    random.Random(seed).shuffle(made)
    return made


class Nested:
    """Runs plans in one arena; at each pause any more urgent one may run, as often as chance has it."""

    def __init__(self, plans: Sequence[Plan], pauses: Sequence[Sequence[int]], seed: int) -> None:
        self.chance, self.pauses = random.Random(seed), pauses
        self.arenas = [Arena(plan, np.full(max(one.arena_bytes for one in plans), 0xA5, np.uint8)) for plan in plans]
        for arena in self.arenas[1:]:
            arena.bytes = self.arenas[0].bytes
        for plan, arena in zip(plans, self.arenas, strict=True):
            for state, value, _ in plan.graph.state_values:
                arena.write(value, interpreter.first_value(plan.graph, state, value))
        self.graphs = [plan.graph for plan in plans]
        self.feeds = [networks.feeds_of(graph, seed, 8) for graph in self.graphs]
        self.wanted = [interpreter.run(graph, fed) for graph, fed in zip(self.graphs, self.feeds, strict=True)]
        self.done = [0] * len(plans)

    def run(self, model: int) -> None:
        if self.done[model] == len(self.feeds[model]):
            return
        call, arena = self.done[model], self.arenas[model]
        arena.begin(self.feeds[model][call])
        for number in range(len(arena.plan.steps)):
            if number in self.pauses[model] and self.chance.random() < 0.4:
                self.run(self.chance.randrange(model))
            arena.step(number)
        for mine, theirs in zip(arena.outputs(), self.wanted[model][call], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        self.done[model] += 1


@pytest.mark.slow
def test_a_more_urgent_model_runs_between_the_operators_of_another() -> None:
    nested, whole = 0, 0
    for seed in range(amount.of(80, 12)):
        io: Io = "external" if seed % 4 == 3 else "arena"
        alone = [make_plan(graph, HOST, io, "never") for graph in graphs_of(seed)]
        plans, pauses = interleave(alone)
        assert max(plan.arena_bytes for plan in plans) <= sum(plan.arena_bytes + 64 for plan in alone)
        assert pauses[0] == ()
        for plan, own in zip(plans[1:], pauses[1:], strict=True):
            costs = costs_of(plan)
            assert longest_stretch(costs, own) <= max(costs)
            nested, whole = nested + len(own), whole + len(every_pause(plan))
        trial = Nested(plans, pauses, seed)
        for _ in range(4):
            trial.run(len(plans) - 1)
            trial.run(trial.chance.randrange(len(plans)))
        assert trial.done[-1] >= 4
    assert whole > nested > 0
