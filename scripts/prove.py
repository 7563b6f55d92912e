#!/usr/bin/env python3
"""Prove with Frama-C's Eva that no input makes the runtime, the kernels or a model's C do what C leaves undefined.

    scripts/prove.py [--quick] [--table] [PROOF|MODEL...]

A PROOF is one of the runtime's (tests/crt/proofs.py), `kernels`, all portable schedules, or `networks`, ten random ones
(tests/fuzzing). A MODEL is a file, whose C for --board is proved. By default all, with the example and an autoencoder
of MLPerf Tiny from ../shared/models, if it is there. Prints the alarms and the seconds of each proof; ends with exit
code 1 if there are alarms. Needs Debian's package frama-c-base. --quick: over fewer sizes. --table: update the table of
docs/proofs.md.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import bench  # noqa: E402
import proved  # noqa: E402

from mtool.boards import get, load_all  # noqa: E402
from mtool.compiler.compilation import plan_model  # noqa: E402
from mtool.compiler.plan import Plan  # noqa: E402
from tests.crt import proofs  # noqa: E402

HEAD = "| proof | operators | alarms | seconds |\n|---|---|---|---|\n"
MODELS = [
    str(path)
    for path in (
        ROOT / "examples" / "digits" / "digits_int8.onnx",
        ROOT.parent / "shared" / "models" / "ad" / "ad_int8_qdq.onnx",
    )
    if path.exists()
]


def results(name: str, board: str, quick: bool) -> Iterator[tuple[str, int, proofs.Result]]:
    """Run a proof; yield each part's name, its number of operators, and what was found."""
    if name in proofs.PROOFS:
        yield name, 0, proofs.prove(name, quick=quick)
        return
    with tempfile.TemporaryDirectory() as folder:
        parts: Iterable[tuple[str, list[Plan]]]
        if name == "kernels":
            parts = (
                (f"{target.cpu} {schedule}", plans)
                for target, prefix in proved.PORTABLE
                for schedule, plans in proved.smallest(target, prefix, 1 if quick else 3).items()
            )
        elif name == "networks":
            drawn = proved.networks(get(board), Path(folder))
            parts = ((model, [plan]) for model, plan in itertools.islice(drawn, 3 if quick else 10))
        else:
            parts = [(Path(name).stem, [plan_model(Path(name), get(board))[0]])]
        for number, (part, plans) in enumerate(parts):
            (place := Path(folder) / str(number)).mkdir()
            yield part, sum(len(plan.steps) for plan in plans), proved.proved(plans, place)


def main() -> int:
    """Run the proofs; 0 if all hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*proofs.PROOFS, "kernels", "networks", *MODELS]
    about = f"any of {', '.join(every)}, or another model's file (minutes); default: all"
    parser.add_argument("names", nargs="*", default=every, metavar="PROOF|MODEL", help=about)
    parser.add_argument("--board", default="qemu_riscv32", help="of the models' C (default: qemu_riscv32)")
    parser.add_argument("--quick", action="store_true", help="over fewer sizes")
    parser.add_argument("--table", action="store_true", help="update the rows of docs/proofs.md")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in every and not Path(name).is_file()]
    if unknown or given.board not in load_all():
        parser.error(f"no such proof or file: {unknown[0]}" if unknown else f"no such board: {given.board}")
    if shutil.which(proofs.TOOL) is None:
        print("frama-c is not installed: apt-get install frama-c-base", file=sys.stderr)
        return 5
    page = ROOT / "docs" / "proofs.md"
    rows = bench.table_of(page, HEAD)
    all_hold = True
    for name in given.names:
        count, alarms, seconds = 0, 0, 0.0
        for part, operators, result in results(name, given.board, given.quick):
            count, alarms, seconds = count + operators, alarms + len(result.alarms), seconds + result.seconds
            print(f"{part:<40} {len(result.alarms):3} alarms {result.seconds:6.1f} s", flush=True)
            print(*(f"  {alarm}" for alarm in result.alarms), sep="\n", end="\n" if result.alarms else "")
        all_hold = all_hold and not alarms
        rows[f"`{Path(name).stem}`"] = [str(count or ""), str(alarms), f"{seconds:.0f}"]
        if given.table:
            bench.replace_table(page, HEAD, [[title, *row] for title, row in rows.items()])
    return int(not all_hold)


if __name__ == "__main__":
    sys.exit(main())
