#!/usr/bin/env python3
"""Prove with Frama-C's Eva that no input makes the runtime, the kernels or a model's C do what C leaves undefined.

    scripts/prove.py [--quick] [--table] [PROOF|MODEL...]

A PROOF is one of the runtime's (tests/crt/proofs.py), `kernels`, all portable schedules, or `networks`, ten random ones
(tests/fuzzing); by default all of them. A MODEL is a file, whose C for --board is proved an operator at a time, until
the first alarm of each. Prints the alarms and the seconds of each proof; ends with exit code 1 if there are alarms.
Needs Debian's package frama-c-base. --quick: over fewer sizes. --table: write the rows of docs/proofs.md.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import bench  # noqa: E402
import proved  # noqa: E402

from mtool.boards import get  # noqa: E402
from mtool.compiler.compilation import plan_model  # noqa: E402
from tests.crt import proofs  # noqa: E402

HEAD = "| proof | parts | alarms | seconds |\n|---|---|---|---|\n"


def results(name: str, board: str, quick: bool) -> Iterator[tuple[str, proofs.Result]]:
    """Run a proof, and yield what each of its parts found."""
    if name in proofs.PROOFS:
        yield name, proofs.prove(name, quick=quick)
    elif name == "kernels":
        for target, prefix in proved.PORTABLE:
            for schedule, plans in proved.smallest(target, prefix, 1 if quick else 3).items():
                with tempfile.TemporaryDirectory() as folder:
                    yield f"{target.cpu} {schedule}", proved.together(plans, Path(folder))
    else:
        with tempfile.TemporaryDirectory() as folder:
            if name == "networks":
                plans = itertools.islice(proved.networks(get(board), Path(folder)), 3 if quick else 10)
            else:
                plans = iter([(Path(name).stem, plan_model(Path(name), get(board))[0])])
            for model, plan in plans:
                for title, schedule, result in proved.proved(plan, Path(folder)):
                    yield f"{model} {title} ({schedule})", result


def main() -> int:
    """Run the proofs; 0 if all hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*proofs.PROOFS, "kernels", "networks"], metavar="PROOF|MODEL")
    parser.add_argument("--board", default="qemu_riscv32")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if shutil.which(proofs.TOOL) is None:
        print("frama-c is not installed: apt-get install frama-c-base", file=sys.stderr)
        return 5
    rows = []
    for name in given.names:
        count, alarms, seconds = 0, 0, 0.0
        for part, result in results(name, given.board, given.quick):
            count, alarms, seconds = count + 1, alarms + len(result.alarms), seconds + result.seconds
            print(f"{part:<40} {len(result.alarms):3} alarms {result.seconds:6.1f} s", flush=True)
            print(*(f"  {alarm}" for alarm in result.alarms), sep="\n", end="\n" if result.alarms else "")
        rows.append([f"`{Path(name).stem}`", str(count), str(alarms), f"{seconds:.0f}"])
    if given.table:
        bench.replace_table(ROOT / "docs" / "proofs.md", HEAD, rows)
    return int(any(row[2] != "0" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
