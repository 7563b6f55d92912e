#!/usr/bin/env python3
"""Mutate small ONNX and TFLite models: mtool must compile each, or refuse it with one of its own errors.

    scripts/fuzz_models.py [--form onnx|tflite] [--count N] [--seconds N] [--jobs N] [--seed N] [--state FOLDER]

Each mutant is compiled in a process with 20 s of CPU and 2 GiB of memory. What mtool compiles is built under ASan and
UBSan and compared with onnxruntime, onnx's reference evaluator or LiteRT. A campaign goes on where the last one
stopped; its figures are summed in the state's folder (build/fuzz-models), with the smallest mutant of each cause. Ends
with exit code 1 if a mutant of this run broke something.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):  # threads would be counted as memory, and don't survive a fork
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import multiprocessing  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import ai_edge_litert.interpreter  # noqa: E402, F401  a fork then has it already
import onnxruntime  # noqa: E402

from tests.fuzzing import campaign, mutate_onnx, mutate_tflite, seeds_onnx, seeds_tflite  # noqa: E402

CHUNK = 200


def forms(state: Path, more: Path | None, *, shipped: bool = True) -> dict[str, campaign.Form]:
    """Return both formats with their seeds: those written here, those of the onnx package, those of a folder."""
    own = list(seeds_onnx.own().items())
    of_onnx = list(seeds_onnx.shipped(state / "seeds.pickle").items()) if shipped else []
    lite = list(seeds_tflite.own().items())
    if more is not None:
        own += seeds_onnx.given(more)
        lite += seeds_tflite.given(more)
    weight = max(1, len(of_onnx) * 3 // (2 * len(own)))  # three mutants of five are of a seed written here
    return {
        "onnx": campaign.Form(".onnx", own * weight + of_onnx, mutate_onnx.mutate),
        "tflite": campaign.Form(".tflite", lite, mutate_tflite.mutate),
    }


def _chunk(job: tuple[str, range, int, Path, bool]) -> tuple[str, campaign.Tally]:
    name, numbers, base, finds, run = job
    return name, campaign.chunk(FORMS[name], numbers, base, finds, run=run)


FORMS: dict[str, campaign.Form] = {}


def main() -> int:
    """Run a campaign; 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--form", choices=("onnx", "tflite"), help="default: both in turn")
    parser.add_argument("--count", type=int, help="mutants of each form")
    parser.add_argument("--seconds", type=int, default=300, help="without --count: how long")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="another one is another campaign")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "fuzz-models")
    parser.add_argument("--seeds", type=Path, help="a folder of more models to mutate")
    parser.add_argument("--no-run", action="store_true", help="compile only")
    parser.add_argument("--write", type=int, metavar="NUMBER", help="only write this mutant to the state's folder")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    FORMS.update(forms(given.state, given.seeds))
    names = [given.form] if given.form else list(FORMS)
    if given.write is not None:
        for name in names:
            print(campaign.make(FORMS[name], given.write, given.seed, given.state))
        return 0
    paths = {name: given.state / f"{name}-{given.seed}.json" for name in names}
    tallies = {name: campaign.Tally.read(path) for name, path in paths.items()}
    before = sum(tally.found() for tally in tallies.values())
    end = time.monotonic() + (given.seconds if given.count is None else 10**9)

    def jobs():
        start = {name: tally.next for name, tally in tallies.items()}
        stop = {name: start[name] + (given.count if given.count is not None else 10**9) for name in names}
        while time.monotonic() < end and any(start[name] < stop[name] for name in names):
            for name in names:
                part = range(start[name], min(start[name] + CHUNK, stop[name]))
                start[name] = part.stop
                if part:
                    yield name, part, given.seed, given.state / "finds", not given.no_run

    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
        work = jobs()
        waiting = [pool.apply_async(_chunk, (job,)) for _, job in zip(range(given.jobs), work, strict=False)]
        while waiting:
            name, tally = waiting.pop(0).get()
            for cause in tallies[name].add(tally):
                print(f"{name}: {cause}   (number {tally.causes[cause]['number']})", file=sys.stderr, flush=True)
            tallies[name].next = max(tallies[name].next, tally.next)
            tallies[name].write(paths[name])
            waiting += [pool.apply_async(_chunk, (job,)) for _, job in zip(range(1), work, strict=False)]
    print("\n".join(campaign.figures(tallies)))
    print(f"{time.monotonic() - began:.0f} s; mutants of finds are in {given.state / 'finds'}")
    return 1 if sum(tally.found() for tally in tallies.values()) > before else 0


if __name__ == "__main__":
    sys.exit(main())
