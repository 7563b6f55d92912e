"""Padding moves into the windows that read it, if all support it; the results are onnxruntime's and LiteRT's."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import amount
import interpreter
import networks
import numpy as np
import onnx
import pytest
from graphs import HOST, Array, compiled, model, reference, run_c
from one_firmware import Case, failures
from onnx import helper
from single_pass import DSP, MVE
from tflite_cases import compute
from tflite_models import Op, T, litert
from tflite_models import model as tflite_model

from mtool.compiler.frontend import ModelOptions, load
from mtool.compiler.kernels.target import Target
from mtool.compiler.passes.fold_pads import fold_pads
from mtool.compiler.passes.lower import lower

F = np.float32
SCALE = F(2**-4)  # products and sums of such are exact, so that nothing is rounded but the results
POINTS: Mapping[Any, int] = {np.int8: -5, np.uint8: 121, np.int16: 3}
LOWEST = float(np.finfo(F).min)


class Padded:
    """Networks of pads and what reads them, in one model, in float32 or behind QDQ of a type."""

    def __init__(self, dtype: Any, seed: int = 0) -> None:
        self.dtype, self.chance, self.rng = dtype, random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, tuple[Any, Sequence[int]]] = {}
        self.outputs: list[str] = []
        self.constants: dict[str, Any] = {}
        if dtype is not F:
            self.constants = {"s": SCALE, "z": dtype(POINTS[dtype]), "ys": F(2**-2), "ws": F(2**-6), "wz": np.int8(0)}
            self.constants["none"] = np.int32(0)

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attrs))
        return f"v{len(self.nodes) - 1}"

    def constant(self, data: Any) -> str:
        self.constants[f"c{len(self.constants)}"] = data
        return f"c{len(self.constants) - 1}"

    def source(self, shape: Sequence[int]) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.dtype, shape
        return name if self.dtype is F else self.op("DequantizeLinear", name, "s", "z")

    def stored(self, value: str, scale: str = "s") -> str:
        if self.dtype is F:
            return value
        return self.op("DequantizeLinear", self.op("QuantizeLinear", value, scale, "z"), scale, "z")

    def pad(self, value: str, pads: Sequence[int], number: float = 0.0) -> str:
        """Append a Pad of height and width: top, left, bottom, right."""
        top, left, bottom, right = pads
        whole = np.array([0, 0, top, left, 0, 0, bottom, right])
        return self.op("Pad", value, self.constant(whole), self.constant(F(number)))

    def end(self, value: str) -> None:
        self.outputs.append(value if self.dtype is F else self.op("QuantizeLinear", value, "ys", "z"))

    def conv(self, value: str, shape: Sequence[int], op: str = "Conv", **attrs: Any) -> str:
        weights = self.rng.integers(-9, 10, shape)
        if self.dtype is F:
            return self.op(op, value, self.constant((weights / 64).astype(F)), **attrs)
        weight = self.op("DequantizeLinear", self.constant(weights.astype(np.int8)), "ws", "wz")
        return self.op(op, value, weight, **attrs)

    def read(self, kind: str, value: str, channels: int, size: Sequence[int]) -> None:
        """Let a window of a kind read a value, if it fits."""
        chance = self.chance
        kernel = [2, 2] if kind == "AveragePool" else [chance.choice([1, 3]), chance.choice([1, 2, 3])]
        attrs: dict[str, Any] = {"strides": [chance.choice([1, 1, 2]), chance.choice([1, 2, 3])]}
        if kind == "Transposed":
            attrs["pads"] = [chance.randint(0, 4) for _ in range(4)]
            ends = [(n - 1) * s + k for n, s, k in zip(size, attrs["strides"], kernel, strict=True)]
        else:
            if kind != "AveragePool":
                attrs["dilations"] = [chance.choice([1, 1, 2]), 1]
            reach = [(k - 1) * d + 1 for k, d in zip(kernel, attrs.get("dilations", [1, 1]), strict=True)]
            if chance.random() < 0.4:
                attrs["pads"] = [chance.randrange(kernel[n % 2]) for n in range(4)]
            if kind == "AveragePool":
                attrs["count_include_pad"] = chance.randint(0, 1)
            ends = [2 - n + k - 1 for n, k in zip(size, reach, strict=True)]
        pads = attrs.get("pads", [0] * 4)
        room = [end - pads[n] - pads[2 + n] for n, end in enumerate(ends)]
        if (min(room) < 1) if kind == "Transposed" else (max(room) > 1):
            return
        outputs = channels if kind == "Depthwise" else 4
        if kind.endswith("Pool"):
            made = self.op(kind, value, kernel_shape=kernel, **attrs)
        elif kind == "Transposed":
            made = self.conv(value, (channels, outputs, *kernel), "ConvTranspose", **attrs)
        else:
            group = channels if kind == "Depthwise" else 1
            made = self.conv(value, (outputs, channels // group, *kernel), group=group, **attrs)
        self.end(made)

    def draw(self) -> None:
        """Append a pad of any kind, and what reads it."""
        chance, channels = self.chance, self.chance.choice([1, 3, 4, 8])
        size = [chance.randint(4, 9), chance.randint(4, 9)]
        value = self.source((1, channels, *size))
        if chance.random() < 0.5:
            value = self.stored(self.op("Relu", value))
        pads = [chance.choice([0, 0, 1, 1, 1, 2, 3, chance.randint(3, 6)]) for _ in range(4)]
        number = chance.choice([*[0.0] * 8, -0.5, LOWEST])
        kinds = ["Conv", "Conv", "Depthwise", "Depthwise", "MaxPool", "AveragePool", "Transposed"]
        kinds = ["MaxPool"] if number == LOWEST else kinds
        turned = chance.random() < 0.3
        if turned:
            value = self.op("Transpose", value, perm=[0, 2, 3, 1])
            whole = np.array([0, *pads[:2], 0, 0, *pads[2:], 0])
            padded = self.op("Pad", value, self.constant(whole), self.constant(F(number)))
        else:
            padded = self.pad(value, pads, number)
        if chance.random() < 0.3:
            padded = self.stored(padded)
        if chance.random() < 0.1:
            self.end(self.op("Add", padded, padded))
        size = [n + pads[dim] + pads[2 + dim] for dim, n in enumerate(size)]
        for _ in range(chance.choice([1, 1, 2])):
            image = self.op("Transpose", padded, perm=[0, 3, 1, 2]) if turned else padded
            self.read(chance.choice(kinds), image, channels, size)

    def proto(self) -> onnx.ModelProto:
        used = {name for node in self.nodes for name in node.input}
        constants = {name: np.asarray(data) for name, data in self.constants.items() if name in used}
        return model(self.nodes, self.inputs, self.outputs, constants, opset=21)

    def joined(self) -> onnx.ModelProto:
        """Return a model whose one output has all of them."""
        flat = self.constant(np.array([-1]))
        self.outputs = [self.op("Concat", *(self.op("Reshape", one, flat) for one in self.outputs), axis=0)]
        return self.proto()

    def feeds(self) -> dict[str, Array]:
        found = {}
        for name, (dtype, shape) in self.inputs.items():
            limits = None if dtype is F else np.iinfo(dtype)
            low, high = (limits.min, limits.max) if limits and limits.bits == 8 else (-999, 999)
            drawn = self.rng.integers(low, high, shape, endpoint=True)
            found[name] = (drawn / 256).astype(F) if dtype is F else drawn.astype(dtype)
        return found


def pads_of(graph: Any) -> int:
    return sum(node.op == "Pad" for node in graph.nodes)


def assert_equal(mine: Sequence[Array], theirs: Sequence[Array], seed: object) -> None:
    for one, other in zip(mine, theirs, strict=True):
        if one.dtype == F:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(seed))
        else:
            np.testing.assert_array_equal(one, other, err_msg=str(seed))


@pytest.mark.parametrize("dtype", amount.of([F, *POINTS], [F, np.int8]))
def test_random_windows_are_onnxruntimes(dtype: Any) -> None:
    before = after = 0
    for seed in range(amount.of(100, 3)):
        net = Padded(dtype, seed)
        for _ in range(6):
            net.draw()
        proto, feeds = net.proto(), net.feeds()
        graph = networks.imported(proto)
        folded = fold_pads(graph)
        before, after = before + pads_of(graph), after + pads_of(folded)
        assert_equal(interpreter.run(lower(folded), [feeds])[0], reference(proto, feeds), seed)
    assert after < 0.9 * before  # of many, something that reads them can't pad, or windows lie in the padding alone


def single(dtype: Any, *steps: str) -> Padded:
    """Return a network of one image, a few steps in front of what reads it, and the readers of what they make."""
    net = Padded(dtype)
    value, padded = net.source((1, 4, 6, 7)), ""
    for step in steps:
        name, _, text = step.partition(" ")
        numbers = [int(number) for number in text.split()]
        if name == "relu":
            value = net.stored(net.op("Relu", value))
        elif name == "stored":
            value = net.stored(value)
        elif name == "requantized":
            value = net.stored(value, "ys")
        elif name == "wide":
            value = net.op("Pad", value, net.constant(np.array([0, 0, 0, 0, 0, 1, 0, 0])))
        elif name in ("pad", "low", "one"):
            padded = value = net.pad(value, numbers, {"pad": 0.0, "low": LOWEST, "one": 1.0}[name])
        elif name == "turn":
            value = net.op("Transpose", value, perm=numbers)
        elif name == "view":
            shape = net.op("Unsqueeze", value, net.constant(np.array([0])))
            value = net.op("Squeeze", shape, net.constant(np.array([0])))
        elif name == "conv":
            net.end(net.conv(value, (4, *numbers)))
        elif name == "depthwise":
            net.end(net.conv(value, (4, 1, 3, 3), group=4, strides=[2, 2], pads=numbers or [0] * 4))
        elif name == "transposed":
            net.end(net.conv(value, (4, 4, 3, 3), "ConvTranspose", strides=[2, 2], pads=numbers))
        elif name == "max":
            net.end(net.op("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], pads=numbers or [0] * 4))
        elif name == "average":
            pads, count = numbers[1:] or [0] * 4, numbers[0]
            net.end(net.op("AveragePool", value, kernel_shape=[2, 2], pads=pads, count_include_pad=count))
        elif name == "add":
            net.end(net.op("Add", value, value))
        else:
            net.outputs.append(padded)
    return net


CASES = {
    "asymmetric": (0, "pad 0 0 1 1", "depthwise"),
    "its own pads too": (0, "pad 0 1 2 0", "depthwise 1 0 0 1"),
    "larger than the kernel": (0, "pad 5 4 6 7", "conv 4 3 3"),
    "twice": (0, "pad 1 0 0 1", "pad 0 1 1 0", "conv 4 3 3"),
    "quantized again": (0, "pad 1 1 1 1", "stored", "depthwise"),
    "on another grid": (0, "pad 1 1 1 1", "requantized", "conv 4 3 3"),
    "turned and viewed": (0, "turn 0 2 3 1", "turn 0 3 1 2", "pad 1 2 3 4", "turn 0 1 3 2", "view", "conv 4 3 3"),
    "several readers": (0, "pad 1 1 1 1", "conv 4 1 1", "depthwise", "average 0"),
    "behind relu": (0, "relu", "pad 1 1 0 2", "max"),
    "the lowest": (0, "low 1 1 1 1", "max"),
    "average": (0, "pad 1 0 1 0", "average 0"),
    "average that counts": (0, "pad 1 0 1 0", "average 1 0 1 0 1"),
    "transposed": (0, "pad 1 1 2 1", "transposed 2 3 2 3"),
    "not the lowest": (1, "pad 1 1 1 1", "max"),
    "a maximum of padding": (1, "low 3 0 0 0", "max"),
    "an average that does not count": (1, "pad 1 0 1 0", "average 0 0 1 1 0"),
    "an average of padding": (1, "pad 2 0 0 0", "average 0"),
    "transposed beyond its own": (1, "pad 1 1 1 1", "transposed 1 1 1 1"),
    "cropped": (1, "pad -1 0 1 1", "conv 4 3 3"),
    "channels": (1, "wide", "conv 5 3 3"),
    "not zero": (1, "one 1 1 1 1", "conv 4 3 3"),
    "a sum reads it": (1, "pad 1 1 1 1", "conv 4 3 3", "add"),
    "an output": (1, "pad 1 1 1 1", "conv 4 3 3", "output"),
}


@pytest.mark.parametrize("dtype", amount.of([F, *POINTS], [F, np.int8]))
def test_what_goes_and_what_stays(dtype: Any) -> None:
    for name, (left, *steps) in CASES.items():
        net = single(dtype, *steps)
        proto, feeds = net.proto(), net.feeds()
        folded = fold_pads(networks.imported(proto))
        assert pads_of(folded) == left, name
        assert_equal(interpreter.run(lower(folded), [feeds])[0], reference(proto, feeds), name)


TARGETS = [HOST, DSP, MVE]


@pytest.mark.parametrize("dtype", amount.of([F, *POINTS], [np.int8]))
@pytest.mark.parametrize("target", amount.of(TARGETS, [DSP]), ids=lambda target: target.cpu)
def test_the_c_of_random_windows_gives_the_same(dtype: Any, target: Target, tmp_path: Path) -> None:
    for seed in range(amount.of(6, 1)):
        net = Padded(dtype, 500 + seed)
        for _ in range(amount.of(12, 5)):
            net.draw()
        proto, feeds = net.proto(), net.feeds()
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert_equal(run_c(compiled(proto, target), feeds, folder), reference(proto, feeds), seed)


def tflite(dtype: Any, seed: int) -> tuple[bytes, dict[str, Array]]:
    """Return a .tflite model of PADs, each in front of an operator of its own."""
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    zero, signed = {np.int8: -128, np.uint8: 0}.get(dtype, 0), dtype is not np.uint8
    tensors: list[T] = []
    ops: list[Op] = []
    plain = {"StrideH": 2, "StrideW": 1, "Padding": 1}  # VALID
    weights, bias = np.int8 if dtype is np.int16 else dtype, "b"
    sums = {F: F, np.int16: np.int64}.get(dtype, np.int32)
    tensors.append(T(bias, [4], sums, None if dtype is F else 0.000625, data=np.arange(4)))

    def t(name: str, shape: Sequence[int], scale: float = 0.0625, point: int = zero) -> str:
        tensors.append(T(name, shape, dtype, None if dtype is F else scale, point))
        return name

    def w(name: str, shape: Sequence[int]) -> str:
        data = rng.standard_normal(shape) if dtype is F else rng.integers(-100 if signed else 0, 100, shape)
        tensors.append(T(name, shape, weights, None if dtype is F else 0.01, 0, 0, data.astype(weights)))
        return name

    for kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D", "TRANSPOSE_CONV"):
        pads = [[0, 0], *([chance.randint(0, 1 + (chance.random() < 0.3)) for _ in "ab"] for _ in "hw"), [0, 0]]
        point = zero if kind == "MAX_POOL_2D" or dtype is np.int16 or dtype is F else zero + 9
        height, width = 6 + sum(pads[1]), 7 + sum(pads[2])
        made = [1, (height - 3) // 2 + 1, width - 2, 4]
        x, padded, y = t(f"x{kind}", [1, 6, 7, 4], 0.0625, point), f"p{kind}", f"y{kind}"
        tensors.append(T(f"n{kind}", [4, 2], np.int32, data=np.asarray(pads)))
        operands = [x, f"n{kind}"]
        if chance.random() < 0.5:
            operands.append(f"v{kind}")
            value = 0 if dtype is F else point
            tensors.append(T(operands[-1], [1], dtype, None if dtype is F else 0.0625, point, data=np.asarray([value])))
        t(padded, [1, height, width, 4], 0.0625, point)
        ops.append(
            Op(
                "PADV2" if len(operands) > 2 else "PAD",
                operands,
                [padded],
                "PadV2Options" if len(operands) > 2 else "PadOptions",
            )
        )
        if kind == "CONV_2D":
            ops.append(Op(kind, [padded, w("w", [4, 3, 3, 4]), bias], [y], "Conv2DOptions", plain))
        elif kind == "DEPTHWISE_CONV_2D":
            ops.append(
                Op(
                    kind,
                    [padded, w("d", [1, 3, 3, 4]), bias],
                    [y],
                    "DepthwiseConv2DOptions",
                    {**plain, "DepthMultiplier": 1},
                )
            )
        elif kind == "TRANSPOSE_CONV":
            made = [1, 2 * height, width, 4]
            tensors.append(T("s", [4], np.int32, data=np.asarray(made)))
            ops.append(
                Op(kind, ["s", w("u", [4, 2, 3, 4]), padded], [y], "TransposeConvOptions", {**plain, "Padding": 0})
            )
        else:
            ops.append(Op(kind, [padded], [y], "Pool2DOptions", {**plain, "FilterHeight": 3, "FilterWidth": 3}))
        t(y, made, 0.0625 if "POOL" in kind else 0.4, point if "POOL" in kind else zero)
    names = [one.name for one in tensors if one.name.startswith("x")]
    feeds = {}
    for one in tensors:
        if one.name in names:
            low, high = (-999, 999) if dtype in (F, np.int16) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            drawn = rng.integers(low, high, one.shape, endpoint=True)
            feeds[one.name] = np.abs(drawn / 256).astype(F) if dtype is F else drawn.astype(dtype)
    return tflite_model(tensors, ops, names, [op.outputs[0] for op in ops if op.outputs[0][0] == "y"]), feeds


@pytest.mark.parametrize("dtype", amount.of([F, *POINTS], [np.int8]))
def test_windows_of_tflite_models_are_litert_s(dtype: Any, tmp_path: Path) -> None:
    """Its reference kernels' bytes; max pools of floats that may be negative keep their PAD, so two at most."""
    for seed in range(amount.of(8, 1)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        data, feeds = tflite(dtype, seed)
        (folder / "pads.tflite").write_bytes(data)
        rounding: Any = "onnx" if dtype is F else "tflite"
        graph = fold_pads(load(folder / "pads.tflite", ModelOptions(rounding=rounding)))
        assert pads_of(graph) <= 2
        assert_equal(compute(data, feeds, folder, rounding, HOST), litert(data, feeds, reference=True), seed)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "board"), [(HOST, None), (DSP, "mps2_an386"), (MVE, "mps3_an547")])
@pytest.mark.parametrize("dtype", [F, *POINTS])
def test_boards_give_the_numbers_of_onnxruntime(dtype: Any, target: Target, board: str | None, tmp_path: Path) -> None:
    cases = []
    for seed in range(12):
        net = Padded(dtype, 900 + seed)
        while len(net.outputs) < 2:
            net.draw()
        proto, feeds = net.joined(), net.feeds()
        results = model([helper.make_node("Identity", ["c"], ["y"])], {}, ["y"], {"c": reference(proto, feeds)[0]})
        plans = (compiled(one, target, f"{name}{seed}") for one, name in ((proto, "mine"), (results, "theirs")))
        cases.append(Case(*plans, feeds, 1e-5 if dtype is F else 0.0))
    assert failures(cases, tmp_path, board) == []
