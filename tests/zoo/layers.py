"""Models with random weights that have the layers of public networks, from the table of scripts/layers_table.py."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
from onnx import helper

TABLE = Path(__file__).with_suffix(".tsv")
MOST = 4_000_000  # elements of one tensor of a layer: larger ones fit on no board
F = np.float32


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of the table; `input` is [N,C,H,W], or as the operator has it."""

    op: str
    type: str
    input: tuple[int, ...]
    outputs: int
    window: dict[str, list[int]]
    group: int
    residual: bool

    @property
    def made(self) -> list[int]:
        """The spatial sizes of a convolution's output."""
        window, rank = self.window, len(self.input) - 2
        pads = [window["pads"][n] + window["pads"][n + rank] for n in range(rank)]
        sizes = zip(self.input[2:], pads, window["kernel_shape"], window["strides"], window["dilations"], strict=True)
        return [(size + pad - (taps - 1) * step - 1) // stride + 1 for size, pad, taps, stride, step in sizes]


def layers() -> list[Layer]:
    """Return the table's layers, without those too large for any board."""
    with TABLE.open(newline="") as file:
        found = [_layer(row) for row in csv.DictReader(file, delimiter="\t")]
    return [one for one in found if np.prod(one.input) < MOST]


def _layer(row: dict[str, str]) -> Layer:
    names = {"kernel": "kernel_shape", "strides": "strides", "pads": "pads", "dilations": "dilations"}
    window = {attribute: _sizes(row[column]) for column, attribute in names.items() if row[column]}
    if row["op"] == "AveragePool":
        window.pop("dilations")
    return Layer(
        op=row["op"],
        type=row["type"],
        input=tuple(_sizes(row["input"])),
        outputs=int(row["outputs"] or 0),
        window=window,
        group=int(row["group"] or 1),
        residual=row["residual"] == "1",
    )


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split("x")]


class _Model:
    """Nodes, inputs and constants as they come."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, tuple[type, Sequence[int]]] = {}
        self.constants: dict[str, Any] = {}
        self.outputs: list[str] = []

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = data
        return name

    def scale(self) -> list[str]:
        """Return a scale of int8 and its zero point, at random."""
        scale, zero_point = F(self.rng.uniform(0.01, 0.1)), np.int8(self.rng.integers(-128, 128))
        return [self.constant(scale), self.constant(zero_point)]

    def input(self, shape: Sequence[int], *, quantized: bool) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (np.int8 if quantized else F, shape)
        return self.node("DequantizeLinear", [name, *self.scale()]) if quantized else name

    def weights(self, shape: Sequence[int], axis: int, *, quantized: bool) -> str:
        if not quantized:
            return self.constant(self.rng.normal(size=shape).astype(F))
        data = self.constant(self.rng.integers(-127, 128, shape).astype(np.int8))
        scales = self.constant(self.rng.uniform(0.001, 0.01, shape[axis]).astype(F))
        points = self.constant(np.zeros(shape[axis], np.int8))
        return self.node("DequantizeLinear", [data, scales, points], axis=axis)

    def output(self, value: str, *, quantized: bool) -> str:
        value = self.node("QuantizeLinear", [value, *self.scale()]) if quantized else value
        self.outputs.append(value)
        return value


def model(rows: Sequence[Layer], seed: int) -> onnx.ModelProto:
    """Return a model of some layers beside each other, each with inputs of its own."""
    made = _Model(seed)
    for row in rows:
        _add(made, row)
    return graphs.model(made.nodes, made.inputs, made.outputs, made.constants, opset=19)


def _add(made: _Model, row: Layer) -> None:
    quantized = row.type == "int8"
    x = made.input(row.input, quantized=quantized)
    if row.op in ("Conv", "ConvTranspose"):
        channels, kernel = row.input[1], row.window["kernel_shape"]
        is_conv = row.op == "Conv"
        shape = (row.outputs, channels // row.group) if is_conv else (channels, row.outputs // row.group)
        w = made.weights([*shape, *kernel], 0 if is_conv else 1, quantized=quantized and (is_conv or row.group == 1))
        bias = [] if quantized else [made.constant(made.rng.normal(size=row.outputs).astype(F))]
        y = made.node(row.op, [x, w, *bias], group=row.group, **row.window)
        if row.residual:
            if quantized:
                by = made.scale()
                y = made.node("DequantizeLinear", [made.node("QuantizeLinear", [y, *by]), *by])
            y = made.node("Add", [y, made.input((row.input[0], row.outputs, *row.made), quantized=quantized)])
        else:
            y = made.node("Relu", [y])
    elif row.op in ("MaxPool", "AveragePool"):
        y = made.node(row.op, [x], **row.window)
    elif row.op == "MatMul":
        y = made.node("MatMul", [x, made.weights([row.input[-1], row.outputs], 1, quantized=quantized)])
    elif row.op in ("Add", "Mul"):
        y = made.node(row.op, [x, made.input(row.input, quantized=quantized)])
    elif row.op == "Softmax":
        y = made.node("Softmax", [x], axis=-1)
    else:
        gates, hidden, size = {"LSTM": 4, "GRU": 3}[row.op], row.outputs, row.input[-1]
        shapes = ((1, gates * hidden, size), (1, gates * hidden, hidden))
        weights = [made.weights(shape, 0, quantized=False) for shape in shapes]
        y = made.node(row.op, [x, *weights], hidden_size=hidden)
    made.output(y, quantized=quantized)
