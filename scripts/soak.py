#!/usr/bin/env python3
"""Run sessions over bad lines for some minutes: noise, pulled cables, and the share of a line's rate used for data.

    scripts/soak.py [--model MODEL.onnx] [--seed N]
    scripts/soak.py --calls N --folder FOLDER [--model MODEL.onnx] [--seed N]
    scripts/soak.py --hours N

With --calls: that many inferences over noise on each of four boards, in parts; FOLDER keeps the counts, and the next
run continues there. With --hours: that many emulated hours of a streaming wake word, a hop each 32 ms, on three boards;
each hop is compared with LiteRT, and clocks begin just below 32 bits. The tests do a little of the same. MODEL runs on
the host board and in QEMU (default: kws_int8_qdq of ../shared/models).
Ends with exit code 1 if a result was wrong, a session could not be opened again, the line was used too little, or the
used memory grew.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mtool import commands  # noqa: E402
from tests.device.rpc import trials  # noqa: E402
from tests.device.rpc.bridge import HARMS  # noqa: E402
from tests.device.session import test_stream  # noqa: E402

MODEL = ROOT.parent / "shared" / "models" / "kws" / "kws_int8_qdq.onnx"
INFERENCES = {"host": 1000, "mps2_an386": 100}
UNPLUGGED = 200
DATA_BYTES = 100_000
LEAST_SHARE = 0.95
ENDURING = ("host", "mps2_an386", "qemu_riscv32", "mps2_an385")
PART = 250  # calls in one session


def main() -> int:
    """Run every trial; 0 if all went well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL, help="an ONNX or TFLite file (default: kws_int8_qdq)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise and the samples")
    parser.add_argument(
        "--calls",
        type=int,
        help="inferences over noise on each of four boards; continues where the last run in --folder stopped",
    )
    parser.add_argument("--folder", type=Path, help="keeps the firmware and the counts of --calls")
    parser.add_argument("--hours", type=float, help="emulated hours of a streaming wake word")
    given = parser.parse_args()
    if given.hours:
        return stream(given.hours)
    if given.calls:
        return endure(given.model, given.folder or parser.error("--calls needs --folder"), given.calls, given.seed)
    ok = True
    with tempfile.TemporaryDirectory(prefix="mtool-soak-") as folder:
        for board, count in INFERENCES.items():
            built = commands.prepare(given.model, board=board, folder=Path(folder) / board).folder
            for harms in (*((harm,) for harm in HARMS), HARMS):
                noisy = trials.over_noise(built, count=count, harms=harms, seed=given.seed)
                ok &= say(f"{board}, {' '.join(harms)}", noisy, noisy.wrong == 0)
    unplugged = trials.unplug(times=UNPLUGGED, seed=given.seed)
    ok &= say("unplugged", unplugged, unplugged.reconnected == UNPLUGGED)
    rate = trials.transfer(data_bytes=DATA_BYTES)
    ok &= say(f"{DATA_BYTES:,} bytes at {trials.BAUD:,} baud", rate, min(rate.write, rate.read) >= LEAST_SHARE)
    return 0 if ok else 1


def endure(model: Path, folder: Path, calls: int, seed: int) -> int:
    """Run inferences over noise on each board until it has had `calls`; 0 if no output was wrong."""
    counts_file = folder / "counts.json"
    counts = json.loads(counts_file.read_text()) if counts_file.exists() else {}
    built = {board: commands.prepare(model, board=board, folder=folder / board).folder for board in ENDURING}
    for done in range(0, calls, PART):
        for board in ENDURING:
            own = counts.setdefault(board, {"calls": 0, "wrong": 0, "harmed": 0})
            if own["calls"] > done:
                continue
            noisy = trials.over_noise(built[board], count=PART, seed=seed + done)
            for key, more in {"calls": PART, "wrong": noisy.wrong, "harmed": noisy.harmed}.items():
                own[key] += more
            counts_file.write_text(json.dumps(counts))
    return 0 if all(say(board, own, own["wrong"] == 0) for board, own in counts.items()) else 1


def stream(hours: float) -> int:
    """Run a streaming model on each board; 0 if no output was wrong and nothing grew."""
    right, ok = test_stream.expected(round(hours * 3600 / test_stream.HOP_S)), True
    for board in test_stream.BOARDS:
        with tempfile.TemporaryDirectory(prefix="mtool-soak-") as folder:
            found = test_stream.streamed(board, right, Path(folder))
        ok &= say(board, found, found.is_good)
    return 0 if ok else 1


def say(what: str, result: object, is_good: bool) -> bool:
    """Print a trial's result; return whether it is good."""
    print(f"{'ok    ' if is_good else 'FAILED'}  {what}: {result}", flush=True)
    return is_good


if __name__ == "__main__":
    sys.exit(main())
