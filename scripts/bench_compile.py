"""Measure mtool's own start-up and compile times, and write docs/compile-time.md.

    scripts/bench_compile.py [--models DIR] [--repeat N]

CPU seconds (user and system) of a process of its own, the least of N, and its peak memory: the machine's load shows
little in them, its speed does. DIR has the MLPerf Tiny models (default: ../shared/models, if it is there); the other
models are made here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compile-time.md"
BOARD = "mps2_an386"

MADE = (
    "1,000 convolutions in a row",
    "200 branches",
    "10,000 operators in a row",
    "100 MB of weights",
    "100 MB of int8 weights",
    "100 MB of int8 weights in one convolution",
)
HEAD = """# Compile time

The CPU seconds and peak memory of one mtool process, including Python's start. `make bench-compile` writes this page.
The figures depend on the computer; compare the rows. Models use `mtool compile --board {board}`;
`scripts/bench_models.py` generates those below VWW and IC.

| what | CPU seconds | peak memory | model |
|---|---:|---:|---:|
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took: CPU seconds, and bytes of memory at its peak."""

    seconds: float
    peak_bytes: int


def measured(argv: Sequence[str], folder: Path, repeat: int) -> Cost:
    """Return the least that a command took."""
    found = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "MTOOL_CACHE": "off"}
    for _ in range(repeat):
        child = subprocess.Popen([sys.executable, "-m", "mtool", *argv], cwd=folder, env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"mtool {' '.join(argv)} ended with {child.returncode}")
        found.append(Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024))
    return min(found, key=lambda cost: cost.seconds)


def main() -> None:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def add(what: str, argv: Sequence[str], path: Path | None = None) -> None:
            cost = measured(argv, folder, chosen.repeat)
            size = "" if path is None else f"{path.stat().st_size / 1e6:.1f} MB"
            rows.append(f"| {what} | {cost.seconds:.2f} | {cost.peak_bytes / 1e6:.0f} MB | {size} |")
            sys.stderr.write(f"{rows[-1]}\n")

        for arguments in ("--version", "--help", "boards"):
            add(f"`mtool {arguments}`", [arguments])
        paths = {key.upper(): chosen.models / key / f"{key}_int8_qdq.onnx" for key in ("kws", "vww", "ic")}
        # By another process: the peak of this one counts as that of those that it starts.
        subprocess.run([sys.executable, ROOT / "scripts" / "bench_models.py", folder], check=True)
        paths |= {what: folder / f"{number}.onnx" for number, what in enumerate(MADE)}
        if paths["KWS"].is_file():
            again = ["run", str(paths["KWS"]), "--output-dir", "again"]
            measured(again, folder, 2)  # builds, and is compared with the reference
            add("`mtool run` of KWS on this machine, again", again, paths["KWS"])
        for what, path in paths.items():
            if path.is_file():
                add(what, ["compile", str(path), "--board", BOARD, "--output-dir", f"c-{path.stem}"], path)
    PAGE.write_text(HEAD.format(board=BOARD) + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
