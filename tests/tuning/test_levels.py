"""Optimisation levels in a search: the fastest of each task are tried at others, and what that gives is found again."""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mtool.compiler import plan_model, target_of
from mtool.plan.level import AtLevel
from mtool.plan.step import choose_schedule
from mtool.tuned import log as tuning_log
from mtool.tuned.choosing import parse
from mtool.tuned.log import Log
from mtool.tuned.record import Target
from mtool.tuned.tasks import tasks_of
from mtool.tuning.candidates import Space, space_of
from mtool.tuning.firmware import Room
from mtool.tuning.levels import other_levels
from mtool.tuning.progress import Progress
from mtool.tuning.search import Goal, Search
from tests.tuned.pointwise import network
from tests.tuned.records import SETUP, TARGET
from tests.tuning.simulated import BOARD, SimulatedBench, World

MOST = 60


class Truth(Mapping[str, float]):
    """Times by a hash; at -O3 all is a tenth faster, at -Os slower."""

    def __getitem__(self, text: str) -> float:
        schedule, _, _ = text.removesuffix("opt=O3").removesuffix("opt=Os").rstrip(",:").partition("@")
        level = 0.9 if text.endswith("opt=O3") else 1.2 if text.endswith("opt=Os") else 1.0
        return level * 10_000 * (1 + zlib.crc32(schedule.encode()) % 100 / 100)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.fixture
def spaces(tmp_path: Path) -> list[Space]:
    plan, names = plan_model(network(tmp_path / "m.onnx"), BOARD)
    return [space_of(task, target_of(BOARD)) for task in tasks_of(plan, names)][:2]


def search(spaces: list[Space], path: Path, goal: Goal) -> tuple[Progress, World]:
    world = World(Truth())
    progress = Progress.of(spaces, "instructions")
    known = tuning_log.read([path]) if path.exists() else Log()
    setup = SETUP.model_copy(update={"unit": "instructions"})
    room = Room(1 << 22, None, 1 << 22, MOST)
    Search(progress, SimulatedBench(world, "instructions"), room, TARGET, setup, path, known, goal, world.clock).run()
    return progress, world


def test_the_fastest_are_tried_at_other_levels_and_known_afterwards(spaces: list[Space], tmp_path: Path) -> None:
    goal = Goal(levels=("O3", "Os"))
    progress, _ = search(spaces, tmp_path / "t.jsonl", goal)
    plain = {space.task.record.key: space for space in spaces}
    for key, row in progress.rows.items():
        fastest = min(Truth()[one.text] for one in plain[key].candidates)
        assert row.best is not None and row.best.candidate.endswith("opt=O3")
        assert row.best.median == pytest.approx(0.9 * fastest)
        own = len(plain[key].candidates)
        assert len(row.measured) == len(row.space.candidates) == own + 2 * min(own, 2)
        node, graph = row.space.task.step.node, row.space.task.graph
        step = choose_schedule(node, graph, target_of(BOARD), parse(row.best.candidate))
        assert isinstance(step.schedule, AtLevel)
        assert step.schedule.emit(node, graph, target_of(BOARD)).level == "O3"
    again, world = search(spaces, tmp_path / "t.jsonl", goal)
    assert (again.measured, again.known, world.flashes) == (0, progress.measured, 0)
    assert [row.best for row in again.rows.values()] == [row.best for row in progress.rows.values()]


def test_levels_have_their_part_of_the_trials(spaces: list[Space], tmp_path: Path) -> None:
    progress, _ = search(spaces, tmp_path / "t.jsonl", Goal(trials=20, levels=("O3",)))
    assert progress.measured == 20
    assert sum(":opt=O3" in text or ",opt=O3" in text for row in progress.rows.values() for text in row.measured) >= 2


def test_the_level_of_the_firmware_is_none_of_the_others() -> None:
    flags = Target(cpu="c", features=(), compiler="c", flags=("-mthumb", "opt=-O2"))
    assert other_levels(flags) == ("O3", "Os")
    assert other_levels(TARGET) == ("O2", "O3", "Os")
