"""A farm of simulated boards: workers that die, boards that hang or fail, a scheduler that is restarted."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mtool.compiler.tuned import record as tuning_log
from mtool.tuning.candidates import Space
from mtool.tuning.search import Goal
from tests.tuning.farm.cluster import Cluster, cluster, connected, wait_for
from tests.tuning.farm.searches import StandInMaker, best, search, spaces_of, truly_best
from tests.tuning.farm.stand_in import BOARD

SLOW = {"call_s": 0.004}


@pytest.fixture(scope="module")
def spaces(tmp_path_factory: pytest.TempPathFactory) -> list[Space]:
    return spaces_of(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A farm with four working boards."""
    with cluster(tmp_path_factory.mktemp("farm")) as made:
        made.start_worker(4)
        yield made


def when(path: Path, lines: int, do: Callable[[], None]) -> threading.Thread:
    """Do something when a log has a number of lines."""

    def watch() -> None:
        wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= lines, 120)
        do()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_worker_of_a_local_scheduler_listens_on_loopback_alone_and_serves_no_pages(running: Cluster) -> None:
    with connected(running, 4):
        sockets = psutil.Process(running.workers[0].pid).net_connections("inet")
        listening = [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]
    assert listening == ["127.0.0.1"]


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_workers_die_and_the_scheduler_is_started_again(
    spaces: list[Space], tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(cluster(tmp_path))
        for _ in range(2):
            running.start_worker(3)
        farm = stack.enter_context(connected(running, 6))
        killed = when(path, 15, lambda: running.kill_worker(0))
        again = when(path, 70, running.restart_scheduler)
        progress = search(farm, spaces, path, StandInMaker(times=SLOW))
        killed.join()
        again.join()
        assert farm.boards == 3
    assert best(progress) == truly_best(spaces)
    assert progress.measured == progress.total == sum(len(space.candidates) for space in spaces)
    lines = path.read_text().splitlines()
    read = tuning_log.read([path]).measurements
    assert len(read) == len(lines)
    times = Counter(one.key for one in read if not one.baseline)
    finals = {key for key, count in times.items() if count > 1}
    assert len(times) == progress.total and len(finals) < 20  # once each, the finalists again
    assert all(count <= 7 for count in times.values())


@pytest.mark.slow
def test_a_board_that_fails_or_hangs_is_quarantined_by_name_and_its_work_goes_elsewhere(
    running: Cluster, spaces: list[Space], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running.start_worker(2, "dead", "hangs")
    with connected(running, 6) as farm:
        progress = search(farm, spaces, tmp_path / "t.jsonl", StandInMaker(times=SLOW))
        wait_for(lambda: farm.wait(0.2) == [] and farm.boards == 4)
    assert best(progress) == truly_best(spaces) and not progress.failed
    assert f"{BOARD} 0 of {running.workers[1].pid} is quarantined: it failed three times in a row" in caplog.text
    assert "no probe answers" in running.said() and "it has been silent" in running.said()
    assert f"{BOARD} 1 of {running.workers[1].pid} is quarantined" not in caplog.text  # it hangs, once
    running.kill_worker(1)


@pytest.mark.slow
def test_a_candidate_that_no_board_survives_costs_itself_alone(
    running: Cluster, spaces: list[Space], tmp_path: Path
) -> None:
    killer, large = truly_best(spaces[:1])[0], spaces[0].candidates[7].text
    with connected(running, 4) as farm:
        progress = search(farm, spaces[:1], tmp_path / "t.jsonl", StandInMaker(killer, large, SLOW))
        assert farm.boards == 4
    assert best(progress) == truly_best(spaces[:1], without=killer)
    failed = {one.candidate: one for one in tuning_log.read([tmp_path / "t.jsonl"]).measurements if one.status != "ok"}
    assert {text: one.status for text, one in failed.items()} == {killer: "fault", large: "too large"}
    assert "did not recover" in failed[killer].reason


@pytest.mark.slow
def test_goals_end_the_search_and_free_the_boards(running: Cluster, spaces: list[Space], tmp_path: Path) -> None:
    with connected(running, 4) as farm:
        few = search(
            farm, spaces, tmp_path / "a.jsonl", StandInMaker(unit="instructions"), goal=Goal(trials=21), most=8
        )
        assert few.measured == 21
    with connected(running, 4) as farm:
        start = time.monotonic()
        some = search(farm, spaces, tmp_path / "b.jsonl", StandInMaker(times={"call_s": 0.1}), goal=Goal(seconds=4))
        assert time.monotonic() - start < 10 and 0 < some.measured < some.total
    with connected(running, 4) as farm:
        again = search(farm, spaces, tmp_path / "b.jsonl", StandInMaker(unit="ns"))
        assert again.reused == some.tried and again.measured == again.total - again.reused
        assert best(again) == truly_best(spaces)
