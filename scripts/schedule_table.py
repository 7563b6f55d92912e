#!/usr/bin/env python3
"""Compare the schedules of each core with portable C at every tail, and write the table of docs/proofs.md.

scripts/schedule_table.py [BOARD ...]
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import bench  # noqa: E402
import tails  # noqa: E402


def main() -> int:
    """Compare, and replace the rows of the boards; 0 if nothing differs."""
    differs = False
    for core, (_, _, board, _) in enumerate(tails.CORES):
        name = board or "host"
        if name not in (sys.argv[1:] or [name]):
            continue
        rows = []
        with tempfile.TemporaryDirectory(prefix="mtool-tails-") as folder:
            for row, wrong in tails.compared(core, Path(folder), range(tails.LAYERS)):
                print(*row, *wrong, sep="\n  ", flush=True)
                rows.append(row)
                differs |= bool(wrong)
        kept = [row for row in tails.table() if row[2] != name]
        bench.replace_table(tails.PAGE, tails.HEAD, sorted([*kept, *rows]))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
