#!/usr/bin/env python3
"""Quantize MLPerf Tiny's keyword spotter, measure it, and write the table of docs/quantize.md.

    scripts/quantize_table.py KEYWORDS [--models FOLDER]

KEYWORDS is the folder datasets/kws01 of EEMBC's energyrunner repository; the model is read from FOLDER
(../shared/models). The models are calibrated on the first 200 of the 1,000 samples, and tested on the others.
"""

import argparse
import csv
import logging
import sys
import tempfile
from pathlib import Path

import bench
import numpy as np
from layer_models import M4

import mtool
from mtool.commands import Deployment, Scheme

ROOT = Path(__file__).parents[1]
MODELS = ROOT.parent / "shared" / "models"
HEAD = "| weights | top-1 (95% interval) | constants | instructions |\n|---|---|---|---|\n"
SCALE, ZERO = 0.5847029, 83  # of the int8 model's input, as which the samples are stored
CALIBRATED = 200


def samples(folder: Path, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return all samples, in the order of the file, and their classes."""
    rows = list(csv.reader((folder / "y_labels.csv").read_text().splitlines()))
    data = [np.frombuffer((folder / name).read_bytes(), np.int8).reshape(shape) for name, *_ in rows]
    labels = np.array([int(label) for *_, label in rows])
    return ((np.array(data) - np.float32(ZERO)) * np.float32(SCALE)).astype(np.float32), labels


def row(name: str, path: Path, data: Path, folder: Path) -> list[str]:
    """Return a row of the table; that of the float model has its accuracy alone."""
    found = mtool.evaluate(path, data, deployment=Deployment(folder / f"{name}_host")).figures
    assert found.interval is not None
    low, high = found.interval
    top = [name, f"{found.by_name['top1']:.1%} ({low:.1%} to {high:.1%})"]
    if name == "float":
        return [*top, "", ""]
    cost = mtool.bench(path, board=M4, number=1, repeat=1, deployment=Deployment(folder / name)).as_json()
    constants = mtool.compile(path, board=M4).manifest.constant_bytes
    return [*top, f"{constants / 1024:.1f} KB", f"{cost['instructions'] / 1e6:.2f} M"]


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keywords", type=Path)
    parser.add_argument("--models", type=Path, default=MODELS)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    model = given.models / "kws" / "kws_float32.onnx"
    shape = mtool.compile(model, board="host").manifest.inputs[0].shape
    with tempfile.TemporaryDirectory(prefix="mtool-quantize-table-") as name:
        folder = Path(name)
        x, labels = samples(given.keywords, shape)
        np.savez(folder / "a.npz", x0=x[:CALIBRATED])
        np.savez(folder / "b.npz", x0=x[CALIBRATED:], labels=labels[CALIBRATED:])
        rows = [row("float", model, folder / "b.npz", folder)]
        for weights in ("int8", "int4", "int2"):
            made = folder / f"{weights}.onnx"
            mtool.quantize(model, folder / "a.npz", output=made, scheme=Scheme(weights=weights))
            rows.append(row(weights, made, folder / "b.npz", folder))
    bench.replace_table(ROOT / "docs" / "quantize.md", HEAD, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
