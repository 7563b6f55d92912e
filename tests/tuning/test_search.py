"""The search on a simulated board: noise, drift, faults, interruptions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtool.compiler.compilation import plan_model, target_of
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import Log
from mtool.compiler.tuned.results import TuningResults
from mtool.compiler.tuned.tasks import tasks_of
from mtool.tuning.candidates import Space, space_of
from mtool.tuning.firmware import TrialLimits
from mtool.tuning.search import Goal, Progress, Search
from tests.compiler.tuned.pointwise import network
from tests.compiler.tuned.records import SETUP, TARGET
from tests.tuning.simulated import BOARD, SimulatedBench, World

MOST = 40


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> list[Space]:
    path = network(tmp_path_factory.mktemp("model") / "m.onnx")
    found = [space_of(task, target_of(BOARD)) for task in tasks_of(*plan_model(path, BOARD))]
    return [space for space in found if len(space.candidates) > 1][:2]


def truth_of(spaces: list[Space], seed: int) -> dict[str, float]:
    """Return times in which one candidate is 4% faster than the next, and not the one that the estimate likes."""
    random = np.random.default_rng(seed)
    texts = sorted({one.text for space in spaces for one in space.candidates})
    times = dict(zip(texts, 20_000 * 1.04 ** random.permutation(len(texts)), strict=True))
    return {text: float(time) for text, time in times.items()}


def search(spaces: list[Space], bench: SimulatedBench, path: Path, *, goal: Goal | None = None) -> Progress:
    progress = Progress.of(spaces, bench.unit)
    known = tuning_log.read([path]) if path.exists() else Log()
    room = TrialLimits(1 << 22, None, 1 << 22, MOST)
    setup = SETUP.model_copy(update={"unit": bench.unit})
    Search(progress, bench, room, TARGET, setup, path, known, goal or Goal(), bench.world.clock).run()
    return progress


def best(progress: Progress) -> list[str]:
    return [row.best.candidate if row.best else "" for row in progress.rows.values()]


def truly_best(spaces: list[Space], truth: Mapping[str, float], without: Any = ()) -> list[str]:
    return [min((c.text for c in s.candidates if c.text not in without), key=truth.__getitem__) for s in spaces]


@pytest.mark.slow
def test_every_candidate_is_measured_once_in_as_few_firmwares_as_hold_them(spaces: list[Space], tmp_path: Path) -> None:
    world = World(truth_of(spaces, 0))
    progress = search(spaces, SimulatedBench(world, "instructions"), tmp_path / "t.jsonl")
    total = sum(len(space.candidates) for space in spaces)
    assert progress.tried == progress.measured == progress.total == total
    assert world.flashes == -(-total // MOST) < total / 30
    assert best(progress) == truly_best(spaces, world.truth)
    read = tuning_log.read([tmp_path / "t.jsonl"])
    assert len(read.measurements) == total
    known = TuningResults.of(read, TARGET, SETUP.model_copy(update={"unit": "instructions"}))
    assert [ranked[0] for ranked in known.ranked.values()] == truly_best(spaces, world.truth)


def test_the_best_is_found_on_a_bad_board(spaces: list[Space], tmp_path: Path) -> None:
    found = 0
    for seed in range(10):
        world = World.bad(truth_of(spaces[:1], seed), seed)
        found += best(search(spaces[:1], SimulatedBench(world), tmp_path / f"{seed}.jsonl")) == truly_best(
            spaces[:1], world.truth
        )
    assert found >= 9


@pytest.mark.parametrize("kind", ["wrong", "fault", "timeout"])
def test_a_candidate_that_fails_costs_itself_alone(spaces: list[Space], tmp_path: Path, kind: str) -> None:
    truth = truth_of(spaces, 1)
    broken = set(truly_best(spaces, truth))
    world = World(truth, broken=dict.fromkeys(broken, kind))
    progress = search(spaces, SimulatedBench(world, "instructions"), tmp_path / "t.jsonl")
    assert progress.tried == progress.total
    assert best(progress) == truly_best(spaces, truth, without=broken)
    failed = [one for one in tuning_log.read([tmp_path / "t.jsonl"]).measurements if one.status != "ok"]
    assert {one.candidate for one in failed} == broken
    assert all(one.status == kind and one.reason and not one.times for one in failed)


def test_what_the_compiler_refuses_or_what_does_not_fit_costs_itself_alone(spaces: list[Space], tmp_path: Path) -> None:
    truth = truth_of(spaces, 2)
    default = {space.default.text for space in spaces}
    refused, large = sorted(set(truth) - default, key=truth.__getitem__)[:2]
    bench = SimulatedBench(World(truth), "instructions", frozenset({refused}), frozenset({large}))
    progress = search(spaces, bench, tmp_path / "t.jsonl")
    assert best(progress) == truly_best(spaces, truth, without={refused, large})
    found = {one.candidate: one.status for one in tuning_log.read([tmp_path / "t.jsonl"]).measurements}
    assert (found[refused], found[large]) == ("unbuildable", "too large")


def test_a_step_of_the_boards_speed_is_reported(spaces: list[Space], tmp_path: Path, caplog: Any) -> None:
    world = World(truth_of(spaces, 3), step_at=10.0)
    progress = search(spaces, SimulatedBench(world), tmp_path / "t.jsonl")
    assert progress.drift == pytest.approx(0.02, abs=0.002)
    assert "the board has become 2.0% slower" in caplog.text
    assert any(one.baseline for one in tuning_log.read([tmp_path / "t.jsonl"]).measurements)
    assert best(progress) == truly_best(spaces, world.truth)


@pytest.mark.parametrize("calls", [1, 7, 60, 133])
def test_a_search_that_is_stopped_goes_on_where_it_was(spaces: list[Space], tmp_path: Path, calls: int) -> None:
    path, truth = tmp_path / "t.jsonl", truth_of(spaces, 4)
    with pytest.raises(KeyboardInterrupt):
        search(spaces, SimulatedBench(World(truth, stop_after=calls), "instructions"), path)
    before = tuning_log.read([path]).measurements if path.exists() else ()
    progress = search(spaces, SimulatedBench(World(truth), "instructions"), path)
    assert progress.reused == len(before)
    assert progress.measured == progress.total - len(before)
    after = tuning_log.read([path]).measurements
    assert len({one.key for one in after}) == len(after) == progress.total
    assert best(progress) == truly_best(spaces, truth)


def test_the_goal_ends_the_search(spaces: list[Space], tmp_path: Path) -> None:
    truth = truth_of(spaces, 5)
    few = search(spaces, SimulatedBench(World(truth), "instructions"), tmp_path / "a.jsonl", goal=Goal(trials=5))
    assert few.measured == 5
    assert {space.default.text for space in spaces} <= {one for row in few.rows.values() for one in row.measured}
    world = World(truth)
    some = search(spaces, SimulatedBench(world, "instructions"), tmp_path / "b.jsonl", goal=Goal(seconds=6.0))
    assert 0 < some.measured < some.total
    assert world.now < 7.0


def test_another_target_is_measured_again(spaces: list[Space], tmp_path: Path) -> None:
    path, truth = tmp_path / "t.jsonl", truth_of(spaces, 6)
    search(spaces, SimulatedBench(World(truth), "instructions"), path)
    again = Progress.of(spaces, "instructions")
    other = TARGET.model_copy(update={"compiler": "clang 18"})
    setup = SETUP.model_copy(update={"unit": "instructions"})
    bench = SimulatedBench(World(truth), "instructions")
    Search(
        again, bench, TrialLimits(1 << 22, None, 1 << 22, MOST), other, setup, path, tuning_log.read([path]), Goal()
    ).run()
    assert (again.reused, again.measured) == (0, again.total)


def test_finals_that_are_over_are_not_held_again(spaces: list[Space], tmp_path: Path) -> None:
    """A run killed after them continues with the whole model; an interrupted task repeats them."""
    path, truth = tmp_path / "t.jsonl", truth_of(spaces, 3)
    first = World(truth, seed=3, noise=0.01)
    progress = search(spaces, SimulatedBench(first), path)
    assert first.flashes > -(-progress.total // MOST)
    again = World(truth, seed=4, noise=0.01)
    found = search(spaces, SimulatedBench(again), path)
    assert again.flashes == 0 and best(found) == best(progress)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    last = World(truth, seed=5, noise=0.01)
    search(spaces, SimulatedBench(last), path)
    assert last.flashes == 1 and last.calls < first.calls / 2
