"""All remaining operators and types of TFLite models against LiteRT's default kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, R, compute, drawn, one_model
from tflite_models import Op, T, litert

from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset())
I8, U8, I16, I32, I64, F32, F16, BOOL = (
    np.int8, np.uint8, np.int16, np.int32, np.int64, np.float32, np.float16, np.bool_,
)  # fmt: skip
X = [2, 4, 6, 3]
TOGETHER = 12  # operators in a model: passes take longer for large ones
COARSE = {"LOGISTIC_i16.y": 8}  # LiteRT's own int16 table is no better, in steps of 1/32768


def whole(name: str, data: Any, dtype: Any = I32) -> T:
    array = np.asarray(data, dtype)
    return T(name, array.shape, dtype, data=array)


def of(
    kind: str,
    inputs: Sequence[T],
    out: T | Sequence[T],
    options: str = "",
    values: Mapping[str, Any] | None = None,
    *,
    tag: str = "",
) -> Case:
    outputs = [out] if isinstance(out, T) else list(out)
    op = Op(kind, [t.name for t in inputs], [t.name for t in outputs], options, values or {})
    return Case(f"{kind}{tag}", op, [*inputs, *outputs])


def f(name: str, shape: Sequence[int]) -> T:
    return T(name, shape)


def q(name: str, shape: Sequence[int], dtype: Any = I8, scale: float = 0.05, zero: int = 3) -> T:
    return T(name, shape, dtype, scale, zero)


def random(name: str, shape: Sequence[int], dtype: Any = F32, scale: Any = None, axis: int = 0) -> T:
    if np.dtype(dtype).kind == "f":
        return T(name, shape, dtype, data=R.standard_normal(shape).astype(dtype) * dtype(0.2))
    return T(name, shape, dtype, scale, 0, axis, R.integers(-127, 127, shape, endpoint=True).astype(dtype))


def both(
    kind: str, out: Sequence[int], *more: T, options: str = "", values: Mapping[str, Any] | None = None
) -> list[Case]:
    """An operator that moves elements, of float32 and of int8."""
    return [
        of(kind, [f("x", X), *more], f("y", out), options, values, tag="_f32"),
        of(kind, [q("x", X), *more], q("y", out), options, values, tag="_i8"),
    ]


CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
POOL = {"StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 3, "Padding": 0}

FLOAT = [
    *(
        of(kind, [f("a", X), f("b", [1, 6, 3])], f("y", X), options, {"FusedActivationFunction": act}, tag=f"_{act}")
        for kind, options, act in (
            ("ADD", "AddOptions", 1),
            ("SUB", "SubOptions", 0),
            ("MUL", "MulOptions", 3),
            ("DIV", "DivOptions", 0),
        )
    ),
    *(of(kind, [f("a", X), f("b", X)], f("y", X), "MaximumMinimumOptions") for kind in ("MAXIMUM", "MINIMUM")),
    of("SQUARED_DIFFERENCE", [f("a", X), f("b", X)], f("y", X)),
    of("FLOOR_DIV", [f("a", X), f("b", X)], f("y", X)),
    of("FLOOR_MOD", [f("a", X), f("b", X)], f("y", X)),
    of("PRELU", [f("x", X), random("slope", [1, 1, 3])], f("y", X)),
    of("ADD_N", [f("a", X), f("b", X), f("c", X)], f("y", X)),
    *(
        of(kind, [f("x", X)], f("y", X))
        for kind in (
            "RELU",
            "RELU6",
            "RELU_N1_TO_1",
            "LOGISTIC",
            "TANH",
            "ELU",
            "EXP",
            "ABS",
            "NEG",
            "SIN",
            "COS",
            "FLOOR",
            "CEIL",
            "ROUND",
            "SQUARE",
            "HARD_SWISH",
            "RELU_0_TO_1",
        )
    ),
    of("LEAKY_RELU", [f("x", X)], f("y", X), "LeakyReluOptions", {"Alpha": 0.2}),
    of("GELU", [f("x", X)], f("y", X), "GeluOptions", {"Approximate": False}),
    of("GELU", [f("x", X)], f("y", X), "GeluOptions", {"Approximate": True}, tag="_tanh"),
    *(
        of(kind, [T("x", X, F32, data=R.uniform(0.1, 5, X).astype(F32)), f("b", X)], f("y", X), options)
        for kind, options in (("POW", "PowOptions"),)
    ),
    of("SOFTMAX", [f("x", [3, 9])], f("y", [3, 9]), "SoftmaxOptions", {"Beta": 0.7}),
    of("SOFTMAX", [f("x", [3, 9])], f("y", [3, 9]), "SoftmaxOptions", {"Beta": 3e38}, tag="_steep"),
    of("SOFTMAX", [f("x", [3, 9])], f("y", [3, 9]), tag="_without_options"),
    of("LOG_SOFTMAX", [f("x", [3, 9])], f("y", [3, 9])),
    of("L2_NORMALIZATION", [f("x", X)], f("y", X), "L2NormOptions", {}),
    of(
        "CONV_2D", [f("x", X), random("w", [5, 3, 3, 3]), random("b", [5])], f("y", [2, 4, 6, 5]), "Conv2DOptions", CONV
    ),
    of(
        "DEPTHWISE_CONV_2D",
        [f("x", X), random("w", [1, 3, 3, 6]), random("b", [6])],
        f("y", [2, 4, 6, 6]),
        "DepthwiseConv2DOptions",
        {**CONV, "DepthMultiplier": 2},
    ),
    of(
        "TRANSPOSE_CONV",
        [whole("s", [2, 8, 12, 5]), random("w", [5, 3, 3, 3]), f("x", X)],
        f("y", [2, 8, 12, 5]),
        "TransposeConvOptions",
        {"StrideH": 2, "StrideW": 2, "Padding": 0},
    ),
    of(
        "TRANSPOSE_CONV",
        [whole("s", [2, 9, 13, 5]), random("w", [5, 3, 3, 3]), f("x", X)],
        f("y", [2, 9, 13, 5]),
        "TransposeConvOptions",
        {"StrideH": 2, "StrideW": 2, "Padding": 1},
        tag="_valid",
    ),
    of(
        "FULLY_CONNECTED",
        [f("x", [4, 10]), random("w", [7, 10]), random("b", [7])],
        f("y", [4, 7]),
        "FullyConnectedOptions",
        {"FusedActivationFunction": 1},
    ),
    of(
        "FULLY_CONNECTED",
        [f("x", [4, 10]), f("w", [7, 10])],
        f("y", [4, 7]),
        "FullyConnectedOptions",
        {},
        tag="_dynamic",
    ),
    of("BATCH_MATMUL", [f("a", [2, 3, 4]), f("b", [2, 4, 5])], f("y", [2, 3, 5]), "BatchMatMulOptions", {}),
    of(
        "BATCH_MATMUL",
        [f("a", [2, 3, 4]), f("b", [2, 5, 4])],
        f("y", [2, 3, 5]),
        "BatchMatMulOptions",
        {"AdjY": True},
        tag="_adj",
    ),
    of("AVERAGE_POOL_2D", [f("x", X)], f("y", [2, 2, 3, 3]), "Pool2DOptions", POOL),
    of("MAX_POOL_2D", [f("x", X)], f("y", [2, 2, 3, 3]), "Pool2DOptions", {**POOL, "FusedActivationFunction": 1}),
    of(
        "RESIZE_BILINEAR",
        [f("x", X), whole("s", [7, 9])],
        f("y", [2, 7, 9, 3]),
        "ResizeBilinearOptions",
        {"HalfPixelCenters": True},
    ),
    of(
        "RESIZE_BILINEAR",
        [f("x", X), whole("s", [7, 9])],
        f("y", [2, 7, 9, 3]),
        "ResizeBilinearOptions",
        {"AlignCorners": True},
        tag="_corners",
    ),
    of(
        "RESIZE_BILINEAR",
        [f("x", X), whole("s", [7, 9])],
        f("y", [2, 7, 9, 3]),
        "ResizeBilinearOptions",
        {},
        tag="_plain",
    ),
    *(
        of(kind, [f("x", X), whole("a", [1, -1])], f("y", [2, 6]), "ReducerOptions", {"KeepDims": False})
        for kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    ),
    of("SUM", [f("x", X), whole("a", [0])], f("y", X[1:]), "ReducerOptions", {"KeepDims": False}, tag="_first_axis"),
    of("CUMSUM", [f("x", X), whole("a", 2)], f("y", X), "CumsumOptions", {"Exclusive": True, "Reverse": True}),
    *(
        of(kind, [f("a", X), f("b", X)], T("y", X, BOOL))
        for kind in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    ),
    *(of(kind, [T("a", X, BOOL), T("b", X, BOOL)], T("y", X, BOOL)) for kind in ("LOGICAL_AND", "LOGICAL_OR")),
    of("LOGICAL_NOT", [T("a", X, BOOL)], T("y", X, BOOL)),
    *(
        of(kind, [T("a", X, BOOL), whole("axes", [1, 3])], T("y", [2, 6], BOOL), "ReducerOptions", {})
        for kind in ("REDUCE_ANY", "REDUCE_ALL")
    ),
    of("SELECT", [T("c", X, BOOL), f("a", X), f("b", X)], f("y", X)),
    of("SELECT_V2", [T("c", [6, 1], BOOL), f("a", X), f("b", [3])], f("y", X)),
    of("CAST", [f("x", X)], T("y", X, I32), "CastOptions", {"InDataType": 0, "OutDataType": 2}),
    of("QUANTIZE", [f("x", X)], q("y", X), "QuantizeOptions"),
    of("DEQUANTIZE", [q("x", X)], f("y", X), "DequantizeOptions"),
    of("ADD", [T("a", X, I32), T("b", X, I32)], T("y", X, I32), "AddOptions", tag="_i32"),
    of("FLOOR_DIV", [T("a", X, I32), T("b", X, I32)], T("y", X, I32), tag="_i32"),
    of("FLOOR_MOD", [T("a", X, I32), T("b", X, I32)], T("y", X, I32), tag="_i32"),
    of("SELECT", [T("c", [2], BOOL), f("a", X), f("b", X)], f("y", X), tag="_first_axis"),
    of(
        "FULLY_CONNECTED",
        [f("x", [2, 3, 10]), random("w", [7, 10]), random("b", [7])],
        f("y", [2, 3, 7]),
        "FullyConnectedOptions",
        {"KeepNumDims": True},
        tag="_keep",
    ),
    of(
        "FULLY_CONNECTED",
        [f("x", [2, 3, 10]), random("w", [7, 10])],
        f("y", [6, 7]),
        "FullyConnectedOptions",
        {},
        tag="_flat",
    ),
    *(
        of(kind, [f("x", X), whole("axis", axis)], T("y", out, I64), options, {"OutputType": 4})
        for kind, axis, out, options in (
            ("ARG_MAX", 3, [2, 4, 6], "ArgMaxOptions"),
            ("ARG_MIN", 1, [2, 6, 3], "ArgMinOptions"),
        )
    ),
    of(
        "ARG_MAX", [q("x", X), whole("axis", -1)], T("y", [2, 4, 6], I32), "ArgMaxOptions", {"OutputType": 2}, tag="_i8"
    ),
    *(
        of(
            kind,
            [f("x", [1, 8, 8, 3]), random("w", [count, 3, 2, depth]), random("b", [3])],
            f("y", out),
            f"{options}Options",
            {**CONV, **steps, "DepthMultiplier": 1} if kind.startswith("DEPTH") else {**CONV, **steps},
            tag=f"_{tag}",
        )
        for kind, options, count, depth in (
            ("CONV_2D", "Conv2D", 3, 3),
            ("DEPTHWISE_CONV_2D", "DepthwiseConv2D", 1, 3),
        )
        for tag, out, steps in (
            ("strides", [1, 4, 3, 3], {"StrideH": 2, "StrideW": 3}),
            ("apart", [1, 8, 8, 3], {"DilationHFactor": 3, "DilationWFactor": 2}),
            ("valid", [1, 3, 7, 3], {"Padding": 1, "StrideH": 2}),
        )
    ),
]

MOVES = [
    *both("RESHAPE", [6, 24], whole("s", [6, 24]), options="ReshapeOptions"),
    *both("SQUEEZE", X, options="SqueezeOptions"),
    *both("EXPAND_DIMS", [2, 1, 4, 6, 3], whole("a", 1)),
    *both("TRANSPOSE", [6, 2, 3, 4], whole("p", [2, 0, 3, 1])),
    *both("PAD", [2, 7, 9, 3], whole("p", [[0, 0], [1, 2], [3, 0], [0, 0]])),
    *both(
        "MIRROR_PAD",
        [2, 7, 9, 3],
        whole("p", [[0, 0], [1, 2], [3, 0], [0, 0]]),
        options="MirrorPadOptions",
        values={"Mode": 0},
    ),
    of(
        "MIRROR_PAD",
        [f("x", X), whole("p", [[0, 0], [1, 2], [3, 0], [0, 0]])],
        f("y", [2, 7, 9, 3]),
        "MirrorPadOptions",
        {"Mode": 1},
        tag="_symmetric",
    ),
    of("PADV2", [f("x", X), whole("p", [[0, 0], [1, 2], [3, 0], [0, 0]]), whole("v", 2.5, F32)], f("y", [2, 7, 9, 3])),
    of("CONCATENATION", [f("a", X), f("b", X)], f("y", [2, 8, 6, 3]), "ConcatenationOptions", {"Axis": 1}),
    of("CONCATENATION", [q("a", X), q("b", X)], q("y", [2, 4, 6, 6]), "ConcatenationOptions", {"Axis": -1}, tag="_i8"),
    of("PACK", [f("a", X), f("b", X)], f("y", [2, 4, 2, 6, 3]), "PackOptions", {"Axis": 2, "ValuesCount": 2}),
    of("UNPACK", [f("x", X)], [f("y", [4, 6, 3]), f("z", [4, 6, 3])], "UnpackOptions", {"Axis": 0, "Num": 2}),
    of(
        "SPLIT",
        [whole("a", 2), f("x", X)],
        [f("y", [2, 4, 3, 3]), f("z", [2, 4, 3, 3])],
        "SplitOptions",
        {"NumSplits": 2},
    ),
    of(
        "SPLIT",
        [whole("a", 2), q("x", X)],
        [q("y", [2, 4, 3, 3]), q("z", [2, 4, 3, 3])],
        "SplitOptions",
        {"NumSplits": 2},
        tag="_i8",
    ),
    of(
        "SPLIT_V",
        [f("x", X), whole("s", [2, -1]), whole("a", 2)],
        [f("y", [2, 4, 2, 3]), f("z", [2, 4, 4, 3])],
        "SplitVOptions",
        {"NumSplits": 2},
    ),
    *both("SLICE", [1, 2, 6, 3], whole("b", [1, 2, 0, 0]), whole("s", [1, 2, -1, 3])),
    *both(
        "STRIDED_SLICE",
        [2, 2, 2, 3],
        whole("b", [0, 3, 5, 0]),
        whole("e", [2, -5, 1, 3]),
        whole("s", [1, -2, -2, 1]),
        options="StridedSliceOptions",
        values={"EndMask": 2},
    ),
    *both(
        "STRIDED_SLICE",
        [2, 6, 3],
        whole("b", [0, -1, 0]),
        whole("e", [0, 0, 6]),
        whole("s", [1, 1, 1]),
        options="StridedSliceOptions",
        values={"EndMask": 1, "ShrinkAxisMask": 2},
    )[:1],
    of(
        "STRIDED_SLICE",
        [f("x", X), whole("b", [0, -1, 0]), whole("e", [0, 0, 6]), whole("s", [1, 1, 1])],
        f("y", [2, 6, 3]),
        "StridedSliceOptions",
        {"BeginMask": 2, "EndMask": 1, "ShrinkAxisMask": 2},
        tag="_begun",
    ),
    of(
        "STRIDED_SLICE",
        [f("x", X), whole("b", [-1, -3, 4, 1]), whole("e", [1, 2, -3, 2]), whole("s", [1, 1, -2, 1])],
        f("y", [1, 2, 2, 2]),
        "StridedSliceOptions",
        {"Offset": 1},
        tag="_offset",
    ),
    *both("GATHER", [2, 3, 6, 3], whole("i", [3, 0, 1]), options="GatherOptions", values={"Axis": 1}),
    *both("GATHER_ND", [3, 6, 3], whole("i", [[1, 3], [0, 0], [1, 1]])),
    *both("TILE", [2, 8, 6, 9], whole("m", [1, 2, 1, 3])),
    *both("BROADCAST_TO", [3, 2, 4, 6, 3], whole("m", [3, 2, 4, 6, 3]))[:1],
    of("FILL", [whole("s", [2, 3]), T("v", [], F32)], f("y", [2, 3])),
    *both("REVERSE_V2", X, whole("a", [2])),
    of("SHAPE", [f("x", X)], T("y", [4], I32), "ShapeOptions", {"OutType": 2}),
    *both("SPACE_TO_DEPTH", [2, 2, 3, 12], options="SpaceToDepthOptions", values={"BlockSize": 2}),
    of("DEPTH_TO_SPACE", [q("x", [2, 2, 3, 12])], q("y", X), "DepthToSpaceOptions", {"BlockSize": 2}),
    *both("SPACE_TO_BATCH_ND", [8, 3, 3, 3], whole("b", [2, 2]), whole("p", [[0, 2], [0, 0]])),
    of("BATCH_TO_SPACE_ND", [q("x", [8, 3, 3, 3]), whole("b", [2, 2]), whole("c", [[1, 1], [0, 0]])], q("y", X)),
    *both(
        "RESIZE_NEAREST_NEIGHBOR",
        [2, 7, 9, 3],
        whole("s", [7, 9]),
        options="ResizeNearestNeighborOptions",
        values={"HalfPixelCenters": True},
    ),
    of(
        "RESIZE_NEAREST_NEIGHBOR",
        [f("x", X), whole("s", [7, 11])],
        f("y", [2, 7, 11, 3]),
        "ResizeNearestNeighborOptions",
        {"AlignCorners": True},
        tag="_corners",
    ),
    of(
        "RESIZE_NEAREST_NEIGHBOR",
        [f("x", X), whole("s", [8, 9])],
        f("y", [2, 8, 9, 3]),
        "ResizeNearestNeighborOptions",
        {},
        tag="_plain",
    ),
    of(
        "PACK",
        [q("a", X), q("b", X)],
        q("y", [2, 4, 6, 3, 2]),
        "PackOptions",
        {"Axis": -1, "ValuesCount": 2},
        tag="_i8",
    ),
]

STEPS = [
    of(
        "ADD",
        [q("a", X, I16, 0.0005, 0), q("b", X, I16, 0.0003, 0)],
        q("y", X, I16, 0.0008, 0),
        "AddOptions",
        tag="_i16",
    ),
    of(
        "CONV_2D",
        [
            q("x", X, I16, 0.001, 0),
            random("w", [5, 3, 3, 3], I8, R.uniform(0.002, 0.01, 5)),
            T("b", [5], I64, data=R.integers(-(2**20), 2**20, 5)),
        ],
        q("y", [2, 4, 6, 5], I16, 0.004, 0),
        "Conv2DOptions",
        CONV,
        tag="_i16",
    ),
    of(
        "FULLY_CONNECTED",
        [q("x", [4, 10], I16, 0.001, 0), random("w", [7, 10], I8, 0.01)],
        q("y", [4, 7], I16, 0.003, 0),
        "FullyConnectedOptions",
        {},
        tag="_i16",
    ),
    of(
        "CONV_2D",
        [
            q("x", X, U8, 0.05, 120),
            T("w", [5, 3, 3, 3], U8, 0.01, 117, 0, R.integers(0, 256, [5, 3, 3, 3]).astype(U8)),
            T("b", [5], I32, data=R.integers(-900, 900, 5).astype(I32)),
        ],
        q("y", [2, 4, 6, 5], U8, 0.1, 99),
        "Conv2DOptions",
        {**CONV, "FusedActivationFunction": 1},
        tag="_u8",
    ),
    of("ADD", [q("a", X, U8, 0.05, 120), q("b", X, U8, 0.03, 99)], q("y", X, U8, 0.07, 128), "AddOptions", tag="_u8"),
    of(
        "SOFTMAX",
        [q("x", [3, 9], U8, 0.05, 120)],
        q("y", [3, 9], U8, 1 / 256, 0),
        "SoftmaxOptions",
        {"Beta": 1.0},
        tag="_u8",
    ),
    of("LOGISTIC", [q("x", X, I16, 8 / 32768, 0)], q("y", X, I16, 1 / 32768, 0), tag="_i16"),
    of(
        "TRANSPOSE_CONV",
        [whole("s", [2, 8, 12, 5]), random("w", [5, 3, 3, 3], I8, R.uniform(0.002, 0.01, 5)), q("x", X)],
        q("y", [2, 8, 12, 5], I8, 0.04, -7),
        "TransposeConvOptions",
        {"StrideH": 2, "StrideW": 2, "Padding": 0},
        tag="_i8",
    ),
    of("HARD_SWISH", [q("x", X)], q("y", X, I8, 0.03, -100), "HardSwishOptions", tag="_i8"),
    of("PRELU", [q("x", X), random("slope", [1, 1, 3], I8, 0.01)], q("y", X, I8, 0.06, -20), tag="_i8"),
    of("MAXIMUM", [q("a", X), q("b", X)], q("y", X), "MaximumMinimumOptions", tag="_i8"),
    of(
        "RESIZE_BILINEAR",
        [q("x", X), whole("s", [7, 9])],
        q("y", [2, 7, 9, 3]),
        "ResizeBilinearOptions",
        {"HalfPixelCenters": True},
        tag="_i8",
    ),
    of("SUM", [q("x", X), whole("a", [1])], q("y", [2, 6, 3], I8, 0.2, 3), "ReducerOptions", {}, tag="_i8"),
    of("SUM", [q("x", X), whole("a", [1])], q("y", [2, 6, 3]), "ReducerOptions", {}, tag="_i8_one_grid"),
    of("REDUCE_MAX", [q("x", X), whole("a", [1])], q("y", [2, 6, 3]), "ReducerOptions", {}, tag="_i8"),
    of(
        "BATCH_MATMUL",
        [q("a", [2, 3, 4]), q("b", [2, 4, 5])],
        q("y", [2, 3, 5], I8, 0.2, -8),
        "BatchMatMulOptions",
        {},
        tag="_i8",
    ),
    of("LESS", [q("a", X), q("b", X, I8, 0.05, 3)], T("y", X, BOOL), tag="_i8"),
]


def differences(cases: Sequence[Case], folder: Path) -> dict[str, float]:
    """Return by how much each output differs from LiteRT's: integers in steps, floats relative to numbers above 1."""
    found: dict[str, float] = {}
    for start in range(0, len(cases), TOGETHER):
        found |= compared(cases[start : start + TOGETHER], folder)
    return found


