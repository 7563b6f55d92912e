"""Count the instructions of single layers on emulated boards, beside CMSIS-NN: docs/layers.json and a table.

    scripts/bench_layers.py [NAME ...] [--update] [--cmsis-nn FOLDER]

NAME is a part of a layer's name (default: all). --update writes docs/layers.json, from which scripts/bench.py writes
the table of docs/benchmarks.md; without it the counts are only printed, beside those of docs/layers.json.
--cmsis-nn measures the layers that mtool's backend gives to CMSIS-NN too (CMSIS_NN_DIR, if set).
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

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from layer_models import CORES, LAYERS, Layer  # noqa: E402

from mtool import commands  # noqa: E402

RESULT = ROOT / "docs" / "layers.json"
Row = dict[str, Any]


def measure(layer: Layer, board: str, backend: str = "") -> float | None:
    """Return the instructions of a unit on a board; None where a backend does not take the layer."""
    made = layer.make()
    with tempfile.TemporaryDirectory(prefix="mtool-layers-") as folder:
        path = Path(folder) / ("layer.tflite" if isinstance(made, bytes) else "layer.onnx")
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        rounding = "tflite" if isinstance(made, bytes) else "onnx"
        backends = (commands.BackendSpec(backend, optional=True),) if backend else ()
        options = commands.Options(rounding=rounding, backends=backends, tolerance=2 if backend else 0)
        deployment = commands.Deployment(Path(folder) / "project")
        if backend and not any(
            claim.backend for claim in commands.compile(path, board=board, options=options).manifest.claims
        ):
            return None
        cost = commands.bench(path, board=board, number=1, repeat=1, options=options, deployment=deployment)
    return float(cost.as_json()["instructions"]) / layer.units


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--cmsis-nn", default=os.environ.get("CMSIS_NN_DIR", ""))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    logging.disable(logging.INFO)
    rows: dict[str, Row] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    chosen = [one for one in LAYERS if not given.names or any(name in one.name for name in given.names)]
    work = [(layer, board) for layer in chosen for board in layer.boards]
    with ThreadPoolExecutor(given.jobs) as pool:
        counts = pool.map(lambda one: measure(*one), work)
        for (layer, board), count in zip(work, counts, strict=True):
            key = f"{layer.name} / {CORES[board]}"
            row = rows.setdefault(key, {"unit": layer.unit, "before": count})
            print(f"{key:50} {row.get('after', row['before']):12,.2f} → {count:12,.2f} {layer.unit}", flush=True)
            row["after"], row["bound"] = count, layer.bound.get(board)
    if given.update:
        RESULT.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
