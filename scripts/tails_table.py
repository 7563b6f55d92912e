#!/usr/bin/env python3
"""Compare each schedule with SIMD with portable C, and write the table of docs/proofs.md.

scripts/tails_table.py
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import bench  # noqa: E402
import tails  # noqa: E402

PAGE = ROOT / "docs" / "proofs.md"
HEAD = "| schedule | emulator | layers | different |\n|---|---|---|---|\n"


def main() -> int:
    """Compare, and write the table; 0 if nothing differs."""
    rows = []
    for target, prefix, board in tails.FAMILIES:
        with tempfile.TemporaryDirectory(prefix="mtool-tails-") as folder:
            covered, wrong = tails.compared(target, prefix, board, Path(folder))
        print(board, prefix, *wrong, sep="\n", flush=True)
        for name, count in sorted(covered.items()):
            rows.append([f"`{name}`", board, str(count), str(sum(f" {name} " in line for line in wrong))])
    bench.replace_table(PAGE, HEAD, rows)
    return int(any(row[-1] != "0" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
