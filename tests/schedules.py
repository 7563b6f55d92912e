"""Random models for each schedule of a core, planned by that schedule and by portable C."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import onnx
from graphs import lowered, model
from one_firmware import Case
from onnx import helper

from mtool.compiler.ir import Graph
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan

F = np.float32
SEEN = 60  # attempts after which a kind of model that never took what is still wanted is left out
BY_FLOATS = ("mve_columns", "mve_pixels")  # which do not round as TFLite does
HOST = Target("host", frozenset())
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
M7 = Target("cortex-m7", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
M3 = Target("cortex-m3", frozenset())
M0 = Target("cortex-m0plus", frozenset())
RV32 = Target("rv32imc", frozenset())
RVV = Target("rv32imc_zve32x", frozenset({"rvv"}))
AVR = Target("avr5", frozenset())
SIMD = Target("host", frozenset({"fpu", "simd"}))


def limits(rng: np.random.Generator, least: int) -> tuple[int, str]:
    """The output's zero point, and an activation."""
    zero = rng.choice([least, least, 0, 5, int(rng.integers(least, -least))])
    return int(zero), str(rng.choice(["none", "relu", "clip", "relu"]))


def count_of_outputs(rng: np.random.Generator) -> int:
    """Every remainder by 8: mostly the last of the groups in which schedules compute outputs is not whole."""
    return int(8 * rng.choice([0, 0, 1, 2]) + rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 8, 8]))


