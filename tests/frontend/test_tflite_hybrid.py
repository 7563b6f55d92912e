"""Float activations with int8 weights, with `--rounding tflite`: the numbers of LiteRT's reference kernels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, compute, one_model
from tflite_models import Array, Op, T, litert

from mtool.kernels.target import Target

R = np.random.default_rng(11)
TARGETS = [
    Target("host", frozenset({"fpu"})),
    Target("cortex-m3", frozenset()),
    Target("cortex-m4", frozenset({"fpu", "dsp"})),
    Target("cortex-m55", frozenset({"fpu", "dsp", "mve"})),
]
WINDOW = {"StrideH": 2, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
IMAGE = [1, 9, 7, 6]


def case(kind: str, x: list[int], w: list[int], y: list[int], axis: int, scales: int, **values: Any) -> Case:
    """Return an operator with weights of one scale, or of one a channel."""
    options = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    scale = R.uniform(0.002, 0.03, scales) if scales > 1 else 0.0113
    weights = T("w", w, np.int8, scale, 0, axis, R.integers(-127, 128, w).astype(np.int8))
    bias = [T("b", [w[axis]], data=R.standard_normal(w[axis]).astype(np.float32))] if "NoBias" not in values else []
    values.pop("NoBias", None)
    name = f"{kind}{scales}" + "".join(f"{key}{value}" for key, value in values.items())
    inputs = ["x", "w", *(tensor.name for tensor in bias)]
    op = Op(kind, inputs, ["y"], options.get(kind, "FullyConnectedOptions"), values)
    return Case(name, op, [T("x", x), weights, *bias, T("y", y)])


def cases() -> list[Case]:
    """Return one operator of each form: scales, ranges around zero or not, rows, groups, strides, activations."""
    conv, image = {**WINDOW, "FusedActivationFunction": 1}, [1, 5, 7]
    dense, flat = "FULLY_CONNECTED", {"AsymmetricQuantizeInputs": True}
    return [
        case(dense, [3, 50], [11, 50], [3, 11], 0, 1),
        case(dense, [3, 50], [11, 50], [3, 11], 0, 1, **flat, FusedActivationFunction=1),
        case(dense, [1, 64], [16, 64], [1, 16], 0, 16, NoBias=True),
        case(dense, [1, 33], [8, 33], [1, 8], 0, 8, **flat),
        case(dense, [1, 2, 3, 8], [4, 8], [1, 2, 3, 4], 0, 1, KeepNumDims=True),
        case("CONV_2D", IMAGE, [8, 3, 3, 6], [*image, 8], 0, 1, **conv),
        case("CONV_2D", IMAGE, [8, 3, 3, 6], [*image, 8], 0, 8, **conv),
        case("CONV_2D", [2, 9, 7, 6], [7, 3, 3, 6], [2, 5, 7, 7], 0, 7, **conv),
        case("CONV_2D", IMAGE, [6, 3, 3, 3], [*image, 6], 0, 6, **conv),
        case("CONV_2D", [1, 9, 7, 6], [5, 1, 1, 6], [1, 9, 7, 5], 0, 5, **{**WINDOW, "StrideH": 1}),
        case("DEPTHWISE_CONV_2D", IMAGE, [1, 3, 3, 6], [*image, 6], 3, 6, **conv, DepthMultiplier=1),
        case("DEPTHWISE_CONV_2D", [1, 9, 7, 6], [1, 3, 3, 12], [1, 5, 7, 12], 3, 12, **WINDOW, DepthMultiplier=2),
    ]


def rows(tensor: T) -> Array:
    """Return numbers of another range in each row, some of which are halves of a step, and zeros alone in the last."""
    data = (R.standard_normal(tensor.shape) * 3 + R.uniform(-2, 2)).astype(np.float32)
    data[0].reshape(-1)[:3] = (127, 12.5, -0.5)  # of steps of 1 around zero, where nothing is farther out
    if len(data) > 2:
        data[-1] = 0
    return data


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_the_numbers_are_those_of_the_reference_kernels(target: Target, tmp_path: Path) -> None:
    data, inputs, outputs = one_model(cases())
    feeds = {tensor.name: rows(tensor) for tensor in inputs}
    expected = litert(data, feeds, reference=True)
    found = compute(data, feeds, tmp_path, "tflite", target)
    furthest = {n: float(np.abs(f - e).max()) for n, f, e in zip(outputs, found, expected, strict=True)}
    assert furthest == dict.fromkeys(outputs, 0.0)
