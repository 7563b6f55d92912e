"""Weights of 4 and 2 bits: the bytes of LiteRT, where it computes with them."""

from pathlib import Path
from typing import Any

import interpreter
import numpy as np
import pytest
from graphs import HOST
from tflite_cases import compute
from tflite_models import Array, Op, T, litert, model

from mtool.base.errors import ModelError
from mtool.compiler import passes
from mtool.compiler.frontend import ModelOptions, load

WINDOW = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
# options, shapes of the input, the weights and the output, the axis of the channels, the operator's version
LAYERS: dict[str, tuple[str, dict[str, Any], list[int], list[int], list[int], int, int]] = {
    "FULLY_CONNECTED": ("FullyConnectedOptions", {}, [3, 11], [5, 11], [3, 5], 0, 12),
    "CONV_2D": ("Conv2DOptions", WINDOW, [1, 5, 5, 3], [5, 3, 3, 3], [1, 5, 5, 5], 0, 8),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2DOptions", {**WINDOW, "DepthMultiplier": 1}, [1, 5, 5, 5], [1, 3, 3, 5], [1, 5, 5, 5], 3, 7,
    ),
}  # fmt: skip


def packed(numbers: Array, bits: int) -> Array:
    """Return numbers in bytes, a byte's low bits first."""
    each = 8 // bits
    rows = np.pad(numbers.reshape(-1) & ((1 << bits) - 1), (0, -numbers.size % each)).reshape(-1, each)
    return (rows << np.arange(0, 8, bits)).sum(1).astype(np.uint8).view(np.int8)


def layer(op: str, kind: str, dtype: Any, **others: Any) -> tuple[bytes, dict[str, Array]]:
    """Return a model of one layer with activations of a type and weights of a kind, and an input."""
    rng = np.random.default_rng(7)
    options, values, x, w, y, axis, version = LAYERS[op]
    bits, channels = int(kind[-1]), y[-1]
    scale, x_scale, y_scale = rng.uniform(0.01, 0.05, channels), 0.05, 0.3
    weights = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), w)
    bias: Any = rng.standard_normal(channels)
    if dtype is np.int16:
        x_scale, y_scale = 0.001, 0.01
    if dtype is not np.float32:
        bias = rng.integers(-300, 300, channels)
    added = {np.int8: np.int32, np.int16: np.int64}.get(dtype, np.float32)
    is_real = dtype is np.float32
    tensors = [
        T("x", x, dtype, None if is_real else x_scale),
        T("w", w, np.int8, scale, axis=axis, data=packed(weights, bits), kind=kind, **others),
        T("b", [channels], added, None if is_real else scale * x_scale, data=bias),
        T("y", y, dtype, None if is_real else y_scale),
    ]
    data = model(tensors, [Op(op, ["x", "w", "b"], ["y"], options, values)], ["x"], ["y"], versions={op: version})
    feeds = rng.standard_normal(x) if is_real else rng.integers(-128, 128, x) * (20 if dtype is np.int16 else 1)
    return data, {"x": feeds.astype(dtype)}


@pytest.mark.parametrize(
    ("op", "kind", "dtype"),
    [
        ("FULLY_CONNECTED", "INT4", np.int8), ("FULLY_CONNECTED", "INT4", np.int16),
        ("FULLY_CONNECTED", "INT2", np.int8), ("FULLY_CONNECTED", "INT2", np.int16),
        ("CONV_2D", "INT4", np.int8), ("CONV_2D", "INT4", np.int16),
        ("DEPTHWISE_CONV_2D", "INT4", np.int8),  # LiteRT reads those of int16 as if they had 8 bits
    ],
)  # fmt: skip
def test_integers(op: str, kind: str, dtype: Any, tmp_path: Path) -> None:
    data, feeds = layer(op, kind, dtype)
    (tmp_path / "m.tflite").write_bytes(data)
    graph = passes.run(load(tmp_path / "m.tflite", ModelOptions(rounding="tflite")), HOST)
    ((found,),) = interpreter.run(graph, [feeds])
    # its reference kernels of depthwise convolutions have no weights of 4 bits
    np.testing.assert_array_equal(found, litert(data, feeds, reference=op != "DEPTHWISE_CONV_2D")[0])