def without_multipliers(rng: np.random.Generator, outputs: int) -> int:
    """The first of the last channels whose scale is to be a power of two: all of the last group alone, or all, or none.

    Halves then go to the even neighbour on either side of a multiple, which no multiplier and offset gives
    (mtool/compiler/kernels/exact_scaling.py): the kernel has floats for these channels.
    """
    group = int(rng.choice([2, 4, 8]))
    return int(rng.choice([(outputs - 1) // group * group, 0, outputs], p=[0.4, 0.1, 0.5]))


def quantized(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    weights: Any,
    nodes: list[Any],
    residual: bool,
    out: tuple[int, ...],
    activations: type = np.int8,
    x_type: type | None = None,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """DequantizeLinear, what `nodes` compute from xf, wf, bf into c, an activation, perhaps an addition, and back."""
    outputs = weights.shape[0] if nodes[0].op_type == "Conv" else weights.shape[1]
    sums = np.abs(weights.astype(int)).sum(axis=tuple(range(1, weights.ndim)) if nodes[0].op_type == "Conv" else 0)
    w_scale = (rng.uniform(0.5, 2, outputs) * 255 / (sums + 1) / 60).astype(F)
    first = without_multipliers(rng, outputs)
    w_scale[first:] = np.exp2(np.rint(np.log2(w_scale[first:])))
    bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
    least = int(np.iinfo(activations).min)
    step = F(-128 / least)
    zero, act = limits(rng, least)
    axis = 0 if nodes[0].op_type == "Conv" else 1
    by_channel = np.moveaxis(weights, axis, 0)  # a view
    is_few = np.abs(weights.astype(int)).max() <= 8
    if rng.random() < 0.3 and not (is_few and weights.all()):  # as quantizers leave a dead channel
        dead = rng.integers(0, outputs)
        by_channel[dead], w_scale[dead] = 0, rng.uniform(0, 4e-8)
        bias[dead] = rng.choice([-1, 1]) * (2**30 - 77)
    if is_few:
        pass
    elif rng.random() < 0.3:  # a weight that has no negative
        by_channel.flat[rng.integers(0, by_channel.size)] = -128
    elif rng.random() < 0.3:  # many of them, which no pairing takes
        by_channel[rng.random(by_channel.shape) < 0.2] = -128
    x_type = x_type or activations
    x_zero = int(rng.choice([least, 0, int(rng.integers(least, -least))])) + (np.iinfo(x_type).max + 1 + least)
    constants: dict[str, Any] = {
        "xs": F(0.07) * step, "xz": x_type(x_zero), "w": weights, "ws": w_scale,
        "wz": np.zeros(outputs, weights.dtype), "b": bias,
        "bs": F(0.07) * step * w_scale, "bz": np.zeros(outputs, np.int32),
        "ys": F(0.07) * step, "yz": activations(zero), "lo": F(0), "hi": F(6),
        "rs": F(0.031) * step, "rz": activations(-3), "zs": F(0.083) * step, "zz": activations(-20),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
        *nodes,
        *([helper.make_node("Relu", ["c"], ["a"])] if act == "relu" else []),
        *([helper.make_node("Clip", ["c", "lo", "hi"], ["a"])] if act == "clip" else []),
        helper.make_node("QuantizeLinear", ["c" if act == "none" else "a", "ys", "yz"], ["q" if residual else "y"]),
    ]
    inputs: dict[str, Any] = {"x": (x_type, shape)}
    if residual:
        inputs["r"] = (activations, out)
        nodes += [
            helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["qf"]),
            helper.make_node("DequantizeLinear", ["r", "rs", "rz"], ["rf"]),
            helper.make_node("Add", ["qf", "rf"], ["s"]),
            helper.make_node("QuantizeLinear", ["s", "zs", "zz"], ["y"]),
        ]
    used = {name for node in nodes for name in node.input}
    known = {name: data for name, data in constants.items() if name in used}
    proto = model(nodes, inputs, ["y"], known, opset=17 if activations is np.int8 else 21)
    feeds = {name: rng.integers(least, -least, kind[1]).astype(kind[0]) for name, kind in inputs.items()}
    return proto, feeds


def unsigned(*arguments: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The same with an input of uint8."""
    return quantized(*arguments, x_type=np.uint8)


def sixteen(
    rng: np.random.Generator, shape: tuple[int, ...], weights: Any, nodes: list[Any], *rest: Any
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The same with int16 activations; weights are int8, or int16, with which most sums may leave 32 bits."""
    if rng.random() < 0.3:
        weights = (weights.astype(np.int32) * int(rng.choice([2, 255]))).astype(np.int16)
    return quantized(rng, shape, weights, nodes, *rest, activations=np.int16)


def real(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    weights: Any,
    nodes: list[Any],
    residual: bool,
    out: tuple[int, ...],
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The same in float32: what `nodes` compute, perhaps a ReLU, perhaps an addition."""
    outputs = weights.shape[0] if nodes[0].op_type == "Conv" else weights.shape[1]
    constants = {"wf": (weights / 500).astype(F), "bf": rng.normal(size=outputs).astype(F)}
    inputs: dict[str, Any] = {"xf": (F, shape), **({"rf": (F, out)} if residual else {})}
    act = rng.random() < 0.5
    nodes = [*nodes, helper.make_node("Relu" if act else "Identity", ["c"], ["a" if residual else "y"])]
    if residual:
        nodes.append(helper.make_node("Add", ["a", "rf"], ["y"]))
    feeds = {name: rng.normal(size=kind[1]).astype(F) for name, kind in inputs.items()}
    return model(nodes, inputs, ["y"], constants), feeds


def rescaled(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    weights: Any,
    nodes: list[Any],
    residual: bool,
    out: tuple[int, ...],
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The same as TFLite rounds it: whole numbers, a multiplier and a shift a channel, perhaps an addition."""
    conv = nodes[0].op_type == "Conv"
    outputs = weights.shape[0] if conv else weights.shape[1]
    by_channel = np.moveaxis(weights, 0 if conv else 1, 0)  # a view
    bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
    if rng.random() < 0.3:  # many that have no negative, which no pairing takes
        by_channel[rng.random(by_channel.shape) < 0.2] = -128
    if rng.random() < 0.3:  # as quantizers leave a dead channel
        dead = rng.integers(0, outputs)
        by_channel[dead], bias[dead] = 0, rng.choice([-1, 1]) * (2**31 - 77)
    multiplier, shift = numbers(rng, np.abs(by_channel.astype(int)).reshape(outputs, -1).sum(axis=1))
    if rng.random() < 0.3:  # sums that nearly can't be doubled
        far = rng.integers(0, outputs)
        bias[far], shift[far] = rng.choice([-1, 1]) * rng.integers(2**28, 2**30), rng.integers(20, 24)
    zero, act = limits(rng, -128)
    low, high = {"none": (-128, 127), "relu": (int(zero), 127), "clip": (int(zero), min(127, int(zero) + 90))}[act]
    constants: dict[str, Any] = {
        "one": F(1), "xz": np.int8(rng.choice([-128, 0, int(rng.integers(-128, 128))])), "w": weights,
        "wz": np.int8(0), "b": bias, "bz": np.int32(0), "by": multiplier, "places": shift,
        "ys": F(0.07), "yz": np.int8(zero), "rs": F(0.031), "rz": np.int8(-3), "zs": F(0.083), "zz": np.int8(-20),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "one", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "one", "wz"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "one", "bz"], ["bf"]),
        *nodes,
        helper.make_node(
            "Rescale", ["c", "by", "places"], ["q" if residual else "y"], domain="mtool", axis=1, zero_point=int(zero),
            low=low, high=high, twice=int(rng.random() < 0.6), to=onnx.TensorProto.INT8,
        ),
    ]  # fmt: skip
    inputs: dict[str, Any] = {"x": (np.int8, shape)}
    if residual:
        inputs["r"] = (np.int8, out)
        nodes += [
            helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["qf"]),
            helper.make_node("DequantizeLinear", ["r", "rs", "rz"], ["rf"]),
            helper.make_node("Add", ["qf", "rf"], ["s"]),
            helper.make_node("QuantizeLinear", ["s", "zs", "zz"], ["y"]),
        ]
    used = {name for node in nodes for name in node.input}
    proto = model(nodes, inputs, ["y"], {name: data for name, data in constants.items() if name in used})
    feeds = {name: rng.integers(-128, 128, kind[1]).astype(np.int8) for name, kind in inputs.items()}
    return proto, feeds


def numbers(rng: np.random.Generator, sums: Any) -> tuple[Any, Any]:
    """Multipliers and shifts of channels: most bring a sum near int8; the extremes; those with which ties happen."""
    shift = np.clip(np.floor(np.log2(np.maximum(sums, 1))) + rng.integers(-3, 3, sums.size), 1, 30)
    multiplier = rng.integers(2**30, 2**31, sums.size)
    extreme = rng.random(sums.size)
    multiplier[extreme < 0.4] = 2**30
    multiplier[extreme < 0.1] = 2**31 - 1
    multiplier[extreme < 0.05] = 0
    if rng.random() < 0.3:
        shift[rng.integers(0, sums.size)] = rng.choice([1, 30])
    return multiplier.astype(np.int32), shift.astype(np.int8)


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Weights of eight bits, or of one, two or four."""
    values = (range(-127, 128), (-1, 1), range(-2, 2), range(-8, 8))[int(rng.choice(4, p=[0.55, 0.15, 0.15, 0.15]))]
    return rng.choice(values, shape).astype(np.int8)


MAKES = {"f32": real, "mve_f32": real, "dsp16": sixteen, "mve16": sixteen}  # the models of some families
Made = tuple[onnx.ModelProto, dict[str, Any]]


def convolution(rng: np.random.Generator, kind: str, make: Callable[..., Made]) -> Made:
    depthwise, pointwise = kind == "depthwise", kind == "pointwise"
    channels = int(rng.choice([1, 2, 3, 4, 5, 8, 12, 13, 16, 18, 32, 48]))
    kernel, stride, pads = [1, 1], [1, 1], [0, 0, 0, 0]
    outputs = count_of_outputs(rng)
    group = 1
    if depthwise:
        channels = outputs = int(rng.choice([2, 5, 8, 8, 16, 20, 32]))
        kernel, stride = [3, 3], [int(rng.choice([1, 2]))] * 2
        pads = rng.integers(0, 2, 4).tolist()
        if rng.random() < 0.5:  # beyond 3x3
            kernel, stride = rng.choice([1, 2, 3, 5, 7], 2).tolist(), rng.integers(1, 3, 2).tolist()
            pads = [int(rng.integers(0, k)) for k in kernel * 2]
            if rng.random() < 0.4:  # along one axis, as models of sound have them
                kernel[int(rng.integers(2))], pads = 1, [0, 0, 0, 0]
            outputs *= int(rng.integers(1, 3))
    elif not pointwise:
        kernel = rng.integers(1, 5, 2).tolist()
        stride = rng.integers(1, 3, 2).tolist()
        pads = [int(rng.integers(0, k)) for k in kernel * 2]
        if rng.random() < 0.3:  # as most are
            kernel, stride, pads = [3, 3], [1, 1], rng.integers(0, 2, 4).tolist()
        elif rng.random() < 0.4:
            group = int(rng.choice([2, 3, 4]))
            channels, outputs = group * int(rng.choice([2, 3, 4, 8, 16])), group * int(rng.choice([1, 2, 3, 4]))
        if kernel != [3, 3] and rng.random() < 0.2:  # one dimension
            kernel[0], stride[0], pads[0], pads[2] = 1, 1, 0, 0
    if make is sixteen and not depthwise and rng.random() < 0.2:
        channels, group, outputs = 1500, 1, 5  # enough for sums of 64 bits
        kernel = [1, 1] if pointwise else [1, 2]
        stride, pads = [1, 1], [0, 0, 0, int(not pointwise)]
    height, width = (int(rng.integers(k, 12)) for k in kernel)
    if channels == 1500:  # whose images would fill the board's memory
        height, width = min(height, 4), min(width, 4)
    dilation = [1, 1]
    if not pointwise and rng.random() < 0.2:
        dilation = rng.integers(1, 3, 2).tolist()
        height, width = height + kernel[0], width + kernel[1]
    weights = drawn(rng, (outputs, 1 if depthwise else channels // group, *kernel))
    size = [
        (n + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
        for i, n in enumerate((height, width))
    ]
    node = helper.make_node(
        "Conv", ["xf", "wf", "bf"], ["c"], pads=pads, strides=stride, dilations=dilation,
        group=channels if depthwise else group,
    )  # fmt: skip
    residual = rng.random() < 0.3
    return make(rng, (1, channels, height, width), weights, [node], residual, (1, outputs, *size))


def wide_convolution(rng: np.random.Generator, make: Callable[..., Made]) -> Made:
    """A convolution whose kernel is wider than the image, or higher too: every window has padding."""
    kernel = rng.integers(2, 6, 2)
    size = [int(rng.integers(1, kernel[0] + 2)), int(rng.integers(1, kernel[1]))]
    missing = np.maximum(kernel - size, 0)
    before = rng.integers(0, missing + 1)
    pads = [*before.tolist(), *(missing - before + rng.integers(0, 2, 2)).tolist()]
    channels, group = int(rng.choice([1, 3, 4, 16])), 1
    if rng.random() < 0.2:
        channels, group = 16, 2
    weights = rng.integers(-127, 128, (int(rng.choice([2, 4, 8])), channels // group, *kernel)).astype(np.int8)
    out = [n + pads[i] + pads[i + 2] - int(kernel[i]) + 1 for i, n in enumerate(size)]
    node = helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=pads, group=group)
    return make(rng, (1, channels, *size), weights, [node], False, (1, weights.shape[0], *out))


def dense(rng: np.random.Generator, make: Callable[..., Made]) -> Made:
    rows, depth, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 80)), count_of_outputs(rng)
    if make is sixteen and rng.random() < 0.2:
        depth = 1500  # enough for sums of 64 bits
    weights = drawn(rng, (depth, outputs))
    nodes = [helper.make_node("MatMul", ["xf", "wf"], ["m"]), helper.make_node("Add", ["m", "bf"], ["c"])]
    return make(rng, (rows, depth), weights, nodes, bool(rng.random() < 0.2), (rows, outputs))


def pool(rng: np.random.Generator, make: Callable[..., Made], channels: int = 0, kind: str = "") -> Made:
    """A maximum or an average, clipped by padding or not, perhaps with an activation: of int8 that is a table."""
    kernel, stride = rng.integers(1, 5, 2).tolist(), rng.integers(1, 4, 2).tolist()
    channels = channels or int(rng.choice([1, 3, 4, 8, 13, 16, 20]))
    shape = (1, channels, *(int(rng.integers(k, 14)) for k in kernel))
    kind = kind or str(rng.choice(["MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool"]))
    attrs: dict[str, Any] = {} if kind == "GlobalAveragePool" else {"kernel_shape": kernel, "strides": stride}
    if kind == "MaxPool":
        attrs["pads"] = [int(rng.integers(0, k)) for k in kernel * 2]
        if rng.random() < 0.3:
            wide = [n >= 2 * k for n, k in zip(shape[2:], kernel, strict=True)]
            attrs["dilations"] = [int(rng.integers(1, 3)) if w else 1 for w in wide]
    act = rng.random() < 0.3
    window = helper.make_node(kind, ["xf"], ["c"], **attrs)
    activation = helper.make_node("Sigmoid" if act else "Identity", ["c"], ["a"])
    if make is real:
        feeds = {"xf": rng.normal(size=shape).astype(F)}
        return model([window, replaced(activation, "y")], {"xf": (F, shape)}, ["y"]), feeds
    scale = "ys" if act or kind != "MaxPool" else "xs"
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        window,
        activation,
        helper.make_node("QuantizeLinear", ["a", scale, "xz"], ["y"]),
    ]
    constants = {"xs": F(0.05), "xz": np.int8(rng.integers(-128, 128)), "ys": F(0.021)}
    x = rng.integers(-128, 128, shape).astype(np.int8)
    return model(nodes, {"x": (np.int8, shape)}, ["y"], constants), {"x": x}


def product(rng: np.random.Generator, sizes: Sequence[int] = ()) -> Made:
    """A batched product of two activations, either of which is transposed or broadcast or not, perhaps with a table."""
    batch = rng.integers(1, 4, int(rng.integers(0, 3))).tolist()
    rows, depth, columns = sizes or (int(n) for n in rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 17, 33], 3))
    given: dict[str, tuple[int, ...]] = {"x": (*batch, rows, depth), "z": (*batch, depth, columns)}
    nodes, constants = [], {"s": F(0.05), "ys": F(rng.uniform(0.2, 0.8)), "yz": np.int8(rng.integers(-128, 128))}
    constants |= {name: np.int8(rng.choice([-128, 0, int(rng.integers(-128, 128))])) for name in ("xp", "zp")}
    for name, shape in list(given.items()):
        nodes.append(helper.make_node("DequantizeLinear", [name, "s", f"{name}p"], [f"{name}f"]))
        if batch and rng.random() < 0.2:
            given[name] = shape = (1, *shape[1:])
        if rng.random() < 0.5:
            perm = rng.permutation(len(shape)).tolist()
            given[name] = tuple(shape[perm.index(n)] for n in range(len(shape)))
            nodes.append(helper.make_node("Transpose", [f"{name}f"], [f"{name}t"], perm=perm))
            continue
        nodes.append(helper.make_node("Identity", [f"{name}f"], [f"{name}t"]))
    act = str(rng.choice(["Identity", "Relu", "Sigmoid"]))
    constants["bs"], constants["bz"] = F(0.3), np.int8(3)
    nodes += [
        helper.make_node("MatMul", ["xt", "zt"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "bs", "bz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "bs", "bz"], ["qf"]),
        helper.make_node(act, ["qf"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "ys", "yz"], ["y"]),
    ]
    known = {name: data for name, data in constants.items() if any(name in node.input for node in nodes)}
    feeds = {name: rng.integers(-128, 128, shape).astype(np.int8) for name, shape in given.items()}
    return model(nodes, {name: (np.int8, shape) for name, shape in given.items()}, ["y"], known), feeds


def replaced(node: Any, output: str) -> Any:
    """A node with another output."""
    node.output[0] = output
    return node


def schedules_of(
    target: Target, prefix: str, make: Callable[..., Made] | None, *, turned: bool
) -> dict[str, list[tuple[str, Any]]]:
    """The schedules of each kernel whose names are `prefix` and a word; or each with one knob turned, every way."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for key in ("conv2d", "dense") if make is rescaled else ("conv2d", "dense", "matmul", "pool2d"):
        chosen = [s for s in registry.KERNELS[key].schedules if s.name.rpartition("_")[0] == prefix]
        chosen = [s for s in chosen if make is not rescaled or s.name not in BY_FLOATS]
        chosen = [s for s in chosen if not getattr(s, "core", "") or target.has(s.core)]
        found[key] = [(s.name, s) for s in chosen]
        if turned:
            found[key] = [
                (f"{s.name} {name}={value}", replace(s, **{name: value}))
                for s in chosen
                for name, knob in s.knobs().items()
                for value in knob.values[1:]
                if name != "bits" or not (make is rescaled or "work" in s.knobs())  # which takes another knob or scales
            ]
    return found


@functools.cache  # for the host and for the emulator
def cases_of(
    target: Target, prefix: str, count: int, asked: Callable[..., Made] | None = None, *, turned: bool = False
) -> list[Case]:
    """Random models until each schedule of the family `prefix` has its cases, each computed by that schedule alone."""
    rng = np.random.default_rng(20)
    made: list[Case] = []
    stem = "turned" if turned else "case"
    found: Counter[str] = Counter()
    kinds: defaultdict[str, set[str]] = defaultdict(set)  # of models in which a schedule was taken
    schedules = schedules_of(target, prefix, asked, turned=turned)
    wanted = {label for of_kernel in schedules.values() for label, _ in of_kernel}
    assert wanted
    for attempt in range(max(1600, 160 * count)):
        if all(found[label] >= count for label in wanted):
            break
        kind = ("pointwise", "patch", "depthwise", "dense", "pool", "matmul")[attempt % 6]
        key = {"dense": "dense", "pool": "pool2d", "matmul": "matmul"}.get(kind, "conv2d")
        wanting = [(label, schedule) for label, schedule in schedules.get(key, []) if found[label] < count]
        hopeless = all(kinds[label] and kind not in kinds[label] for label, _ in wanting)
        if not wanting or (attempt >= SEEN and hopeless):
            continue
        small = unsigned if prefix == "int" and attempt % 4 == 3 else quantized
        small = (quantized, real, unsigned)[attempt // 6 % 3] if prefix == "simd" else small
        make = asked or MAKES.get(prefix, small)
        if kind == "matmul":
            proto, feeds = product(rng)
        elif kind == "pool":
            proto, feeds = pool(rng, make)
        elif kind == "dense":
            proto, feeds = dense(rng, make)
        else:
            proto, feeds = convolution(rng, kind, make)
        graph = lowered(proto, target)
        reference = planned(graph, target, f"{stem}{len(made)}_c99", key, portable(key)[:1])
        for label, schedule in wanting:
            case = case_of(graph, target, f"{stem}{len(made)}", key, schedule, reference, feeds)
            if case is not None:
                found[label] += 1
                kinds[label].add(kind)
                made.append(case)
    assert all(found[label] >= count for label in wanted), found
    return made


def portable(key: str) -> list[Any]:
    """The schedules of a kernel in portable C."""
    return [schedule for schedule in registry.KERNELS[key].schedules if schedule.name.startswith("c99_")]


def case_of(
    graph: Graph, target: Target, name: str, key: str, schedule: Any, reference: Plan, feeds: dict[str, Any]
) -> Case | None:
    """A graph planned by a schedule, against another plan; None: the schedule does not take it."""
    plan = planned(graph, target, name, key, (Preferred(schedule), *portable(key)))
    taken = any(step.schedule.name == schedule.name for step in plan.steps)
    is_float = graph.types[graph.outputs[0]].dtype.is_float
    return Case(plan, reference, feeds, 2e-5 if is_float else 0.0) if taken else None


def planned(graph: Graph, target: Target, name: str, op: str, schedules: Sequence[Any]) -> Plan:
    """Plan a graph with these schedules of one operator alone."""
    with mock.patch.dict(registry.KERNELS, {op: replace(registry.KERNELS[op], schedules=tuple(schedules))}):
        return make_plan(replace(graph, name=name), target)


class Preferred:
    """A schedule that costs nothing: taken wherever it can be."""

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schedule, name)

    def cost(self, *arguments: Any) -> float:
        return -1.0

    def for_core(self, *arguments: Any) -> "Preferred":
        return self  # with its knobs as they are tried
