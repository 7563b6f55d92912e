"""Random networks with an open dimension: right at every size, or refused."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST
from onnx import helper, numpy_helper
from single_pass import DSP, MVE
from sized import check

from mtool.base.errors import ModelError

N = "n"
Shape = tuple[int | str, ...]
SEEDS = 8


class Network:
    """A network that grows by an operator; `shapes` has its tensors, in which N is the open size."""

    def __init__(self, seed: int, *, quantized: bool) -> None:
        self.chance, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.quantized = quantized
        self.first: Shape = self.chance.choice([(N, 6), (1, N, 6), (N, 2, 5), (1, 4, N), (N, 3, 5, 4), (1, 3, N, 4)])
        self.shapes: dict[str, Shape] = {"x": self.first}

    def constant(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(data)
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(-0.6, 0.6, shape).astype(np.float32))

    def op(self, op: str, inputs: list[str], shape: Shape, **attrs: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=out, **attrs))
        if self.quantized and op in ("MatMul", "Conv", "Add", "Relu"):
            grid = [self.constant(np.float32(0.0371)), self.constant(np.int8(-5))]
            self.nodes.append(helper.make_node("QuantizeLinear", [out, *grid], [f"{out}q"], name=f"{out}q"))
            self.nodes.append(helper.make_node("DequantizeLinear", [f"{out}q", *grid], [f"{out}d"], name=f"{out}d"))
            out = f"{out}d"
        self.shapes[out] = shape
        return out

    def weights(self, *shape: int) -> str:
        """Return weights, of int8 behind a dequantization in a quantized network."""
        if not self.quantized:
            return self.floats(*shape)
        parts = [self.rng.integers(-127, 128, shape).astype(np.int8), np.float32(0.00831), np.int8(0)]
        names = [self.constant(part) for part in parts]
        self.nodes.append(helper.make_node("DequantizeLinear", names, [f"{names[0]}f"], name=names[0]))
        return f"{names[0]}f"

    def grow(self) -> None:
        """Append an operator to some tensor."""
        source = self.chance.choice(list(self.shapes)[-3:])
        shape = self.shapes[source]
        axis = self.chance.randrange(len(shape))
        kind = self.chance.choice(["unary", "add", "dense", "turn", "softmax", "reduce", "join", "cut", "flat", "conv",
                                   "alike", "sum", "pick", "pad"])  # fmt: skip
        last = shape[-1]
        if kind == "unary":
            self.op(self.chance.choice(["Relu", "Sigmoid", "Neg", "Erf"]), [source], shape)
        elif kind == "add":
            fixed = [size if isinstance(size, int) else 1 for size in shape]
            same = [value for value, other in self.shapes.items() if other == shape]
            self.op("Add", [source, self.chance.choice([self.floats(*fixed), *same])], shape)
        elif kind == "dense" and isinstance(last, int) and last <= 40:
            self.op("MatMul", [source, self.weights(last, 7)], (*shape[:-1], 7))
        elif kind == "turn":
            perm = list(range(len(shape)))
            self.chance.shuffle(perm)
            self.op("Transpose", [source], tuple(shape[place] for place in perm), perm=perm)
        elif kind == "softmax":
            self.op("Softmax", [source], shape, axis=axis)
        elif kind == "reduce":
            op = self.chance.choice(["ReduceMax", "ReduceMean", "ReduceMin"])
            self.op(op, [source], (*shape[:axis], 1, *shape[axis + 1 :]), axes=[axis], keepdims=1)
        elif kind == "join" and isinstance(shape[axis], int):
            self.op("Concat", [source, source], (*shape[:axis], int(shape[axis]) * 2, *shape[axis + 1 :]), axis=axis)
        elif kind == "cut" and isinstance(shape[axis], int) and int(shape[axis]) > 2:
            bounds = [self.constant(np.array([number])) for number in (1, int(shape[axis]) - 1, axis)]
            self.op("Slice", [source, *bounds], (*shape[:axis], int(shape[axis]) - 2, *shape[axis + 1 :]))
        elif kind == "flat" and len(shape) > 2 and isinstance(shape[-2], int) and isinstance(last, int):
            wanted = [0] * (len(shape) - 2) + [-1]
            made = self.op("Reshape", [source, self.constant(np.array(wanted))], (*shape[:-2], shape[-2] * last))
            assert made
        elif kind == "conv" and len(shape) > 2 and isinstance(shape[1], int) and shape[1] <= 14:
            space = len(shape) - 2
            size, filters = self.chance.choice([1, 3]), self.weights(4, shape[1], *[self.chance.choice([1, 3])] * space)
            taps = int(self.constants[filters.removesuffix("f")].shape[-1])
            stride = self.chance.choice([1, 1, 2]) if size == 1 and not any(s == N for s in shape[2:]) else 1
            out = tuple(s if s == N else -(-int(s) // stride) for s in shape[2:])
            pads = [taps // 2] * space * 2
            self.op("Conv", [source, filters], (shape[0], 4, *out), pads=pads, strides=[stride] * space)
        elif kind == "alike" and len(shape) > 1 and shape[-2] == N and isinstance(last, int):
            perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            turned = self.op("Transpose", [source], (*shape[:-2], last, N), perm=perm)
            self.op("MatMul", [source, turned], (*shape[:-2], N, N))
        elif kind == "sum":
            self.op("CumSum", [source, self.constant(np.array(axis))], shape)
        elif kind == "pick" and isinstance(shape[axis], int):
            ids = self.constant(self.rng.integers(0, shape[axis], 3))
            self.op("Gather", [source, ids], (*shape[:axis], 3, *shape[axis + 1 :]), axis=axis)
        elif kind == "pad" and isinstance(shape[axis], int):
            pads = np.zeros(2 * len(shape), np.int64)
            pads[[axis, len(shape) + axis]] = 1, 2
            self.op("Pad", [source, self.constant(pads)], (*shape[:axis], int(shape[axis]) + 3, *shape[axis + 1 :]))

    def proto(self) -> onnx.ModelProto:
        read = {name for one in self.nodes for name in one.input}
        leaves = [value for value in self.shapes if value not in read and value != "x"][-3:] or [list(self.shapes)[-1]]
        types = onnx.TensorProto
        values = {name: helper.make_tensor_value_info(name, types.FLOAT, list(self.shapes[name])) for name in leaves}
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", types.FLOAT, list(self.first))], list(values.values()),
            [numpy_helper.from_array(data, name) for name, data in self.constants.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def network(seed: int, *, quantized: bool = False) -> onnx.ModelProto | None:
    """Return a network whose outputs are computed; None: nothing has grown."""
    net = Network(seed, quantized=quantized)
    for _ in range(9):
        net.grow()
    return net.proto() if net.nodes and len(net.shapes) > 1 else None


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.product(2)
def test_every_size_is_right_or_all_are_refused(seed: int, quantized: bool, tmp_path: Path) -> None:
    proto = network(seed, quantized=quantized)
    if proto is None:
        pytest.skip("nothing has grown")
    target = [HOST, DSP, MVE][seed % 3]
    try:
        check(proto, {N: 11}, tmp_path, target, tolerance=0.08 if quantized else 2e-5)
    except ModelError as refused:
        assert "run-time sizes" in str(refused) or "known at run time" in str(refused)
