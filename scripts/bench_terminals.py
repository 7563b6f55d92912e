"""The part of bench_farm.py with simulated boards behind pseudo-terminals."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mtool import boards
from mtool.boards import Board
from mtool.commands import Deployment, Options
from mtool.compiler.compilation import plan_model, target_of
from mtool.compiler.tuned.record import Log, digest
from mtool.compiler.tuned.tasks import tasks_of
from mtool.stages.building import BuiltProject
from mtool.stages.tuned import target_and_setup
from mtool.tuning.candidates import Space, space_of
from mtool.tuning.farm.client import Farm
from mtool.tuning.farm.messages import Bundle, pack
from mtool.tuning.farm.search import FarmSearch
from mtool.tuning.firmware import TrialLimits, TrialSite, shares_of
from mtool.tuning.search import Goal, PendingCandidate, Progress
from mtool.tuning.trial import Names, Share, trial_of
from tests.tuning.dense import network
from tests.tuning.farm.cluster import Cluster, cluster, wait_for
from tests.tuning.rig import BOARD, BOARDS, rig

A_FIRMWARE, A_SLICE = 240, 48


@dataclass
class Beforehand:
    """Makes each firmware once, and keeps it: what is timed compiles nothing."""

    maker: TrialSite
    made: dict[tuple[tuple[str, ...], ...], Bundle] = field(default_factory=dict)

    def make(self, shares: Sequence[Share], *, build: bool) -> tuple[tuple[Names, ...], Bundle]:
        """Return the operators of a trial, and its firmware."""
        key = tuple((share.space.task.record.key, *(one.text for one in share.candidates)) for share in shares)
        if key not in self.made:
            names, built = self.maker.make(shares)
            assert isinstance(built, BuiltProject)
            self.made[key] = pack(built)
            return names, self.made[key]
        return trial_of(shares, target_of(self.maker.board)).tasks, self.made[key]


class SearchAlone(FarmSearch):
    """A search without finals, which are on one board for each task."""

    def _final_batches(self) -> Iterator[list[PendingCandidate]]:
        return iter(())

    def prepare(self) -> None:
        """Make all firmware."""
        left = self._left
        while left:
            _, count = shares_of(left, self.room)
            shares, _ = shares_of(left[:count], self.room)
            self.bench.make(self._with_baseline(shares), build=True)
            left = left[count:]


def cpu_s(number: int) -> float:
    """Return the CPU seconds of a process and of those that it has waited for."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def copies(space: Space, total: int) -> list[Space]:
    """Return different tasks with the candidates of one, and a total number of candidates."""
    found = []
    for number in range(-(-total // len(space.candidates))):
        key = digest([space.task.record.key, number])
        task = replace(space.task, record=space.task.record.model_copy(update={"key": key}))
        found.append(replace(space, task=task))
    return found


def bench(folder: Path, workers: int, each: int, factor: float) -> None:
    """Measure on one board, then on all, and print how much more that is."""
    (folder / "mtool.toml").write_text(f"boards = {json.dumps(str(BOARDS))}\n")
    os.chdir(folder)
    board = boards.get(BOARD)
    model = network(folder / "m.onnx")
    plan, names = plan_model(model, board)
    spaces_of_it = (space_of(task, target_of(board)) for task in tasks_of(plan, names))
    space = max(spaces_of_it, key=lambda one: len(one.candidates))
    maker = Beforehand(TrialSite(board, Options(edits="force"), folder / "trials", Deployment()))
    count = workers * each
    rates = {}
    for number, processes in ((1, 1), (count, workers)):
        spaces = copies(space, A_SLICE * number)
        with (
            rig(folder / f"rig{number}", "--faults", "0", "--quiet", count=number, factor=factor) as desk,
            cluster(folder) as made,
        ):
            mine = [range(first, first + number // processes) for first in range(0, number, number // processes)]
            started = []
            for ports in mine:
                held = [word for port in ports for word in ("--board", BOARD, "--port", desk.port(port))]
                started.append(desk.start([sys.executable, "-m", "mtool", "-q", "worker", made.address, *held]))
            try:
                rates[number] = _run(made, number, spaces, maker, folder, board, [one.pid for one in started])
            finally:
                for process in started:
                    process.kill()
                    process.communicate()
    print(f"{count} boards measure {rates[count] / rates[1]:.1f} times as much as one", flush=True)


def _run(
    made: Cluster,
    number: int,
    spaces: Sequence[Space],
    maker: Beforehand,
    folder: Path,
    board: Board,
    workers: Sequence[int],
) -> float:
    """Search on the boards that are there, and return the candidates a second."""
    assert made.scheduler is not None
    sides = {"workers": workers, "scheduler": [made.scheduler.pid], "client": [os.getpid()]}
    farm = Farm(made.address, BOARD)
    wait_for(lambda: farm.wait(0.2) == [] and farm.boards == number, 300)
    target, setup = target_and_setup(board, "host", {})
    room = TrialLimits(1 << 26, None, 1 << 26, A_FIRMWARE)
    progress = Progress.of(spaces, "ns")
    path = folder / f"{number}.jsonl"
    with farm:
        search = SearchAlone(farm, progress, maker, room, target, setup, path, Log(), Goal())
        search.prepare()
        before = {side: sum(map(cpu_s, processes)) for side, processes in sides.items()}
        start = time.monotonic()
        search.run()
        took = time.monotonic() - start
        spent = {side: sum(map(cpu_s, processes)) - before[side] for side, processes in sides.items()}
    count = progress.measured
    assert count == progress.total
    reported = ", ".join(f"{1e3 * seconds / count:.2f} ms of the {side}" for side, seconds in spent.items())
    print(f"{number:3} boards: {count} candidates in {took:.1f} s, {count / took:.2f} a second; CPU of each {reported}")
    return count / took
