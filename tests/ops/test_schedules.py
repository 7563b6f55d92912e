"""Every schedule of a core over random shapes, strides, pads, zero points and limits, against portable C.

Integers are held bit for bit. On the host the runtime's plain C stands for the assembly, under the sanitizers; in QEMU
the assembly runs. All cases of a target are one firmware.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model
from one_firmware import Case, failures
from onnx import helper

from mtool import ops
from mtool.ops.schedule import Target
from mtool.plan import Plan

F = np.float32
CASES = 24  # of each schedule
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
M7 = Target("cortex-m7", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
M3 = Target("cortex-m3", frozenset())
RV32 = Target("rv32imc", frozenset())
AVR = Target("avr5", frozenset())


def limits(rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], str]:
    """The output's zero point, and an activation."""
    zero = rng.choice([-128, -128, 0, 5, int(rng.integers(-128, 128))])
    return np.int8(zero), str(rng.choice(["none", "relu", "clip", "relu"]))


def quantised(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    weights: Any,
    nodes: list[Any],
    residual: bool,
    out: tuple[int, ...],
    x_type: type = np.int8,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """DequantizeLinear, what `nodes` compute from xf, wf, bf into c, an activation, perhaps an addition, and back."""
    outputs = weights.shape[0] if nodes[0].op_type == "Conv" else weights.shape[1]
    sums = np.abs(weights.astype(int)).sum(axis=tuple(range(1, weights.ndim)) if nodes[0].op_type == "Conv" else 0)
    w_scale = (rng.uniform(0.5, 2, outputs) * 255 / (sums + 1) / 60).astype(F)
    bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
    zero, act = limits(rng)
    axis = 0 if nodes[0].op_type == "Conv" else 1
    by_channel = np.moveaxis(weights, axis, 0)  # a view
    if rng.random() < 0.3:  # as quantisers leave a dead channel
        dead = rng.integers(0, outputs)
        by_channel[dead], w_scale[dead] = 0, rng.uniform(0, 4e-8)
        bias[dead] = rng.choice([-1, 1]) * (2**30 - 77)
    if rng.random() < 0.3:  # a weight that has no negative
        by_channel.flat[rng.integers(0, by_channel.size)] = -128
    elif rng.random() < 0.3:  # many of them, which no pairing takes
        by_channel[rng.random(by_channel.shape) < 0.2] = -128
    x_zero = int(rng.choice([-128, 0, int(rng.integers(-128, 128))])) + (np.iinfo(x_type).max - 127)
    constants: dict[str, Any] = {
        "xs": F(0.05), "xz": x_type(x_zero), "w": weights, "ws": w_scale,
        "wz": np.zeros(outputs, np.int8), "b": bias,
        "bs": F(0.05) * w_scale, "bz": np.zeros(outputs, np.int32), "ys": F(0.07), "yz": zero, "lo": F(0), "hi": F(6),
        "rs": F(0.031), "rz": np.int8(-3), "zs": F(0.083), "zz": np.int8(-20),
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
        inputs["r"] = (np.int8, out)
        nodes += [
            helper.make_node("DequantizeLinear", ["q", "ys", "yz"], ["qf"]),
            helper.make_node("DequantizeLinear", ["r", "rs", "rz"], ["rf"]),
            helper.make_node("Add", ["qf", "rf"], ["s"]),
            helper.make_node("QuantizeLinear", ["s", "zs", "zz"], ["y"]),
        ]
    used = {name for node in nodes for name in node.input}
    proto = model(nodes, inputs, ["y"], {name: data for name, data in constants.items() if name in used})
    feeds = {name: rng.integers(-128, 128, kind[1]).astype(kind[0]) for name, kind in inputs.items()}
    return proto, feeds


def unsigned(*arguments: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The same with an input of uint8."""
    return quantised(*arguments, x_type=np.uint8)


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
    if rng.random() < 0.3:  # as quantisers leave a dead channel
        dead = rng.integers(0, outputs)
        by_channel[dead], bias[dead] = 0, rng.choice([-1, 1]) * (2**31 - 77)
    multiplier, shift = numbers(rng, np.abs(by_channel.astype(int)).reshape(outputs, -1).sum(axis=1))
    if rng.random() < 0.3:  # sums that nearly can't be doubled
        far = rng.integers(0, outputs)
        bias[far], shift[far] = rng.choice([-1, 1]) * rng.integers(2**28, 2**30), rng.integers(20, 24)
    zero, act = limits(rng)
    low, high = {"none": (-128, 127), "relu": (int(zero), 127), "clip": (int(zero), min(127, int(zero) + 90))}[act]
    constants: dict[str, Any] = {
        "one": F(1), "xz": np.int8(rng.choice([-128, 0, int(rng.integers(-128, 128))])), "w": weights,
        "wz": np.int8(0), "b": bias, "bz": np.int32(0), "by": multiplier, "places": shift,
        "ys": F(0.07), "yz": zero, "rs": F(0.031), "rz": np.int8(-3), "zs": F(0.083), "zz": np.int8(-20),
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


Made = tuple[onnx.ModelProto, dict[str, Any]]


def convolution(rng: np.random.Generator, kind: str, make: Callable[..., Made]) -> Made:
    depthwise, pointwise = kind == "depthwise", kind == "pointwise"
    channels = int(rng.choice([1, 2, 3, 4, 5, 8, 12, 13, 16, 18, 32, 48]))
    kernel, stride, pads = [1, 1], [1, 1], [0, 0, 0, 0]
    outputs = int(rng.choice([1, 2, 3, 4, 6, 7, 8, 16, 24]))
    group = 1
    if depthwise:
        channels = outputs = int(rng.choice([2, 5, 8, 8, 16, 20, 32]))
        kernel, stride = [3, 3], [int(rng.choice([1, 2]))] * 2
        pads = rng.integers(0, 2, 4).tolist()
        if rng.random() < 0.5:  # beyond 3x3
            kernel, stride = rng.choice([1, 2, 3, 5, 7], 2).tolist(), rng.integers(1, 3, 2).tolist()
            pads = [int(rng.integers(0, k)) for k in kernel * 2]
            outputs *= int(rng.integers(1, 3))
    elif not pointwise:
        kernel = rng.integers(1, 5, 2).tolist()
        stride = rng.integers(1, 3, 2).tolist()
        pads = [int(rng.integers(0, k)) for k in kernel * 2]
        if rng.random() < 0.3:
            group = int(rng.choice([2, 3, 4]))
            channels, outputs = group * int(rng.choice([2, 3, 4, 8, 16])), group * int(rng.choice([1, 2, 3, 4]))
        if rng.random() < 0.2:  # one dimension
            kernel[0], stride[0], pads[0], pads[2] = 1, 1, 0, 0
    height, width = (int(rng.integers(k, 12)) for k in kernel)
    dilation = [1, 1]
    if not pointwise and rng.random() < 0.2:
        dilation = rng.integers(1, 3, 2).tolist()
        height, width = height + kernel[0], width + kernel[1]
    weights = rng.integers(-127, 128, (outputs, 1 if depthwise else channels // group, *kernel)).astype(np.int8)
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


def dense(rng: np.random.Generator, make: Callable[..., Made]) -> Made:
    rows, depth, outputs = int(rng.integers(1, 4)), int(rng.integers(1, 80)), int(rng.integers(1, 22))
    weights = rng.integers(-127, 128, (depth, outputs)).astype(np.int8)
    nodes = [helper.make_node("MatMul", ["xf", "wf"], ["m"]), helper.make_node("Add", ["m", "bf"], ["c"])]
    return make(rng, (rows, depth), weights, nodes, bool(rng.random() < 0.2), (rows, outputs))


def pool(rng: np.random.Generator, make: Callable[..., Made]) -> Made:
    """A maximum or an average, clipped by padding or not, perhaps with an activation: of int8 that is a table."""
    kernel, stride = rng.integers(1, 5, 2).tolist(), rng.integers(1, 4, 2).tolist()
    shape = (1, int(rng.choice([1, 3, 4, 8, 13, 16, 20])), *(int(rng.integers(k, 14)) for k in kernel))
    kind = str(rng.choice(["MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool"]))
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


def replaced(node: Any, output: str) -> Any:
    """A node with another output."""
    node.output[0] = output
    return node


def schedules_of(prefix: str, make: Callable[..., Made] | None, *, turned: bool) -> dict[str, list[tuple[str, Any]]]:
    """The schedules of each kernel whose names are `prefix` and a word; or each with one knob turned, every way."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for key in ("conv2d", "dense") if make is rescaled else ("conv2d", "dense", "pool2d"):
        chosen = [s for s in ops.KERNELS[key].schedules if s.name.rpartition("_")[0] == prefix]
        found[key] = [(s.name, s) for s in chosen]
        if turned:
            found[key] = [
                (f"{s.name} {name}={value}", replace(s, **{name: value}))
                for s in chosen
                for name, knob in s.knobs().items()
                for value in knob.values[1:]
            ]
    return found


def cases_of(
    target: Target,
    prefix: str,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    asked: Callable[..., Made] | None = None,
    *,
    turned: bool = False,
) -> list[Case]:
    """Random models until each schedule with a name of `prefix` has its cases, each computed by that schedule alone."""
    rng = np.random.default_rng(20)
    made: list[Case] = []
    found: Counter[str] = Counter()
    schedules = schedules_of(prefix, asked, turned=turned)
    wanted = {label for of_kernel in schedules.values() for label, _ in of_kernel}
    assert wanted
    for attempt in range(max(400, 80 * count)):
        if all(found[label] >= count for label in wanted):
            break
        kind = ("pointwise", "patch", "depthwise", "dense", "pool")[attempt % 5]
        if kind == "pool" and "pool2d" not in schedules:
            continue
        usual = real if prefix.endswith("f32") else unsigned if prefix == "int" and attempt % 3 == 2 else quantised
        make = asked or usual
        proto, feeds = (
            pool(rng, make) if kind == "pool" else dense(rng, make) if kind == "dense" else convolution(rng, kind, make)
        )
        key = {"dense": "dense", "pool": "pool2d"}.get(kind, "conv2d")
        kernel = ops.KERNELS[key]
        for label, schedule in schedules[key]:
            if found[label] >= count:
                continue
            name = f"case{len(made)}"
            portable = [s for s in kernel.schedules if s.name.startswith("c99")]
            plan = planned(proto, target, name, key, (_Preferred(schedule), *portable), monkeypatch)
            if any(step.schedule.name == schedule.name for step in plan.steps):
                found[label] += 1
                reference = planned(proto, target, f"{name}_c99", key, portable[:1], monkeypatch)
                made.append(Case(plan, reference, feeds, 2e-5 if make is real else 0.0))
    assert all(found[label] >= count for label in wanted), found
    return made


def planned(
    proto: onnx.ModelProto,
    target: Target,
    name: str,
    op: str,
    schedules: Sequence[Any],
    patcher: pytest.MonkeyPatch,
) -> Plan:
    """Compile with these schedules of one operator alone."""
    with patcher.context() as patch:
        patch.setitem(ops.KERNELS, op, replace(ops.KERNELS[op], schedules=tuple(schedules)))
        return compiled(proto, target, name)


class _Preferred:
    """A schedule that costs nothing: taken wherever it can be."""

    def __init__(self, schedule: Any) -> None:
        self._schedule = schedule

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schedule, name)

    def cost(self, *arguments: Any) -> float:
        return -1.0


PLAIN = [(DSP, "dsp"), (MVE, "mve"), (DSP, "f32"), (MVE, "mve_f32"), (M3, "int"), (AVR, "int")]
EMULATED = [
    (DSP, "dsp", "mps2_an386"),
    (MVE, "mve", "mps3_an547"),
    (DSP, "f32", "mps2_an386"),
    (MVE, "mve_f32", "mps3_an547"),
    (M3, "int", "mps2_an385"),
    (RV32, "int", "qemu_riscv32"),
    (M7, "f32", "mps2_an500"),
]
TURNED = EMULATED[:-1]


@pytest.mark.parametrize(("target", "prefix"), PLAIN, ids=[f"{prefix}-{target.cpu}" for target, prefix in PLAIN])
def test_the_plain_c_of_schedules(target: Target, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failures(cases_of(target, prefix, CASES, monkeypatch), tmp_path, None) == []


@pytest.mark.parametrize(("target", "prefix", "board"), EMULATED, ids=[f"{case[1]}-{case[2]}" for case in EMULATED])
def test_schedules_in_the_emulator(
    target: Target, prefix: str, board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failures(cases_of(target, prefix, CASES, monkeypatch), tmp_path, board) == []


@pytest.mark.parametrize("turned", [False, True], ids=["default", "turned"])
@pytest.mark.parametrize(("target", "prefix"), PLAIN[:2], ids=[prefix for _, prefix in PLAIN[:2]])
def test_the_plain_c_of_schedules_as_tflite_rounds(
    target: Target, prefix: str, turned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = cases_of(target, prefix, 2 if turned else CASES // 2, monkeypatch, rescaled, turned=turned)
    assert failures(cases, tmp_path, None) == []


@pytest.mark.parametrize("turned", [False, True], ids=["default", "turned"])
@pytest.mark.parametrize(("target", "prefix", "board"), EMULATED[:2], ids=[case[2] for case in EMULATED[:2]])
def test_schedules_as_tflite_rounds_in_the_emulator(
    target: Target, prefix: str, board: str, turned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = cases_of(target, prefix, 2 if turned else CASES // 2, monkeypatch, rescaled, turned=turned)
    assert failures(cases, tmp_path, board) == []


@pytest.mark.parametrize(("target", "prefix"), PLAIN, ids=[f"{prefix}-{target.cpu}" for target, prefix in PLAIN])
def test_every_setting_of_a_knob_in_plain_c(
    target: Target, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failures(cases_of(target, prefix, 3, monkeypatch, turned=True), tmp_path, None) == []


@pytest.mark.parametrize(("target", "prefix", "board"), TURNED, ids=[f"{case[1]}-{case[2]}" for case in TURNED])
def test_every_setting_of_a_knob_in_the_emulator(
    target: Target, prefix: str, board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failures(cases_of(target, prefix, 3, monkeypatch, turned=True), tmp_path, board) == []


def test_knobs_begin_with_the_default() -> None:
    for kernel in ops.KERNELS.values():
        for schedule in kernel.schedules:
            for name, knob in schedule.knobs().items():
                assert getattr(schedule, name) == knob.default and len(set(knob.values)) == len(knob.values) > 1
                assert [knob.read(knob.written(value)) for value in knob.values] == list(knob.values)
                assert knob.meaning and ("auto" in knob.meaning) == (knob.written(knob.default) == "auto")
    (patch,) = (s for s in ops.KERNELS["conv2d"].schedules if s.name == "dsp_patch")
    assert patch.knobs()["unroll"].values == (0, 28, 16, 8)
    assert patch.knobs()["unroll"].read("16") == 16 and patch.knobs()["unroll"].read("12") is None
