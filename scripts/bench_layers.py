"""Count the instructions of single layers on emulated boards, beside CMSIS: docs/layers.json.

    scripts/bench_layers.py [NAME ...] [--update] [--first]

NAME is a part of a layer's name (default: all). The counts are printed beside those of docs/layers.json; --update
writes them there, and the tables of docs/benchmarks.md and docs/preprocess.md. --first: as those before, too.
CMSIS_NN_DIR names a folder of CMSIS-NN: what mtool's backend gives to it is measured beside the cores that it has
instructions for. CMSIS_DSP_DIR and CMSIS_CORE_DIR: transforms by CMSIS-DSP (scripts/cmsis_dsp.py).
"""

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bench
from layer_models import CORES, LAYERS, M4, M55, ROW, TRANSFORM, Layer

from mtool import commands
from mtool.compiler.backends import BackendSpec

PEERS = {"cmsis_nn": "cmsis_nn", "cmsis_dsp": str(Path(__file__).with_name("cmsis_dsp.py"))}
PAGE = bench.ROOT / "docs" / "preprocess.md"
CMSIS_TOLERANCE = 2  # steps by which its LSTM differs from LiteRT's


def measure(layer: Layer, board: str, backend: str = "") -> float | None:
    """Return the instructions of a unit on a board; None where the backend does not take the layer."""
    made = layer.make()
    is_tflite = isinstance(made, bytes)
    with tempfile.TemporaryDirectory(prefix="mtool-layers-") as folder:
        path = Path(folder) / ("layer.tflite" if is_tflite else "layer.onnx")
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        options = commands.Options(rounding="tflite" if is_tflite else "onnx")
        if backend:
            chosen = BackendSpec(PEERS[backend], optional=True)
            options = commands.Options(rounding=options.rounding, backends=(chosen,), tolerance=CMSIS_TOLERANCE)
            manifest = commands.compile(path, board=board, options=options).manifest
            if not any(claim.backend for claim in manifest.claims):
                return None
        deployment = commands.Deployment(Path(folder) / "project")
        cost = commands.bench(path, board=board, number=1, repeat=1, options=options, deployment=deployment)
    return float(cost.as_json()["instructions"]) / layer.units


def write_signals(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the tables of docs/preprocess.md: of transforms, and of rows of features."""
    for prefix, head in ((TRANSFORM, "points"), (ROW, "a row of")):
        found = [row for row in rows.values() if row["layer"].startswith(prefix)]
        cores = list(dict.fromkeys(row["core"] for row in found))
        table: dict[str, list[str]] = {}
        for row in found:
            name = row["layer"].removeprefix(prefix)
            peer = f" ({bench.figure(row['cmsis'])})" if row.get("cmsis") else ""
            table.setdefault(name, [name]).append(bench.figure(row["now"]) + peer)
        bench.replace_table(PAGE, f"| {' | '.join([head, *cores])} |\n|{'---|' * (len(cores) + 1)}\n", table.values())


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    logging.disable(logging.INFO)
    known: dict[str, dict[str, Any]] = json.loads(bench.LAYERS.read_text()) if bench.LAYERS.exists() else {}
    chosen = [one for one in LAYERS if not given.names or any(name in one.name for name in given.names)]
    work = [(layer, board, "") for layer in chosen for board in layer.boards]
    for peer in (one for one in PEERS if os.environ.get(f"{one.upper()}_DIR")):
        boards = {"cmsis_nn": (M4, M55)}.get(peer, CORES)
        work += [(one, board, peer) for one in chosen if one.peer == peer for board in one.boards if board in boards]
    with ThreadPoolExecutor(given.jobs) as pool:
        counts = pool.map(lambda one: measure(*one), work)
        for (layer, board, backend), count in zip(work, counts, strict=True):
            key = f"{layer.name}, {CORES[board]}"
            row = known.setdefault(key, {"layer": layer.name, "core": CORES[board], "unit": layer.unit})
            what = "cmsis" if backend else "now"
            print(f"{key:44} {backend:8} {row.get(what)} → {count} {layer.unit}", flush=True)
            row[what], row["bound"] = count, layer.bound.get(board)
            if given.first:
                row["before"] = row["now"]
    if given.update or given.first:
        order = {f"{layer.name}, {CORES[board]}": None for layer in LAYERS for board in layer.boards}
        rows = {key: known[key] for key in order if key in known}
        bench.LAYERS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        write_signals(rows)
        bench.RESULT.with_suffix(".md").write_text(bench.markdown(json.loads(bench.RESULT.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
