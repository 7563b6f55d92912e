"""Tuning on simulated boards with the command: statistics, faults, power, interruptions.

Searches wait for their simulated boards most of the time, so most of them run side by side.
"""

import contextlib
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuning.dense import network
from tests.tuning.rig import Rig, rig

CANDIDATES = (
    "dsp_rows", "dsp_rows:unroll=8", "dsp_rows:unroll=4", "dsp_rows:outputs=8", "dsp_rows:unroll=8,outputs=8",
    "dsp_rows:unroll=4,outputs=8", "int_rows:channels=8,unroll=4",
    "int_rows:channels=8,unroll=2", "int_rows:channels=8", "int_rows:channels=4,unroll=4", "c99_rows",
    "int_rows:channels=6,unroll=4", "int_rows:channels=4,unroll=2", "int_rows:channels=6,unroll=2",
    "int_rows:channels=4", "int_rows:channels=6", "int_rows:channels=2,unroll=4", "int_rows:unroll=2", "int_rows",
    "int_rows:unroll=4", "int_rows:channels=1", "int_rows:channels=1,unroll=1",
)  # fmt: skip
BEST = "int_rows:unroll=4"  # not the default
CRASH, ENDLESS, WRONG, PULLED = "dsp_rows:unroll=4", "dsp_rows:unroll=8", "int_rows", "int_rows:channels=1"
BROKEN = {CRASH: "crash", ENDLESS: "endless", WRONG: "wrong", PULLED: "unplugged"}
pytestmark = pytest.mark.long
QUIET = ("--quiet", "--faults", "0")
PADDING = 1 << 23  # bytes of a log that is larger than any file that a build makes
REPEATS = 3
FAULTS = "0.05"
SEEDS = 10
KILLS = 6  # fewer measurements than there are candidates


def truth(seed: int) -> dict[str, float]:
    """Return times in which one candidate is 4% faster than the next."""
    places = np.random.default_rng(seed).permutation(len(CANDIDATES))
    return {text: float(20_000 * 1.04**place) for text, place in zip(CANDIDATES, places, strict=True)}


