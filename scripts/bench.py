"""Measure every model on every emulated board and write docs/benchmarks.md and docs/benchmarks.json.

    scripts/bench.py [--models DIR]

The figures count instructions, flash, RAM and stack in QEMU: they are the same on every machine. The example is always
there; DIR has the MLPerf Tiny models as kws/kws_int8_qdq.onnx and so on (default: ../shared/models, if it is there).
"""

import argparse
import itertools
import json
import logging
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool import commands
from mtool.boards import Board, load_all

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs" / "benchmarks.json"
LAYERS = ROOT / "docs" / "layers.json"  # by scripts/bench_layers.py
NAMES = tuple(f"{model}_{kind}" for kind in ("int8_qdq", "float32") for model in ("kws", "vww", "ic", "ad"))

TFLITE_BOARDS = ("mps2_an386", "mps3_an547")  # on which .tflite models are measured too, as TFLite rounds


@dataclass(frozen=True)
class Peer:
    """What others need for an inference on the same emulators: instructions, and bytes of RAM as far as known."""

    name: str
    instructions: int
    arena: int = 0
    data: int = 0
    stack: int = 0

    def text(self, row: dict[str, Any]) -> str:
        """Return it in words, beside a row of ours."""
        times = self.instructions / row["instructions"]
        speed = f"{self.name}: {self.instructions:,} ({self.instructions / row['macs']:.2f} per MAC, {times:.1f} times)"
        parts = [
            f"arena {self.arena:,}",
            *(f"{what} {n:,}" for what, n in (("data", self.data), ("stack", self.stack)) if n),
        ]
        return f"{speed}, RAM: {', '.join(parts)}" if self.arena else speed


# int8: TFLM 90b983c2 with CMSIS-NN 4ab83cc3, its best flags. float32: the better of onnx2c ea045cc -O3 and TFLM.
_TFLM = "TFLM + CMSIS-NN"
PEERS: dict[str, dict[str, Peer]] = {
    "mps2_an386": {
        "kws_int8_qdq": Peer(_TFLM, 7698802, 22820, 552, 844),
        "vww_int8_qdq": Peer(_TFLM, 24101545, 100708, 552, 844),
        "ic_int8_qdq": Peer(_TFLM, 29863403, 54996, 552, 844),
        "ad_int8_qdq": Peer(_TFLM, 582273, 2580, 272, 556),
        "kws_float32": Peer("onnx2c", 19845640, 64152, stack=120),
        "vww_float32": Peer("onnx2c", 54759840, 295024, stack=152),
        "ic_float32": Peer("TFLM", 98827318, 201760),
        "ad_float32": Peer("TFLM", 1360214, 4528),
    },
    "mps2_an500": {
        "kws_int8_qdq": Peer(_TFLM, 7644597),
        "vww_int8_qdq": Peer(_TFLM, 24025160),
        "ic_int8_qdq": Peer(_TFLM, 30026108),
        "ad_int8_qdq": Peer(_TFLM, 583179),
    },
    "mps3_an547": {
        "kws_int8_qdq": Peer(_TFLM, 1786280, 27348, stack=972),
        "vww_int8_qdq": Peer(_TFLM, 6433170, 100772, stack=972),
        "ic_int8_qdq": Peer(_TFLM, 4810866, 55028, stack=896),
        "ad_int8_qdq": Peer(_TFLM, 149913, 9268, stack=704),
    },
}
LEAST_RAM = 256 * 1024
COLUMNS = ("instructions", "flash_code_bytes", "flash_const_bytes", "arena_bytes", "ram_static_bytes", "stack_bytes")


def model_paths(models: Path) -> list[Path]:
    """Return the models that are there, the example first."""
    found = [ROOT / "examples" / "digits" / "digits_int8.onnx"]
    return found + [path for name in NAMES if (path := models / name.split("_")[0] / f"{name}.onnx").is_file()]


def emulated() -> list[Board]:
    """Return the boards without an operating system whose emulator counts instructions, with RAM for all models."""
    bare = [board for board in load_all().values() if next(iter(board.templates)) == "baremetal"]
    counting = [board for board in bare if board.emulator and board.timer and board.timer.unit == "instructions"]
    return [board for board in counting if (ram := board.memory_for("arena")) and ram.size >= LEAST_RAM]


def tflite_paths(models: Path) -> list[Path]:
    """Return the .tflite models of int8 that are there."""
    names = (models / model / f"{model}_int8.tflite" for model in ("kws", "vww", "ic", "ad"))
    return [path for path in names if path.is_file()]


