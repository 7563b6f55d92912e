#!/usr/bin/env python3
"""Prove with Frama-C's Eva that no input makes the runtime access memory wrongly: link, server, JSON, deltas.

    scripts/prove.py [--quick] [PROOF...]

Prints the alarms and the time of each proof, by default of all; ends with exit code 1 if there are alarms. Needs
Debian's package frama-c-base. --quick: over fewer sizes of messages, as in the tests.
"""

import argparse
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.crt import proofs  # noqa: E402


def main() -> int:
    """Run the proofs; 0 if all hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*proofs.PROOFS], metavar="PROOF")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if shutil.which(proofs.TOOL) is None:
        print("frama-c is not installed: apt-get install frama-c-base", file=sys.stderr)
        return 5
    count = 0
    for name in given.names:
        result = proofs.prove(name, quick=given.quick)
        count += len(result.alarms)
        print(f"{name:<20} {len(result.alarms):3} alarms {result.seconds:6.1f} s", flush=True)
        print(*(f"  {alarm}" for alarm in result.alarms), sep="\n", end="\n" if result.alarms else "")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
