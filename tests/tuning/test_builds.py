"""Other builds in a search: each task's fastest candidates are tried in them, and the gain is recorded."""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mtool import boards
from mtool.compiler.compilation import plan_model, target_of
from mtool.compiler.plan.function_knobs import Built
from mtool.compiler.plan.step import choose_schedule
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import Log, Target, Unit
from mtool.compiler.tuned.tasks import parse, tasks_of
from mtool.tuning.candidates import Space, space_of
from mtool.tuning.firmware import TrialLimits
from mtool.tuning.search import Goal, Progress, Search, other_builds, other_levels
from tests.compiler.tuned.pointwise import network
from tests.compiler.tuned.records import SETUP, TARGET
from tests.tuning.simulated import BOARD, SimulatedBench, World

MOST = 60


class Truth(Mapping[str, float]):
    """Times by a hash; at -O3 all is a tenth faster, at -Os slower."""

    def __getitem__(self, text: str) -> float:
        schedule, _, _ = (
            text.removesuffix("opt=O3").removesuffix("opt=Os").removesuffix("weights=ram").rstrip(",:").partition("@")
        )
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
    room = TrialLimits(1 << 22, None, 1 << 22, MOST)
    Search(progress, SimulatedBench(world, "instructions"), room, TARGET, setup, path, known, goal, world.clock).run()
    return progress, world


@pytest.mark.slow
def test_the_fastest_are_tried_at_other_levels_and_known_afterwards(spaces: list[Space], tmp_path: Path) -> None:
    goal = Goal(builds=({"opt": "O3"}, {"opt": "Os"}))
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
        assert isinstance(step.schedule, Built)
        assert step.schedule.emit(node, graph, target_of(BOARD)).level == "O3"
    again, world = search(spaces, tmp_path / "t.jsonl", goal)
    assert (again.measured, again.reused, world.flashes) == (0, progress.measured, 0)
    assert [row.best for row in again.rows.values()] == [row.best for row in progress.rows.values()]


@pytest.mark.slow
def test_builds_have_their_part_of_the_trials(spaces: list[Space], tmp_path: Path) -> None:
    progress, _ = search(spaces, tmp_path / "t.jsonl", Goal(trials=20, builds=({"opt": "O3"},)))
    assert progress.measured == 20
    assert sum(":opt=O3" in text or ",opt=O3" in text for row in progress.rows.values() for text in row.measured) >= 2


def test_the_level_of_the_firmware_is_none_of_the_others() -> None:
    flags = Target(cpu="c", features=(), compiler="c", flags=("-mthumb", "opt=-O2"))
    assert other_levels(flags) == ("O3", "Os")
    assert other_levels(TARGET) == ("O2", "O3", "Os")


@pytest.mark.parametrize(
    ("board", "unit", "are_offered"),
    [
        ("nucleo_l4r5zi", "ns", True),
        ("nucleo_l4r5zi", "cycles", False),  # estimated ones know no wait states
        ("mps2_an386", "instructions", False),
        ("arduino_mega2560", "ns", False),  # its constants are read by other instructions
        ("host", "ns", False),
    ],
)
def test_weights_in_ram_are_tried_where_they_can_matter(board: str, unit: Unit, are_offered: bool) -> None:
    found = other_builds(boards.get(board), TARGET, unit)
    assert any("weights" in build for build in found) == are_offered
    assert [build for build in found if "weights" not in build] == [{"opt": level} for level in ("O2", "O3", "Os")]


@pytest.mark.slow
def test_what_the_memory_for_data_can_not_hold_is_not_tried(spaces: list[Space], tmp_path: Path) -> None:
    with_constants = [space for space in spaces if space.default.constants]
    size = max(sum(one.constants.values()) for space in with_constants for one in space.candidates)
    for ram, count in ((4 * size, 1), (1, 0)):
        goal = Goal(builds=({"weights": "ram"},), ram_bytes=ram)
        progress, _ = search(with_constants, tmp_path / f"{ram}.jsonl", goal)
        tried = [text for row in progress.rows.values() for text in row.measured if text.endswith("weights=ram")]
        assert len(tried) >= count and (tried == []) == (count == 0)
