"""`mtool worker` with simulated boards behind pseudo-terminals, and `mtool tune` on them, as a user would."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.tuning.dense import network
from tests.tuning.farm.cluster import cluster, end, wait_for
from tests.tuning.rig import BOARD, environment, rig

BEST = "int_rows:channels=6"


@pytest.mark.slow
def test_a_farm_with_faulty_boards_and_a_lost_worker_finds_the_best(tmp_path: Path) -> None:
    model = network(tmp_path / "m.onnx")
    with (
        rig(tmp_path / "rig", "--faults", "0.02", "--quiet", times=[{BEST: 9_000.0}] * 6, count=6) as desk,
        cluster(tmp_path) as made,
    ):
        workers = []
        for first in (0, 2, 4):
            boards = [word for n in (first, first + 1) for word in ("--board", BOARD, "--port", desk.port(n))]
            workers.append(desk.start([sys.executable, "-m", "mtool", "worker", made.address, *boards]))
        builder = desk.start([sys.executable, "-m", "mtool", "worker", made.address])
        argv = [sys.executable, "-m", "mtool", "tune", str(model), "--board", BOARD, "-o", "farm.jsonl"]
        tuning = subprocess.Popen(
            [*argv, "--scheduler", made.address],
            cwd=desk.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        log = desk.folder / "farm.jsonl"
        try:
            wait_for(lambda: (log.exists() and log.read_bytes().count(b"\n") >= 4) or tuning.poll() is not None, 120)
            end(workers[0], 9)
            said, _ = tuning.communicate(timeout=300)
        finally:
            for process in (*workers, builder, tuning):
                if process.poll() is None:
                    end(process)
                assert process.stdout is not None
                process.stdout.close()
        assert tuning.returncode == 0, said
        assert BEST in said and "saved" in said
        lines = log.read_text().splitlines()
        assert len(set(lines)) == len(lines)
        counts = Counter(line.split('"id":"')[1][:16] for line in lines)
        assert set(counts.values()) == {1}
