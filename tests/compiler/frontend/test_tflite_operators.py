"""TFLite operators against LiteRT: within one step of its default kernels, equal to its reference kernels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, R, compute, drawn, one_model
from tflite_models import Op, T, litert, model

from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset())
SOFT = Target("cortex-m3", frozenset())
I8, U8, I16 = np.int8, np.uint8, np.int16


def weights(shape: Sequence[int], axis: int, *, per_channel: bool = True, dtype: Any = I8, name: str = "w") -> T:
    limit = np.iinfo(dtype)
    data = R.integers(max(limit.min, -127), limit.max, shape, endpoint=True).astype(dtype)
    scale = R.uniform(0.002, 0.02, shape[axis]) if per_channel else 0.011
    return T(name, shape, dtype, scale, 0 if dtype is I8 else 121, axis, data)


def bias(count: int, dtype: Any = np.int32) -> T:
    return T("b", [count], dtype, data=R.integers(-3000, 3000, count).astype(dtype))


def whole(name: str, data: Any) -> T:
    array = np.asarray(data, np.int32)
    return T(name, array.shape, np.int32, data=array)


CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}


def conv(
    name: str,
    size: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    *,
    act: int = 0,
    dtype: Any = I8,
    per_channel: bool = True,
    **options: int,
) -> Case:
    point, top = (3, -5) if dtype is I8 else (0, 0) if dtype is I16 else (131, 120)
    small = dtype is I16
    tensors = [
        T("x", size, dtype, 0.0005 if small else 0.05, point),
        weights(kernel, 0, per_channel=per_channel, dtype=U8 if dtype is U8 else I8),
        bias(kernel[0], np.int64 if small else np.int32),
        T("y", out, dtype, 0.002 if small else 0.1, top),
    ]
    values = {**CONV, "Padding": 0, "FusedActivationFunction": act, **options}
    return Case(name, Op("CONV_2D", ["x", "w", "b"], ["y"], "Conv2DOptions", values), tensors)


def depthwise(name: str, size: Sequence[int], kernel: Sequence[int], out: Sequence[int], **options: int) -> Case:
    tensors = [T("x", size, I8, 0.05, -7), weights(kernel, 3), bias(kernel[3]), T("y", out, I8, 0.04, 2)]
    values = {**CONV, "Padding": 0, "DepthMultiplier": kernel[3] // size[3], **options}
    return Case(name, Op("DEPTHWISE_CONV_2D", ["x", "w", "b"], ["y"], "DepthwiseConv2DOptions", values), tensors)


def dense(name: str, size: Sequence[int], out: Sequence[int], **given: Any) -> Case:
    tensors = [
        T("x", size, I8, 0.05, 9),
        weights([out[-1], size[-1]], 0, per_channel=False, **given),
        bias(out[-1]),
        T("y", out, I8, 0.2, -3),
    ]
    values = {"KeepNumDims": len(size) != 2, "FusedActivationFunction": 1}
    return Case(name, Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], "FullyConnectedOptions", values), tensors)


def binary(name: str, kind: str, options: str, a: T, b: T, y: T, **values: int) -> Case:
    return Case(name, Op(kind, ["a", "b"], ["y"], options, values), [a, b, y])


def sums(kind: str, options: str, *, out: float, act: int = 0, other: Sequence[int] = (1, 4, 5, 6)) -> Case:
    a, b = T("a", [1, 4, 5, 6], I8, 0.05, 4), T("b", other, I8, 0.031, -9)
    y = T("y", [1, 4, 5, 6], I8, out, -11)
    return binary(f"{kind}_{act}_{len(other)}", kind, options, a, b, y, FusedActivationFunction=act)


def unary(
    kind: str, out: tuple[float, int], options: str = "", scale: float = 0.047, zero: int = 3, **values: Any
) -> Case:
    x = T("x", [2, 3, 64], I8, scale, zero)
    op = Op(kind, ["x"], ["y"], options, values)
    return Case(f"{kind}_{scale}", op, [x, T("y", [2, 3, 64], I8, *out)])


def pool(name: str, kind: str, size: Sequence[int], out: Sequence[int], **values: int) -> Case:
    op = Op(kind, ["x"], ["y"], "Pool2DOptions", {"StrideH": 1, "StrideW": 1, **values})
    return Case(name, op, [T("x", size, I8, 0.05, 3), T("y", out, I8, 0.05, 3)])


def mean(name: str, axes: Sequence[int], out: Sequence[int], keep: bool) -> Case:
    op = Op("MEAN", ["x", "axes"], ["y"], "ReducerOptions", {"KeepDims": keep})
    return Case(name, op, [T("x", [2, 5, 7, 6], I8, 0.05, 3), whole("axes", axes), T("y", out, I8, 0.023, -20)])


EXACT = [
    conv("conv_same", [1, 7, 6, 3], [4, 3, 3, 3], [1, 7, 6, 4]),
    conv("conv_valid", [1, 7, 6, 3], [4, 3, 2, 3], [1, 3, 3, 4], act=1, Padding=1, StrideH=2, StrideW=2),
    conv("conv_dilated", [1, 9, 9, 2], [6, 3, 3, 2], [1, 9, 9, 6], act=3, DilationHFactor=2, DilationWFactor=2),
    conv("conv_pointwise", [2, 4, 4, 8], [16, 1, 1, 8], [2, 4, 4, 16]),
    conv("conv_tensor", [1, 5, 5, 4], [4, 3, 3, 4], [1, 5, 5, 4], per_channel=False),
    depthwise("dw_same", [1, 8, 7, 6], [1, 3, 3, 6], [1, 8, 7, 6]),
    depthwise("dw_multiplier", [1, 8, 7, 3], [1, 3, 3, 6], [1, 4, 4, 6], StrideH=2, StrideW=2),
    depthwise("dw_dilated", [1, 9, 9, 4], [1, 3, 3, 4], [1, 5, 5, 4], Padding=1, DilationHFactor=2, DilationWFactor=2),
    dense("dense", [3, 20], [3, 8]),
    dense("dense_keep", [2, 3, 20], [2, 3, 5]),
    sums("ADD", "AddOptions", out=0.06),
    sums("ADD", "AddOptions", out=0.06, act=1, other=(6,)),
    sums("SUB", "SubOptions", out=0.07),
    sums("MUL", "MulOptions", out=0.05),
    sums("MUL", "MulOptions", out=0.05, act=1, other=(6,)),
    pool(
        "average",
        "AVERAGE_POOL_2D",
        [1, 6, 6, 5],
        [1, 3, 3, 5],
        FilterHeight=2,
        FilterWidth=2,
        StrideH=2,
        StrideW=2,
        Padding=1,
    ),
    pool("average_same", "AVERAGE_POOL_2D", [1, 7, 6, 5], [1, 7, 6, 5], FilterHeight=3, FilterWidth=3, Padding=0),
    pool("average_all", "AVERAGE_POOL_2D", [1, 7, 6, 5], [1, 1, 1, 5], FilterHeight=7, FilterWidth=6, Padding=1),
    pool(
        "max", "MAX_POOL_2D", [1, 7, 6, 5], [1, 4, 3, 5], FilterHeight=3, FilterWidth=3, StrideH=2, StrideW=2, Padding=0
    ),
    mean("mean_image", [1, 2], [2, 6], False),
    mean("mean_kept", [1, 2], [2, 1, 1, 6], True),
    mean("mean_channels", [3], [2, 5, 7], False),
    Case(
        "softmax",
        Op("SOFTMAX", ["x"], ["y"], "SoftmaxOptions", {"Beta": 1.0}),
        [T("x", [50, 9], I8, 0.03, 3), T("y", [50, 9], I8, 1 / 256, -128)],
    ),
    Case(
        "softmax_beta",
        Op("SOFTMAX", ["x"], ["y"], "SoftmaxOptions", {"Beta": 0.5}),
        [T("x", [2, 5, 9], I8, 0.11, 3), T("y", [2, 5, 9], I8, 1 / 256, -128)],
    ),
    unary("RELU", (0.03, -128)),
    unary("RELU6", (6 / 255, -128)),
    unary("RELU_N1_TO_1", (0.01, 0)),
    unary("LEAKY_RELU", (0.04, -80), "LeakyReluOptions", Alpha=0.1),
    unary("LEAKY_RELU", (0.04, -80), "LeakyReluOptions", scale=0.021, zero=-40, Alpha=0.3),
    unary("ABS", (0.03, -128), "AbsOptions"),
    unary("LOGISTIC", (1 / 256, -128)),
    unary("LOGISTIC", (1 / 256, -128), scale=0.0913, zero=-11),
    unary("TANH", (1 / 128, 0)),
    unary("TANH", (1 / 128, 0), scale=0.0131, zero=40),
    unary("EXP", (1.0, -128), "ExpOptions"),
    unary("QUANTIZE", (0.031, -7), "QuantizeOptions"),
]


@pytest.mark.product(2)
@pytest.mark.parametrize("target", [HOST, SOFT], ids=["fpu", "no-fpu"])
def test_rounding_tflite_is_the_reference_kernels_byte_for_byte(target: Target, tmp_path: Path) -> None:
    data, inputs, outputs = one_model(EXACT)
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    expected = litert(data, feeds, reference=True)
    found = compute(data, feeds, tmp_path, "tflite", target)
    wrong = {
        n: int(np.abs(f.astype(int) - e).max())
        for n, f, e in zip(outputs, found, expected, strict=True)
        if (f != e).any()
    }
    assert not wrong


@pytest.mark.slow
def test_int8_is_within_a_step_of_the_default_kernels(tmp_path: Path) -> None:
    data, inputs, outputs = one_model(EXACT)
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    expected = litert(data, feeds)
    found = compute(data, feeds, tmp_path, "onnx", HOST)
    wrong = {n: int(np.abs(f.astype(int) - e).max()) for n, f, e in zip(outputs, found, expected, strict=True)}
    assert {name: steps for name, steps in wrong.items() if steps > 1} == {}


@pytest.mark.product(2)
@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize("ratio", [1.0, 2.1, 4.3])
def test_a_sum_behind_a_convolution_is_within_a_step(dtype: Any, ratio: float, tmp_path: Path) -> None:
    """Also on a finer grid, where a step of the convolution is several: that one is equal, bit for bit."""
    shape, point = [1, 16, 16, 12], 3 if dtype is I8 else 131
    w = weights([12, 3, 3, 12], 0, per_channel=dtype is I8, dtype=dtype)
    scales = np.float32(0.05) * np.atleast_1d(np.asarray(w.scale, np.float32))  # without which XNNPACK leaves it alone
    tensors = [
        T("x", shape, dtype, 0.05, point), w, T("b", [12], np.int32, scales, data=R.integers(-3000, 3000, 12)),
        T("m", shape, dtype, 0.15, point + 4), T("a", shape, dtype, 0.031, point),
        T("y", shape, dtype, 0.15 / ratio, 9),
    ]  # fmt: skip
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["m"], "Conv2DOptions", {**CONV, "Padding": 0}),
        Op("ADD", ["m", "a"], ["y"], "AddOptions"),
    ]
    data = model(tensors, ops, ["x", "a"], ["m", "y"])
    feeds = {name: drawn(tensor) for name, tensor in (("x", tensors[0]), ("a", tensors[4]))}
    found, expected = compute(data, feeds, tmp_path, "onnx", HOST), litert(data, feeds)
    np.testing.assert_array_equal(found[0], expected[0])
    assert np.abs(found[1].astype(int) - expected[1]).max() <= 1