def until(is_so: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait until something is so, or the process has ended."""
    deadline = time.monotonic() + 60
    while not is_so() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


def measured(desk: Rig) -> list[str]:
    """Return the candidates of the log's first readings: those of the baseline and of the finals apart."""
    lines = [line for line in desk.records() if line["kind"] == "measurement" and not line["baseline"]]
    return [line["candidate"] for line in lines if len(line["times"]) == REPEATS]


def fastest(desk: Rig, number: int) -> str:
    """Return the candidate that a log has for the fastest; of several measurements the last counts."""
    lines = [line for line in of_kind(desk, "measurement", number) if not line["baseline"]]
    last = {line["candidate"]: statistics.median(line["times"]) for line in lines if line["status"] == "ok"}
    return min(last, key=last.__getitem__)


def of_kind(desk: Rig, kind: str, number: int = 0) -> list[dict[str, Any]]:
    return [line for line in desk.records(number) if line["kind"] == kind]


@dataclass
class Running:
    """A rig, and a search on each of its boards."""

    desk: Rig
    searches: list["subprocess.Popen[str]"]

    def ended(self) -> list[tuple[int, str]]:
        """Return how the searches end, and what they say."""
        said = [search.communicate(timeout=500)[0] for search in self.searches]
        return [(search.returncode, text) for search, text in zip(self.searches, said, strict=True)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("model") / "m.onnx")


@pytest.fixture(scope="module")
def running(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """Searches that wait for their boards most of the time, all of them at once."""
    started: dict[str, Running] = {}
    with contextlib.ExitStack() as stack:

        def start(name: str, *options: str, before: Sequence[str] = (), **given: Any) -> None:
            desk = stack.enter_context(rig(tmp_path_factory.mktemp(name), *options, **given))
            desk.log().write_bytes(b"\n" * PADDING if before else b"")
            argv = [[*before, *desk.argv(model, number=number)] for number in range(desk.count)]
            started[name] = Running(desk, [desk.start(one) for one in argv])
            for search in started[name].searches:
                stack.enter_context(search)  # waited for, once it is killed
                stack.callback(search.kill)

        one = [{**truth(0), BEST: 9_000.0}]
        start(
            "broken",
            *QUIET,
            "--stay-dead",
            "--step-after",
            "10",
            times=one,
            broken={**BROKEN, "whole": "unplugged"},
            power=True,
        )
        start("bad", "--faults", FAULTS, count=SEEDS, times=[truth(seed) for seed in range(SEEDS)], power=True)
        start("dead", *QUIET, "--stay-dead", broken={"int_rows": "crash"})
        start("full", *QUIET, before=["prlimit", f"--fsize={PADDING + 4000}"])
        yield started


@pytest.mark.slow
def test_a_fault_costs_one_candidate_and_hardly_a_flash(running: dict[str, Running]) -> None:
    """The board is unusable until its power is cycled; the step in its speed is reported."""
    desk = running["broken"].desk
    ((code, said),) = running["broken"].ended()
    assert code == 0 and "the board is now 2.0% slower" in said, said
    failed = {line["candidate"]: line for line in of_kind(desk, "measurement") if line["reason"]}
    assert set(failed) == set(BROKEN)
    assert [failed[text]["status"] for text in BROKEN] == ["fault", "timeout", "wrong", "fault"]
    reasons = ["SIGSEGV on the device", "has not finished", "of 16 elements differ", "was lost"]
    assert all(reason in failed[text]["reason"] for text, reason in zip(BROKEN, reasons, strict=True))
    (plan,) = of_kind(desk, "plan")
    assert BEST in plan["choices"].values()
    assert sorted(measured(desk)) == sorted(set(CANDIDATES) - set(BROKEN))
    status = desk.status()
    # Three times for the crash, three times for the endless loop; more, if this computer is too busy to be answered.
    assert 6 <= status["power"] <= 9
    # The candidates, the finals, the plan, and the default before, when it was unplugged, and after.
    assert 6 <= status["flashes"] <= 8 and status["whole"] == 1


@pytest.mark.slow
def test_the_best_is_found_on_bad_boards(running: dict[str, Running]) -> None:
    ended = running["bad"].ended()
    assert [code for code, _ in ended] == [0] * SEEDS, ended
    found = 0
    for number in range(SEEDS):
        found += fastest(running["bad"].desk, number) == min(CANDIDATES, key=truth(number).__getitem__)
    assert found >= 9


@pytest.mark.slow
def test_a_board_that_nothing_brings_back_ends_the_search_and_what_was_measured_stays(
    running: dict[str, Running],
) -> None:
    ((code, said),) = running["dead"].ended()
    assert code == 7 and "no target answers" in said, said
    assert "results so far are in tuning0.jsonl" in said
    assert measured(running["dead"].desk)


@pytest.mark.slow
def test_a_log_that_can_not_be_written_any_more_ends_the_search_with_a_reason(running: dict[str, Running]) -> None:
    ((code, said),) = running["full"].ended()
    assert code == 2 and "tuning0.jsonl can't be written" in said and "Traceback" not in said, said
    assert running["full"].desk.records()


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on_where_it_was(model: Path, tmp_path: Path) -> None:
    chance = random.Random(0)
    with rig(tmp_path, *QUIET) as desk:
        for kills in range(1, KILLS + 1):
            wanted = len(desk.records()) + chance.randrange(1, 4)
            process = desk.start(desk.argv(model))
            until(lambda wanted=wanted: len(desk.records()) >= wanted, process)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.05))
            process.kill()
            process.communicate()
            if len(measured(desk)) < len(CANDIDATES):  # the finals have not begun
                begun = desk.status().get("measurements", 0)
                assert begun - len(of_kind(desk, "measurement")) <= kills  # of each run one at most is lost
        lines = desk.log().read_bytes()
        desk.log().write_bytes(lines[:-20])  # a power failure has cut the last line
        kept = len(measured(desk))
        last = desk.start(desk.argv(model))
        until(lambda: len(measured(desk)) == len(CANDIDATES), last)
        last.kill()
        said, _ = last.communicate()
        assert "is truncated or not JSON: skipped" in said
        assert f"{kept} of {len(CANDIDATES)} candidates" in said
        assert sorted(measured(desk)) == sorted(CANDIDATES)


@pytest.mark.slow
def test_ctrl_c_keeps_all_and_lets_go_of_the_board(model: Path, tmp_path: Path) -> None:
    with rig(tmp_path, *QUIET, count=2) as desk:
        first = desk.start(desk.argv(model))
        until(lambda: len(measured(desk)) >= 3, first)
        first.send_signal(signal.SIGSTOP)  # it goes on holding the board and the log
        for said in (
            desk.tune(model, "-o", desk.log(0).name, number=1, expect=2),
            desk.tune(model, "-o", "other.jsonl", number=0, expect=6),
        ):
            assert "in use by another mtool" in said and str(first.pid) in said
        first.send_signal(signal.SIGCONT)
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate()
        assert first.returncode == 130, said
        assert "results so far are in tuning0.jsonl: the same command continues from there" in said
        assert len(measured(desk)) >= 3 and desk.log().read_bytes().endswith(b"\n")
