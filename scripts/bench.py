"""Measure every model on every emulated board and write docs/benchmarks.md and docs/benchmarks.json.

    scripts/bench.py [--models DIR]

The figures count instructions, flash, RAM and stack in QEMU: they are the same on every machine. The example is always
there; DIR has the MLPerf Tiny models as kws/kws_int8_qdq.onnx and so on (default: ../shared/models, if it is there).
"""

import argparse
import json
import logging
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mtool import workflow
from mtool.boards import Board, load_all

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs" / "benchmarks.json"
NAMES = tuple(f"{model}_{kind}" for kind in ("int8_qdq", "float32") for model in ("kws", "vww", "ic", "ad"))

# What others need for the same work, on the same emulators: instructions and arena bytes of one inference.
# int8: TFLM 90b983c2 with CMSIS-NN 4ab83cc3, its best flags. float32: the better of onnx2c ea045cc -O3 and TFLM.
PEERS: dict[str, dict[str, tuple[str, int, int | None]]] = {
    "mps2_an386": {
        "kws_int8_qdq": ("TFLM + CMSIS-NN", 7698802, 22820),
        "vww_int8_qdq": ("TFLM + CMSIS-NN", 24101545, 100708),
        "ic_int8_qdq": ("TFLM + CMSIS-NN", 29863403, 54996),
        "ad_int8_qdq": ("TFLM + CMSIS-NN", 582273, 2580),
        "kws_float32": ("onnx2c", 19845640, 64152),
        "vww_float32": ("onnx2c", 54759840, 295024),
        "ic_float32": ("TFLM", 98827318, 201760),
        "ad_float32": ("TFLM", 1360214, 4528),
    },
    "mps2_an500": {
        "kws_int8_qdq": ("TFLM + CMSIS-NN", 7644597, None),
        "vww_int8_qdq": ("TFLM + CMSIS-NN", 24025160, None),
        "ic_int8_qdq": ("TFLM + CMSIS-NN", 30026108, None),
        "ad_int8_qdq": ("TFLM + CMSIS-NN", 583179, None),
    },
    "mps3_an547": {
        "kws_int8_qdq": ("TFLM + CMSIS-NN", 1786280, 27348),
        "vww_int8_qdq": ("TFLM + CMSIS-NN", 6433170, 100772),
        "ic_int8_qdq": ("TFLM + CMSIS-NN", 4810866, 55028),
        "ad_int8_qdq": ("TFLM + CMSIS-NN", 149913, 9268),
    },
}
COLUMNS = ("instructions", "flash_code_bytes", "flash_const_bytes", "arena_bytes", "ram_static_bytes", "stack_bytes")


def model_paths(models: Path) -> list[Path]:
    """Return the models that are there, the example first."""
    found = [ROOT / "examples" / "digits" / "digits_int8.onnx"]
    return found + [path for name in NAMES if (path := models / name.split("_")[0] / f"{name}.onnx").is_file()]


def emulated() -> list[Board]:
    """Return the boards without an operating system whose emulator counts instructions."""
    bare = [board for board in load_all().values() if next(iter(board.templates)) == "baremetal"]
    return [board for board in bare if board.emulator and board.timer and board.timer.unit == "instructions"]


def measure(path: Path, board: Board) -> dict[str, Any]:
    """Return one row: what a model costs on a board."""
    with tempfile.TemporaryDirectory(prefix="mtool-bench-") as folder:
        cost = workflow.bench(
            path, board=board, number=1, repeat=1, deployment=workflow.Deployment(Path(folder) / "project")
        )
    row = {key: value for key, value in cost.as_json().items() if key in COLUMNS}
    return {"model": path.stem, "board": board.name, "macs": cost.macs, **row}


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table, a section a board."""
    lines = [
        "# Benchmarks",
        "",
        "One inference in QEMU, counted, not timed: the same on every machine; `make bench` writes this page.",
        "Instructions are not cycles: no wait states, no dual issue; on a Cortex-M7, which has that, schedules are",
        "chosen for fewer cycles. MACs are those of the ONNX model as given, *code* is the whole standalone image",
        "without the model's constants, *arena* holds the inputs and outputs too, sizes are in bytes.",
        "",
    ]
    boards = load_all()
    for name in dict.fromkeys(row["board"] for row in rows):
        peers = PEERS.get(name, {})
        lines += [f"## {name}: {boards[name].description}", ""]
        lines += ["| model | instructions | per MAC | code | constants | arena | data | stack | others need |"]
        lines += ["|---|--:|--:|--:|--:|--:|--:|--:|---|"]
        for row in (row for row in rows if row["board"] == name):
            peer = peers.get(row["model"])
            other = ""
            if peer:
                times = peer[1] / row["instructions"]
                arena = f", RAM {peer[2]:,}" if peer[2] else ""
                other = f"{peer[0]}: {peer[1]:,} ({peer[1] / row['macs']:.2f} per MAC, {times:.1f} times){arena}"
            figures = [row["flash_code_bytes"], row["flash_const_bytes"], row["arena_bytes"], row["ram_static_bytes"]]
            cells = [row["model"], f"{row['instructions']:,}", f"{row['instructions'] / row['macs']:.3f}"]
            cells += [*(f"{figure:,}" for figure in figures), str(row["stack_bytes"]), other]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models", help="folder of the models")
    parser.add_argument("--jobs", type=int, default=2, help="measurements at a time")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    work = [(path, board) for board in emulated() for path in model_paths(arguments.models)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(lambda pair: measure(*pair), work))
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    RESULT.with_suffix(".md").write_text(markdown(rows))
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
