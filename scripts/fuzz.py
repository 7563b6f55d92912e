#!/usr/bin/env python3
"""Feed the device's side of the protocol with what libFuzzer thinks of, for ten minutes.

    scripts/fuzz.py [--seconds N] [--seed N]

Ends with exit code 1, and leaves the input in build/fuzz, if one makes the server touch memory that is not its own,
do what C leaves undefined, send half a frame, or run the model more often than it was asked to.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.crt import firmware  # noqa: E402


def main() -> int:
    """Build and run the fuzzer; 0 if it found nothing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    given = parser.parse_args()
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(firmware.fuzz(folder, seconds=given.seconds, seed=given.seed), cwd=folder, check=False)
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
