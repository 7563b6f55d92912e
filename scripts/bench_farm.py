"""Measure a farm of simulated boards, its throughput and what it survives, and write docs/farm.md.

scripts/bench_farm.py [--workers 8] [--boards 8] [--factor 5] [--terminals]

With --terminals the boards are those of tests/tuning/simulated_board.py, behind pseudo-terminals: real firmware, driven
by real `mtool worker`s over the real protocol at 115,200 baud; what they run is compiled beforehand.

They wait as flashing (4 s) and a line of 115,200 baud (20 ms a call) would, times the factor, so that waiting is what
takes the time even where 64 boards share a computer of two cores. First one board, then all, then all with two workers
killed and the scheduler started again.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import bench_terminals as terminals  # noqa: E402

from mtool.compiler.tuned import record as tuning_log  # noqa: E402
from mtool.compiler.tuned.record import digest  # noqa: E402
from mtool.tuning.candidates import Space  # noqa: E402
from mtool.tuning.search import Progress  # noqa: E402
from tests.tuning.farm.cluster import Cluster, cluster, connected, wait_for  # noqa: E402
from tests.tuning.farm.searches import StandInMaker, best, search, spaces_of, truly_best  # noqa: E402

FLASH_S, CALL_S = 4.0, 0.02
A_FIRMWARE, A_SLICE = 240, 48


def copies(spaces: list[Space], count: int) -> list[Space]:
    """Return `count` different tasks with the candidates of the first space."""
    first = spaces[0]
    return [
        dataclasses.replace(
            first,
            task=dataclasses.replace(
                first.task, record=first.task.record.model_copy(update={"key": digest([first.task.record.key, number])})
            ),
        )
        for number in range(count)
    ]


def trimmed(spaces: list[Space], total: int) -> list[Space]:
    """Return copies of a space with a total number of candidates."""
    each = len(spaces[0].candidates)
    found = copies(spaces, -(-total // each))
    last = found[-1]
    kept = last.candidates[: total - each * (len(found) - 1)]
    found[-1] = dataclasses.replace(last, candidates=kept, reference=kept[0])
    return found


def cpu_s(process: "subprocess.Popen[bytes] | None" = None) -> float:
    """Return the CPU seconds of a process, on Linux, or of this one."""
    if process is None:
        times = os.times()
        return times.user + times.system
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(
    made: Cluster, boards: int, spaces: list[Space], factor: float, path: Path, is_disturbed: bool = False
) -> tuple[Progress, float]:
    """Search on all boards, and return how many seconds it took from the first slice to the last answer."""
    maker = StandInMaker(times={"flash_s": FLASH_S * factor, "call_s": CALL_S * factor}, unit="instructions")
    with connected(made, boards) as farm:
        start, cpu, scheduler = time.monotonic(), cpu_s(), cpu_s(made.scheduler)
        progress = search(farm, spaces, path, maker, most=A_FIRMWARE)
        took = time.monotonic() - start
        rate, each_ms = progress.measured / took, (cpu_s() - cpu) / progress.measured * 1e3
        reported = (
            f"{boards:3} boards: {progress.measured} candidates in {took:.1f} s, {rate:.2f} a second; CPU of each"
        )
        if isinstance(made.scheduler, subprocess.Popen) and not is_disturbed:
            reported += f" {(cpu_s(made.scheduler) - scheduler) / progress.measured * 1e3:.2f} ms of the scheduler,"
        print(f"{reported} {each_ms:.2f} ms of the client", flush=True)
    assert progress.measured == progress.total
    return progress, took


def disturbed(made: Cluster, path: Path, lines: int) -> threading.Thread:
    """Kill two workers and start the scheduler again while a search runs."""

    def do() -> None:
        def has(count: int) -> bool:
            return path.exists() and path.read_bytes().count(b"\n") >= count

        wait_for(lambda: has(lines // 8), 600)
        made.kill_worker(0)
        wait_for(lambda: has(lines // 4), 600)
        made.kill_worker(1)
        wait_for(lambda: has(lines // 2), 600)
        made.restart_scheduler()

    thread = threading.Thread(target=do)
    thread.start()
    return thread


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=8)
    options.add_argument("--boards", type=int, default=8, help="of each worker")
    options.add_argument("--factor", type=float, default=5.0, help="of all times that are waited")
    options.add_argument("--terminals", action="store_true", help="simulated boards behind pseudo-terminals")
    given = options.parse_args()
    count = given.workers * given.boards
    if given.terminals:
        with tempfile.TemporaryDirectory() as folder:
            terminals.bench(Path(folder), given.workers, given.boards, given.factor)
        return
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        spaces = spaces_of(here)
        many = trimmed(spaces, A_SLICE * count)
        with cluster(here) as made:
            made.start_worker(1)
            _, alone_s = run(made, 1, trimmed(spaces, 2 * A_SLICE), given.factor, here / "one.jsonl")
            made.kill_worker(0)
        with cluster(here) as made:
            for _ in range(given.workers):
                made.start_worker(given.boards)
            _, together_s = run(made, count, many, given.factor, here / "all.jsonl")
            ratio = (A_SLICE * count / together_s) / (2 * A_SLICE / alone_s)
            print(f"{count} boards measure {ratio:.1f} times as much as one", flush=True)
            path = here / "disturbed.jsonl"
            lost = disturbed(made, path, A_SLICE * count)
            progress, _ = run(made, count, many, given.factor / 5, path, is_disturbed=True)
            lost.join()
        read = tuning_log.read([path]).measurements
        keys = Counter(one.key for one in read)
        assert len(read) == len(path.read_text().splitlines()) == len(keys) == progress.total, "lost, or doubled"
        assert best(progress) == truly_best(many), "another plan"
        print(f"with 2 of {given.workers} workers killed and the scheduler started again: nothing lost, none doubled")


if __name__ == "__main__":
    main()