def measure(path: Path, board: Board, rounding: str = "") -> dict[str, Any]:
    """Return one row: what a model costs on a board."""
    with tempfile.TemporaryDirectory(prefix="mtool-bench-") as folder:
        cost = commands.bench(
            path,
            board=board,
            number=1,
            repeat=1,
            options=commands.Options(rounding="tflite") if rounding else None,
            deployment=commands.Deployment(Path(folder) / "project"),
        )
    row = {key: value for key, value in cost.as_json().items() if key in COLUMNS}
    own = {"rounding": rounding} if rounding else {}
    return {"model": path.stem, "board": board.name, "macs": cost.macs, "live_macs": cost.live_macs, **row, **own}


HEAD = """# Benchmarks

The cost of one inference of the MLPerf Tiny models and the example on each emulated board, beside other tools, in
[instructions](what-a-number-means.md#instructions) and bytes. `make bench` writes this page. For a Cortex-M7 mtool
chooses schedules by estimated cycles.

![Bars of four models: mtool takes fewer instructions than TFLM and microTVM, less RAM than TFLM and less \
time than X-CUBE-AI](figures/benchmarks.svg)

- *per MAC*: instructions per multiply-accumulate of the original ONNX model.
- *per live MAC*: the same, without channels whose outputs are constant, which mtool removes: half of VWW's MACs.
- *code*: the whole standalone image without the model's constants.
- *arena*: includes the inputs and outputs.
- *others need*: the other tool's arena (or static buffers), data and deepest stack, where measured.

The .tflite models use `--rounding tflite`, which equals TFLite's reference kernels bit for bit.
"""
COLUMN_NAMES = [
    "model",
    "instructions",
    "per MAC",
    "per live MAC",
    "code",
    "constants",
    "arena",
    "data",
    "stack",
    "others need",
]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table, a section a board."""
    lines, boards = [HEAD], load_all()
    for name in dict.fromkeys(row["board"] for row in rows):
        lines += [f"## {name}: {boards[name].description}", ""]
        lines += [f"| {' | '.join(COLUMN_NAMES)} |", f"|---|{'--:|' * (len(COLUMN_NAMES) - 2)}---|"]
        for row in (row for row in rows if row["board"] == name):
            peer = PEERS.get(name, {}).get(row["model"])
            figures = [row["flash_code_bytes"], row["flash_const_bytes"], row["arena_bytes"], row["ram_static_bytes"]]
            live = f"{row['instructions'] / row['live_macs']:.3f}" if row.get("live_macs") else ""
            rounding = f"{row['model']}, --rounding {row['rounding']}" if "rounding" in row else row["model"]
            cells = [rounding, f"{row['instructions']:,}", f"{row['instructions'] / row['macs']:.3f}", live]
            cells += [*(f"{figure:,}" for figure in figures), str(row["stack_bytes"]), peer.text(row) if peer else ""]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, *layers_table(json.loads(LAYERS.read_text()))])


def replace_table(page: Path, head: str, rows: Iterable[Sequence[str]]) -> None:
    """Write the rows of a page's table, behind its head of two lines."""
    before, _, behind = page.read_text().partition(head)
    *_, behind = re.split(r"^(?!\|)", behind, maxsplit=1, flags=re.MULTILINE)
    page.write_text(before + head + "".join(f"| {' | '.join(row)} |\n" for row in rows) + behind)


def table_of(page: Path, head: str) -> dict[str, list[str]]:
    """Return the rows of a page's table by their first cells."""
    lines = itertools.takewhile(lambda line: line.startswith("|"), page.read_text().partition(head)[2].splitlines())
    return {first: rest for first, *rest in ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)}


LAYERS_HEAD = """## Single layers

Instructions for each unit of a layer, measured in a model of this layer alone. *bound*: the loads, multiplications and
stores that the core's registers allow. *CMSIS*: CMSIS-NN, or CMSIS-DSP for transforms. `make bench-layers` counts them
again (models: `scripts/layer_models.py`).

| layer | core | unit | before | now | bound | CMSIS |
|---|---|---|--:|--:|--:|--:|"""


def layers_table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines about single layers."""
    figures = ("before", "now", "bound", "cmsis")
    cells = (
        [row["layer"], row["core"], row["unit"], *(figure(row.get(name)) for name in figures)] for row in rows.values()
    )
    return [LAYERS_HEAD, *(f"| {' | '.join(each)} |" for each in cells), ""]


def figure(count: float | None) -> str:
    """Return a count as text; "": there is none."""
    if count is None:
        return ""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models", help="folder of the models")
    parser.add_argument("--jobs", type=int, default=2, help="measurements at a time")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    work = [
        (path, board, rounding)
        for board in emulated()
        for rounding, paths in (("", model_paths), ("tflite", tflite_paths))
        if not rounding or board.name in TFLITE_BOARDS
        for path in paths(arguments.models)
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(lambda one: measure(*one), work))
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    RESULT.with_suffix(".md").write_text(markdown(rows))
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
