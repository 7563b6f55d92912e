#!/usr/bin/env python3
"""Prove with Frama-C's Eva that no input makes the runtime, the kernels or a model's C do what C leaves undefined.

    scripts/prove.py [--quick] [PROOF|MODEL...]

A PROOF is one of the runtime's (tests/crt/proofs.py) or `kernels`, all portable schedules; by default all of them. A
MODEL is a file, whose C for --board is proved an operator at a time. Prints the alarms and the seconds of each proof;
ends with exit code 1 if there are alarms. Needs Debian's package frama-c-base. --quick: over fewer sizes.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import proved  # noqa: E402

from mtool.boards import get  # noqa: E402
from mtool.compiler.compilation import plan_model  # noqa: E402
from tests.crt import proofs  # noqa: E402


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
        plan, _ = plan_model(Path(name), get(board))
        with tempfile.TemporaryDirectory() as folder:
            for title, schedule, result in proved.proved(plan, Path(folder)):
                yield f"{title} ({schedule})", result


def main() -> int:
    """Run the proofs; 0 if all hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*proofs.PROOFS, "kernels"], metavar="PROOF|MODEL")
    parser.add_argument("--board", default="qemu_riscv32")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if shutil.which(proofs.TOOL) is None:
        print("frama-c is not installed: apt-get install frama-c-base", file=sys.stderr)
        return 5
    count = 0
    for name in given.names:
        for part, result in results(name, given.board, given.quick):
            count += len(result.alarms)
            print(f"{part:<30} {len(result.alarms):3} alarms {result.seconds:6.1f} s", flush=True)
            print(*(f"  {alarm}" for alarm in result.alarms), sep="\n", end="\n" if result.alarms else "")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