@pytest.mark.parametrize(
    ("op", "kind"), [("FULLY_CONNECTED", "INT4"), ("FULLY_CONNECTED", "INT2"), ("CONV_2D", "INT4")]
)
def test_floats(op: str, kind: str, tmp_path: Path) -> None:
    data, feeds = layer(op, kind, np.float32)
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_array_equal(found, litert(data, feeds, reference=True)[0])


def blocks(scales: Array, size: int, dtype: Any = np.float32) -> tuple[bytes, Array, Array]:
    """Return a dense layer with a scale for each block of a row of weights, its weights, and an input."""
    rng, rows = np.random.default_rng(3), scales.shape[0]
    codes, x = rng.integers(-8, 8, (rows, 64)), rng.standard_normal((3, 64)).astype(np.float32)
    is_real = dtype is np.float32
    tensors = [
        T("x", [3, 64], dtype, None if is_real else 0.03), T("s", scales.shape, scales.dtype, data=scales),
        T("w", [rows, 64], np.int8, kind="INT4", data=packed(codes, 4), blocks=(1, -1, size)),
        T("y", [3, rows], dtype, None if is_real else 0.2),
    ]  # fmt: skip
    op = Op("FULLY_CONNECTED", ["x", "w"], ["y"], "FullyConnectedOptions", {})
    data = model(tensors, [op], ["x"], ["y"], versions={op.kind: 12})
    return data, codes * scales.astype(np.float32).repeat(64 // max(scales.shape[1], 1), axis=1), x


def test_scales_per_block(tmp_path: Path) -> None:
    """LiteRT rounds the activations to 8 bits as it runs: its own check of the same bound is `mtool verify`."""
    data, weights, x = blocks(np.random.default_rng(1).uniform(0.01, 0.05, (5, 2)).astype(np.float16), 32)
    (found,) = compute(data, {"x": x}, tmp_path, "tflite", HOST)
    np.testing.assert_allclose(found, x @ weights.T, rtol=1e-5, atol=1e-5)
    bound = np.ptp(x, axis=1)[:, None] / 255 * np.abs(weights).sum(axis=1)
    assert (np.abs(found - litert(data, {"x": x})[0]) <= bound).all()
    data, weights, x = blocks(np.full((5, 2), 0.02, np.float32), 32, np.int8)
    steps = np.rint(x / 0.03).clip(-128, 127).astype(np.int8)
    (found,) = compute(data, {"x": steps}, tmp_path, "onnx", HOST)
    np.testing.assert_array_equal(found, np.rint((steps * np.float32(0.03)) @ weights.T / 0.2).clip(-128, 127))
    data, *_ = blocks(np.full((5, 2), 0.02, np.float32), 16)
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError) as damaged:
        load(tmp_path / "m.tflite")
    assert damaged.value.details[0] == "'w' [5, 64] has 10 scales for blocks of 16"


@pytest.mark.parametrize(
    ("kind", "others", "reason"),
    [
        ("INT4", {"details": 3}, "its input 'w' has scales along several dimensions; expected one, or one per channel"),
        ("INT4", {"details": 2}, "its input 'w' has scales per block that are not constant, or with zero points"),
        ("UINT4", {}, "its input 'w' has elements of type UINT4"),
    ],
)
def test_refused(kind: str, others: dict[str, Any], reason: str, tmp_path: Path) -> None:
    data, _ = layer("FULLY_CONNECTED", kind, np.int8, **others)
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError) as refused:
        load(tmp_path / "m.tflite")
    assert any(reason in line for line in refused.value.details), refused.value.details
