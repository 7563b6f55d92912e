"""Count the instructions of single layers on emulated boards, beside CMSIS-NN: docs/layers.json.

    scripts/bench_layers.py [NAME ...] [--update] [--first]

NAME is a part of a layer's name (default: all). The counts are printed beside those of docs/layers.json; --update
writes them there, and scripts/bench.py makes the table of docs/benchmarks.md of them. --first: as those before, too.
CMSIS_NN_DIR names a folder of CMSIS-NN: what mtool's backend gives to it is measured beside the cores that it has
instructions for.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bench
from layer_models import CORES, LAYERS, M4, M55, Layer

from mtool import commands
from mtool.compiler.backends import BackendSpec

CMSIS_NN = "cmsis_nn"
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
            chosen = BackendSpec(backend, optional=True)
            options = commands.Options(rounding=options.rounding, backends=(chosen,), tolerance=CMSIS_TOLERANCE)
            manifest = commands.compile(path, board=board, options=options).manifest
            if not any(claim.backend for claim in manifest.claims):
                return None
        deployment = commands.Deployment(Path(folder) / "project")
        cost = commands.bench(path, board=board, number=1, repeat=1, options=options, deployment=deployment)
    return float(cost.as_json()["instructions"]) / layer.units


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
    if os.environ.get("CMSIS_NN_DIR"):
        work += [(layer, board, CMSIS_NN) for layer in chosen for board in layer.boards if board in (M4, M55)]
    with ThreadPoolExecutor(given.jobs) as pool:
        counts = pool.map(lambda one: measure(*one), work)
        for (layer, board, backend), count in zip(work, counts, strict=True):
            key = f"{layer.name}, {CORES[board]}"
            row = known.setdefault(key, {"layer": layer.name, "core": CORES[board], "unit": layer.unit})
            what = backend or "now"
            print(f"{key:44} {backend:8} {row.get(what)} → {count} {layer.unit}", flush=True)
            row[what], row["bound"] = count, layer.bound.get(board)
            if given.first:
                row["before"] = row["now"]
    if given.update or given.first:
        order = {f"{layer.name}, {CORES[board]}": None for layer in LAYERS for board in layer.boards}
        rows = {key: known[key] for key in order if key in known}
        bench.LAYERS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        bench.RESULT.with_suffix(".md").write_text(bench.markdown(json.loads(bench.RESULT.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
