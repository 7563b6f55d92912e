#!/usr/bin/env python3
"""Run libFuzzer on the runtime: the server, the module loader, deltas, bytecode.

    scripts/fuzz.py [server] [loader] [delta] [bytecode] [--seconds N] [--seed N]

Each of them, by default all, takes its share of ten minutes. Ends with exit code 1, and leaves the input in build/fuzz,
if one makes the runtime touch memory that is not its own, do what C leaves undefined, send half a frame, or run the
model more often than it was asked to.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.crt import fuzzing  # noqa: E402


def main() -> int:
    """Build and run the fuzzers; 0 if they found nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=[*fuzzing.TARGETS], metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=600, help="of all together")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    given = parser.parse_args()
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for target in given.targets:
        seconds = max(1, given.seconds // len(given.targets))
        command = fuzzing.command(target, folder, seconds=seconds, seed=given.seed)
        failed += subprocess.run(command, cwd=folder, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