def compared(cases: Sequence[Case], folder: Path) -> dict[str, float]:
    data, inputs, outputs = one_model(cases)
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    expected = litert(data, feeds)
    found = compute(data, feeds, folder, "onnx", HOST)
    return {
        name: float(
            (np.abs(a.astype(np.float64) - b) / (np.maximum(1.0, np.abs(b)) if b.dtype.kind == "f" else 1)).max()
        )
        for name, a, b in zip(outputs, found, expected, strict=True)
    }


def test_float_operators(tmp_path: Path) -> None:
    found = differences(FLOAT, tmp_path)
    assert {name: much for name, much in found.items() if not much <= 2e-5} == {}


@pytest.mark.slow
def test_operators_that_move_elements(tmp_path: Path) -> None:
    assert {name: much for name, much in differences(MOVES, tmp_path).items() if much} == {}


MOVED_AS_STORED = (
    "RESHAPE", "SQUEEZE", "SLICE", "STRIDED_SLICE", "GATHER", "GATHER_ND", "TILE", "REVERSE_V2",
    "RESIZE_NEAREST_NEIGHBOR",
)  # fmt: skip


def test_elements_move_as_they_are_stored(tmp_path: Path) -> None:
    moves = []
    for case in MOVES:
        if case.name in {f"{kind}_i8" for kind in MOVED_AS_STORED}:
            coarse = [replace(t, scale=0.5) if t.name in case.op.outputs else t for t in case.tensors]
            moves.append(Case(case.name, case.op, coarse))
    assert len(moves) == len(MOVED_AS_STORED)
    assert {name: much for name, much in differences(moves, tmp_path).items() if much} == {}


def test_integer_operators_of_every_width(tmp_path: Path) -> None:
    assert {name: much for name, much in differences(STEPS, tmp_path).items() if not much <= COARSE.get(name, 1)} == {}
