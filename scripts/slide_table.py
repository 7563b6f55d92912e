#!/usr/bin/env python3
"""Count a Cortex-M4's instructions for whole windows and for hops, and write the table of docs/state.md.

    scripts/slide_table.py [--models FOLDER]

MLPerf Tiny's wake word is read from FOLDER (../shared/models); the other models are made here, with random weights.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import aot_table
import bench
import numpy as np
import onnx
from layer_models import M4, Qdq

from mtool import commands

PAGE = Path(__file__).parents[1] / "docs" / "state.md"
MODELS = Path(__file__).parents[2] / "shared" / "models"
COLUMNS = ("int8, Cortex-M4", "window, hop", "instructions, whole", "a hop", "arena, whole", "by hops")
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"
STEP = 0.11  # of all values between


class Layers(Qdq):
    """A network whose values are [1, channels, rows, 1]."""

    def rows(self, rows: int, channels: int) -> str:
        """Add an input of rows."""
        return self.node("Transpose", [self.input((1, rows, 1, channels))], perm=[0, 3, 1, 2])

    def convolved(self, value: str, inputs: int, outputs: int, taps: int, dilation: int = 1, group: int = 1) -> str:
        """Return the values of a convolution over rows with a ReLU, quantized."""
        weights = self.weights((outputs, inputs // group, taps, 1))
        made = self.node("Conv", [value, *weights], group=group, dilations=[dilation, 1], kernel_shape=[taps, 1])
        return self.stepped(self.node("Relu", [made]))

    def stepped(self, value: str) -> str:
        """Return values that are quantized."""
        return self.dequantized(self.quantized(value, STEP), STEP)

    def last(self, value: str, rows: int, least: int) -> str:
        """Return the rows from `least` on."""
        return self.node("Slice", [value, *(self.constant(np.int64([one])) for one in (least, rows, 2))])

    def done(self, value: str) -> onnx.ModelProto:
        """Return the model with one quantized output."""
        return self.model(self.quantized(value, STEP))


def temporal(window: int) -> onnx.ModelProto:
    """Return 6 causal convolutions of 32 channels with dilations of 1 to 32, of which the last row is the result."""
    net, rows = Layers(), window
    value, channels = net.rows(window, 16), 16
    for dilation in (1, 2, 4, 8, 16, 32):
        value, channels, rows = net.convolved(value, channels, 32, 3, dilation), 32, rows - 2 * dilation
    return net.done(net.last(value, rows, rows - 1))


def mask(window: int) -> onnx.ModelProto:
    """Return a mask of 257 bins: depthwise convolutions over frames, with residuals."""
    net, rows = Layers(), window
    value = net.convolved(net.rows(window, 257), 257, 64, 1)
    for dilation in (1, 2, 4):
        made = net.convolved(net.convolved(value, 64, 64, 3, dilation, 64), 64, 64, 1)
        value = net.stepped(net.node("Add", [made, net.last(value, rows, 2 * dilation)]))
        rows -= 2 * dilation
    return net.done(net.node("Sigmoid", [net.convolved(net.last(value, rows, rows - 1), 64, 257, 1)]))


def gestures(window: int) -> onnx.ModelProto:
    """Return 3 convolutions over an accelerometer's rows, with pooling, and a dense layer."""
    net, value, channels = Layers(), "", 3
    value = net.rows(window, channels)
    for outputs in (8, 16, 16):
        value = net.convolved(value, channels, outputs, 5)
        value, channels = net.node("MaxPool", [value], kernel_shape=[2, 1], strides=[2, 1]), outputs
    flat = net.node("Flatten", [value])
    rows = 12  # of 128: ((128 - 4) / 2 - 4) / 2 - 4) / 2
    return net.done(net.node("Gemm", [flat, *net.weights((4, rows * channels))], transB=1))


ROWS = {
    "MLPerf Tiny's wake word": ("sww/str_ww_ref_model.tflite", "input_1", 30, 1),
    "micro_speech (padded)": (aot_table.micro_speech(), "x", 49, 2),
    "noise mask, 257 bins, 3 residual blocks": (mask(32), "x0", 32, 1),
    "temporal convolutions, 6 layers": (temporal(128), "x0", 128, 1),
    "gestures, 3 convolutions": (gestures(128), "x0", 128, 16),
}


def row(models: Path, name: str, model: str | onnx.ModelProto, value: str, window: int, hop: int) -> list[str]:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="mtool-slide-") as folder:
        path = models / model if isinstance(model, str) else Path(folder) / "model.onnx"
        if not isinstance(model, str):
            onnx.save(model, path)
        costs = []
        for slides in ((), f"{value}={hop}"):
            options = commands.Options(slides=slides, name="model")
            deployment = commands.Deployment(Path(folder) / f"project{len(costs)}")
            costs.append(commands.bench(path, board=M4, number=1, repeat=1, options=options, deployment=deployment))
    counts = [f"{cost.as_json()['instructions']:,.0f}" for cost in costs]
    return [name, f"{window}, {hop}", *counts, *(f"{cost.as_json()['arena_bytes']:,} B" for cost in costs)]


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=MODELS)
    models = parser.parse_args().models
    logging.disable(logging.INFO)
    bench.replace_table(PAGE, HEAD, [row(models, name, *one) for name, one in ROWS.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
