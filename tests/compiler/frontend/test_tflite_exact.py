"""`--rounding tflite` on tensors with every kind of tie: the bytes of LiteRT's reference kernels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, R, compute, drawn, one_model
from tflite_models import Op, T, litert, model

from mtool.compiler.frontend.tflite.fixed_point import rescaled
from mtool.compiler.kernels.target import Target

FEATURES = [frozenset(found) for found in ({"fpu"}, (), {"fpu", "dsp"}, {"fpu", "dsp", "mve"})]
IMAGE = [1, 24, 24, 16]
CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
POOL = {"StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 3, "Padding": 0}


def cases(dtype: Any, zero: int, *, per_channel: bool) -> list[Case]:
    signed = dtype is np.int8

    def w(shape: list[int], axis: int) -> T:
        data = R.integers(-127 if signed else 0, 128 if signed else 256, shape)
        scale = R.uniform(0.003, 0.02, shape[axis]) if per_channel else 0.0113
        return T("w", shape, dtype, scale, 0 if signed else 121, axis, data.astype(dtype))

    def b(count: int) -> T:
        return T("b", [count], np.int32, data=R.integers(-2000, 2000, count))

    def t(name: str, shape: list[int], scale: float, point: int = zero) -> T:
        return T(name, shape, dtype, scale, point)

    def case(kind: str, options: str, values: dict[str, Any], *tensors: T, inputs: str = "xwb") -> Case:
        return Case(kind, Op(kind, list(inputs), ["y"], options, values), tensors)

    depth = {**CONV, "DepthMultiplier": 1}
    wide = {"StrideH": 2, "StrideW": 2, "Padding": 0}
    shape = T("s", [4], np.int32, data=np.asarray([1, 48, 48, 5]))
    found = [
        case(
            "FULLY_CONNECTED",
            "FullyConnectedOptions",
            {},
            t("x", [300, 32], 0.05),
            w([24, 32], 0),
            b(24),
            t("y", [300, 24], 0.37),
        ),
        case(
            "CONV_2D",
            "Conv2DOptions",
            CONV,
            t("x", IMAGE, 0.05),
            w([8, 1, 1, 16], 0),
            b(8),
            t("y", [1, 24, 24, 8], 0.21),
        ),
        case(
            "DEPTHWISE_CONV_2D",
            "DepthwiseConv2DOptions",
            depth,
            t("x", IMAGE, 0.05),
            w([1, 3, 3, 16], 3),
            b(16),
            t("y", IMAGE, 0.21),
        ),
        case(
            "TRANSPOSE_CONV",
            "TransposeConvOptions",
            wide,
            shape,
            w([5, 3, 3, 16], 0),
            t("x", IMAGE, 0.05),
            t("y", [1, 48, 48, 5], 0.3),
            inputs="swx",
        ),
    ]
    if per_channel:
        return found
    operands = t("a", IMAGE, 0.05), t("b", IMAGE, 0.0371, zero + 2), t("y", IMAGE, 0.0613, zero - 9)
    low = -128 if signed else 0
    places = T("w", [2], np.int32, data=np.asarray([1, 2]))
    return [
        *found,
        *(case(kind, f"{kind.title()}Options", {}, *operands, inputs="ab") for kind in ("ADD", "SUB", "MUL")),
        case("AVERAGE_POOL_2D", "Pool2DOptions", POOL, t("x", IMAGE, 0.05), t("y", [1, 12, 12, 16], 0.05), inputs="x"),
        case(
            "MEAN", "ReducerOptions", {}, t("x", [300, 7, 5, 16], 0.05), places, t("y", [300, 16], 0.0131), inputs="xw"
        ),
        case(
            "SOFTMAX",
            "SoftmaxOptions",
            {"Beta": 1.0},
            t("x", [900, 7], 0.021),
            t("y", [900, 7], 1 / 256, low),
            inputs="x",
        ),
    ]


@pytest.mark.product(3)
@pytest.mark.parametrize("features", FEATURES, ids=["-".join(sorted(found)) or "none" for found in FEATURES])
@pytest.mark.parametrize(
    ("dtype", "zero", "per_channel"), [(np.int8, -4, True), (np.int8, -4, False), (np.uint8, 120, False)]
)
def test_bytes_of_the_reference_kernels(
    dtype: Any, zero: int, per_channel: bool, features: frozenset[str], tmp_path: Path
) -> None:
    data, inputs, outputs = one_model(cases(dtype, zero, per_channel=per_channel))
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    expected = litert(data, feeds, reference=True)
    found = compute(data, feeds, tmp_path, "tflite", Target("cortex-m4", features))
    differing = {n: int((f != e).sum()) for n, f, e in zip(outputs, found, expected, strict=True)}
    assert differing == dict.fromkeys(outputs, 0)


@pytest.mark.parametrize("rows", [3, 8])  # 8: as many as each has numbers
@pytest.mark.parametrize("keep", [True, False])
def test_a_product_keeps_its_dimensions_with_the_option(keep: bool, rows: int, tmp_path: Path) -> None:
    weights = R.integers(-127, 128, (5, 8))
    tensors = [
        T("x", [2, rows, 8], np.int8, 0.05, -4),
        T("w", [5, 8], np.int8, 0.01, 0, 0, weights),
        T("y", [2, rows, 5] if keep else [2 * rows, 5], np.int8, 0.21, 3),
    ]
    op = Op("FULLY_CONNECTED", ["x", "w", ""], ["y"], "FullyConnectedOptions", {"KeepNumDims": keep})
    data, inputs, _ = one_model([Case("kept", op, tensors)])
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    (expected,) = litert(data, feeds, reference=True)
    (found,) = compute(data, feeds, tmp_path, "tflite", Target("cortex-m4", FEATURES[0]))
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def element_cases(dtype: Any) -> list[Case]:
    """Operators that read float32, or pick, join, resize or bend integers."""
    signed = dtype is np.int8
    zero = -4 if signed else 120

    def t(name: str, shape: Any, scale: float = 0.05, point: int = zero) -> T:
        return T(name, shape, dtype, scale, point)

    def case(tag: str, kind: str, inputs: list[T], out: T, options: str = "", values: Any = None) -> Case:
        return Case(tag, Op(kind, [x.name for x in inputs], ["y"], options, values or {}), [*inputs, out])

    found = [case("quantize", "QUANTIZE", [T("x", [40, 50])], t("y", [40, 50], 0.0371), "QuantizeOptions")]
    for number, (coarse, fine, point) in enumerate(((0.05, 0.04, zero), (0.03, 0.01, zero + 9), (0.2, 0.19, zero))):
        shape = [2, 400]
        tensors = [t("x", shape, coarse, point)], t("y", shape, fine, point + 5)
        found.append(case(f"swish{number}", "HARD_SWISH", *tensors, "HardSwishOptions"))
    for kind in ("MAXIMUM", "MINIMUM"):
        found.append(case(kind, kind, [t("a", [4, 7, 3]), t("b", [7, 1])], t("y", [4, 7, 3]), "MaximumMinimumOptions"))
    grown = ([1, 5, 7, 3], [9, 20]), ([2, 9, 8, 2], [4, 3]), ([1, 6, 6, 2], [6, 1]), ([1, 5, 4, 6], [10, 12])
    for number, (shape, size) in enumerate(grown):
        for corners, centres in ((False, False), (True, False), (False, True)):
            places = T("s", [2], np.int32, data=np.asarray(size))
            made = t("y", [shape[0], *size, shape[3]])
            values = {"AlignCorners": corners, "HalfPixelCenters": centres}
            tag = f"resize{number}{corners}{centres}"
            found.append(case(tag, "RESIZE_BILINEAR", [t("x", shape), places], made, "ResizeBilinearOptions", values))
    if not signed:
        parts = [t("a", [3, 40]), t("b", [3, 50], 0.061, 99), t("c", [3, 20], 0.02, 10)]
        found.append(case("joined", "CONCATENATION", parts, t("y", [3, 110]), "ConcatenationOptions", {"Axis": 1}))
    else:
        operands = [T(name, [30, 40], np.int16, 0.001, 0) for name in "ab"]
        found.append(case("mul16", "MUL", operands, T("y", [30, 40], np.int16, 0.0009, 0), "MulOptions"))
    return found


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_elements_are_those_of_the_reference_kernels(dtype: Any, tmp_path: Path) -> None:
    check(element_cases(dtype), tmp_path)


def check(cases: list[Case], folder: Path) -> None:
    data, inputs, outputs = one_model(cases)
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    expected = litert(data, feeds, reference=True)
    found = compute(data, feeds, folder, "tflite", Target("host", frozenset()))
    differing = {n: int((f != e).sum()) for n, f, e in zip(outputs, found, expected, strict=True)}
    assert differing == dict.fromkeys(outputs, 0)


def wide_cases() -> list[Case]:
    """Operators of int16 activations."""

    def t(name: str, shape: Any, scale: float = 0.0005) -> T:
        return T(name, shape, np.int16, scale, 0)

    def w(shape: list[int], axis: int) -> T:
        data = R.integers(-127, 128, shape)
        return T("w", shape, np.int8, R.uniform(0.003, 0.02, shape[axis]), 0, axis, data.astype(np.int8))

    def b(count: int) -> T:
        return T("b", [count], np.int64, data=R.integers(-200000, 200000, count))

    depth = {**CONV, "DepthMultiplier": 1}
    image = [1, 9, 9, 40]
    conv = [t("x", image), w([8, 3, 3, 40], 0), b(8), t("y", [1, 9, 9, 8], 0.0021)]
    deep = [t("x", image), w([1, 3, 3, 40], 3), b(40), t("y", image, 0.0013)]
    flat = [t("x", [30, 600]), T("w", [9, 600], np.int8, 0.01, data=R.integers(-127, 128, [9, 600])), b(9)]
    flat.append(t("y", [30, 9], 0.0043))
    rows = [flat[0], w([9, 600], 0), *flat[2:]]
    spread = [
        (name, [2, 4, 5, 40], padding, strides, [5, 3, 2, 40], [2, *made, 5])
        for name, padding, strides, made in (
            ("same", 0, (2, 3), (8, 15)),
            ("valid", 1, (2, 3), (9, 14)),
            ("longer", 1, (2, 3), (10, 16)),
            ("gaps", 0, (4, 1), (13, 5)),
            ("beyond", 0, (2, 3), (7, 13)),
        )
    ]
    pairs = [t("a", [2, 5, 70]), t("b", [2, 6, 70], 0.0007), t("y", [2, 5, 6], 0.003)]
    narrow = [T(x.name, x.shape, np.int8, 100 * x.scale, 3) for x in pairs]
    return [
        Case("conv", Op("CONV_2D", list("xwb"), ["y"], "Conv2DOptions", CONV), conv),
        Case("deep", Op("DEPTHWISE_CONV_2D", list("xwb"), ["y"], "DepthwiseConv2DOptions", depth), deep),
        *(
            Case(
                f"spread_{name}",
                Op(
                    "TRANSPOSE_CONV",
                    list("swxb"),
                    ["y"],
                    "TransposeConvOptions",
                    {"Padding": padding, "StrideH": strides[0], "StrideW": strides[1]},
                ),
                [
                    T("s", [4], np.int32, data=np.asarray(made)),
                    w(kernel, 0),
                    t("x", size),
                    b(5),
                    t("y", made, 0.0021),
                ],
            )
            for name, size, padding, strides, kernel, made in spread
        ),
        Case("flat", Op("FULLY_CONNECTED", list("xwb"), ["y"], "FullyConnectedOptions"), flat),
        Case("pairs", Op("BATCH_MATMUL", ["a", "b"], ["y"], "BatchMatMulOptions", {"AdjY": True}), pairs),
        Case("narrow", Op("BATCH_MATMUL", ["a", "b"], ["y"], "BatchMatMulOptions", {"AdjY": True}), narrow),
        Case(
            "lower", Op("QUANTIZE", ["x"], ["y"], "QuantizeOptions"), [t("x", [900]), T("y", [900], np.int8, 0.13, 4)]
        ),
        Case("rows", Op("FULLY_CONNECTED", list("xwb"), ["y"], "FullyConnectedOptions"), rows),
        *(
            Case(
                f"soft{number}",
                Op("SOFTMAX", ["x"], ["y"], "SoftmaxOptions", {"Beta": beta}),
                [
                    t("x", [60, count], scale),
                    t("y", [60, count], 1 / 32768),
                ],
            )
            for number, (count, beta, scale) in enumerate(((5, 1.0, 0.0002), (1, 1.0, 0.001), (70, 0.5, 0.00003)))
        ),
        Case(
            "fine",
            Op("SOFTMAX", ["x"], ["y"], "SoftmaxOptions", {"Beta": 1.0}),
            [T("x", [90, 7], np.int8, 0.07, 2), T("y", [90, 7], np.int16, 1 / 65535, -32768)],
        ),
        *(
            Case(f"{kind}{number}", Op(kind, ["x"], ["y"]), [t("x", [5000], scale), t("y", [5000], 1 / 32768)])
            for kind in ("LOGISTIC", "TANH")
            for number, scale in enumerate((2.0**-12, 2.0**-11, 0.0003, 0.00003))
        ),
        *(
            Case(
                kind,
                Op(kind, ["a", "b"], ["y"], f"{kind.title()}Options"),
                [t("a", [40, 30]), t("b", [30], 0.00071), t("y", [40, 30], 0.0009)],
            )
            for kind in ("ADD", "SUB")
        ),
        *(Case(kind, Op(kind, ["x"], ["y"]), [t("x", [900]), t("y", [900], 0.0004)]) for kind in ("RELU", "RELU6")),
        Case(
            "leaky",
            Op("LEAKY_RELU", ["x"], ["y"], "LeakyReluOptions", {"Alpha": 0.3}),
            [t("x", [900]), t("y", [900], 0.0004)],
        ),
        Case("again", Op("QUANTIZE", ["x"], ["y"], "QuantizeOptions"), [t("x", [900]), t("y", [900], 0.0007)]),
        Case("whole", Op("QUANTIZE", ["x"], ["y"], "QuantizeOptions"), [t("x", [90]), T("y", [90], np.int32, 0.0004)]),
    ]


def test_int16_is_that_of_the_reference_kernels(tmp_path: Path) -> None:
    check(wide_cases(), tmp_path)


def other_cases(dtype: Any) -> list[Case]:
    """Pools, reductions, resizing and operators of one or two operands, of int8 and of int16."""
    wide = dtype is np.int16
    step, zero = (0.0005, 0) if wide else (0.05, -4)

    def t(name: str, shape: Any, scale: float = step, point: int = zero) -> T:
        return T(name, shape, dtype, scale, point)

    def whole(name: str, *numbers: int) -> T:
        return T(name, [len(numbers)], np.int32, data=np.asarray(numbers))

    def case(tag: str, kind: str, inputs: list[T], out: T, options: str = "", values: Any = None) -> Case:
        return Case(tag, Op(kind, [x.name for x in inputs], ["y"], options, values or {}), [*inputs, out])

    def pool(tag: str, kind: str, size: list[int], made: list[int], **values: int) -> Case:
        return case(tag, kind, [t("x", size)], t("y", made), "Pool2DOptions", values)

    found, image = [], [2, 9, 8, 3]
    for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for activation in (0, 1, 3):
            window = {"StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 2, "Padding": 0}
            window |= {"FusedActivationFunction": activation}
            found.append(pool(f"{kind}{activation}", kind, image, [2, 5, 8, 3], **window))
        whole_image = {"StrideH": 1, "StrideW": 1, "FilterHeight": 40, "FilterWidth": 30, "Padding": 1}
        found.append(pool(f"{kind}_all", kind, [1, 40, 30, 2], [1, 1, 1, 2], **whole_image))
    for corners, centres in ((False, False), (True, False), (False, True)):
        values = {"AlignCorners": corners, "HalfPixelCenters": centres}
        for kind, options in (("BILINEAR", "ResizeBilinear"), ("NEAREST_NEIGHBOR", "ResizeNearestNeighbor")):
            inputs, made = [t("x", [1, 5, 7, 3]), whole("s", 9, 20)], t("y", [1, 9, 20, 3])
            found.append(case(f"{kind}{corners}{centres}", f"RESIZE_{kind}", inputs, made, f"{options}Options", values))
    for axes, made in (((1, 2), [2, 3]), ((3,), [2, 9, 8]), ((0, 1, 2, 3), [])):
        inputs = [t("x", image), whole("a", *axes)]
        found.append(case(f"mean{len(axes)}", "MEAN", inputs, t("y", made, step / 3), "ReducerOptions"))
        for kind in ("REDUCE_MAX", "REDUCE_MIN"):
            found.append(case(f"{kind}{len(axes)}", kind, inputs, t("y", made), "ReducerOptions"))
    slopes = T("s", [1, 1, 3], np.int8, 0.01, 0 if wide else 5, data=R.integers(-128, 128, (1, 1, 3)))
    found.append(case("prelu", "PRELU", [t("x", image), slopes], t("y", image, 0.7 * step, 2 * zero)))
    for number, (bent, made) in enumerate(((0.0001, 0.0002), (0.0003, 0.0011))):
        scale = bent if wide else 300 * bent
        for kind in ("GELU", "EXP"):
            options = {"Approximate": True} if number and kind == "GELU" else {}
            inputs = [t("x", [1500], scale)], t("y", [1500], made if wide else 100 * made)
            found.append(case(f"{kind}{number}", kind, *inputs, f"{kind.title()}Options", options))
        found.append(case(f"log{number}", "LOG", [t("x", [1500], scale)], t("y", [1500], made if wide else 100 * made)))
    found.append(case("abs", "ABS", [t("x", image)], t("y", image, 0.8 * step), "AbsOptions"))
    if not wide:
        for number, (a, b, y) in enumerate(((0.05, 0.0371, 0.4), (0.02, 0.05, 0.003), (0.03, 0.03, 0.9))):
            inputs = [t("a", image, a), t("b", image, b, 9)]
            found.append(case(f"squares{number}", "SQUARED_DIFFERENCE", inputs, t("y", image, y, -100)))
    return found


@pytest.mark.product(2)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_other_operators_are_those_of_the_reference_kernels(dtype: Any, tmp_path: Path) -> None:
    check(other_cases(dtype), tmp_path)


def found_of(tensors: list[T], op: Op, feeds: dict[str, Any], folder: Path) -> tuple[bytes, Any]:
    """Return a model of one operator, and its output here."""
    data = model(tensors, [op], list(feeds), ["y"])
    (found,) = compute(data, feeds, folder, "tflite", Target("host", frozenset()))
    return data, found


def test_sums_of_a_large_pool_of_int16_are_exact(tmp_path: Path) -> None:
    x = R.integers(32000, 32768, [1, 40, 30, 2]).astype(np.int16)
    tensors = [T("x", x.shape, np.int16, 0.001, 0), T("y", [1, 1, 1, 2], np.int16, 0.001, 0)]
    values = {"StrideH": 1, "StrideW": 1, "FilterHeight": 40, "FilterWidth": 30, "Padding": 1}
    data, found = found_of(tensors, Op("AVERAGE_POOL_2D", ["x"], ["y"], "Pool2DOptions", values), {"x": x}, tmp_path)
    np.testing.assert_array_equal(found, litert(data, {"x": x}, reference=True)[0])


def test_large_sums_of_a_transposed_convolution_are_exact(tmp_path: Path) -> None:
    """Beyond 2^24, where float32 lacks whole numbers."""
    x = R.integers(100, 128, [1, 1, 2, 900]).astype(np.int8)
    tensors = [
        T("s", [4], np.int32, data=np.asarray([1, 1, 4, 3])),
        T("w", [3, 1, 2, 900], np.int8, 0.01, data=R.integers(120, 128, [3, 1, 2, 900])),
        T("x", x.shape, np.int8, 0.05, -128),
        T("b", [3], np.int32, data=np.asarray([7, 2**28, -(2**27)])),
        T("y", [1, 1, 4, 3], np.int8, 2000.0, -70),
    ]
    op = Op("TRANSPOSE_CONV", list("swxb"), ["y"], "TransposeConvOptions", {"StrideH": 1, "StrideW": 2})
    data, found = found_of(tensors, op, {"x": x}, tmp_path)
    np.testing.assert_array_equal(found, litert(data, {"x": x}, reference=True)[0])


def test_what_is_coarse_in_int16_is_litert_s_with_either_rounding(tmp_path: Path) -> None:
    """Tables are hundreds of steps from the function between their points, shares of 10 bits some tens."""
    chosen = [case for case in other_cases(np.int16) if case.op.kind in ("EXP", "GELU", "LOG", "RESIZE_BILINEAR")]
    chosen += [case for case in wide_cases() if case.op.kind == "SOFTMAX" and case.tensors[0].dtype is np.int16]
    data, inputs, outputs = one_model(chosen)
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    found = compute(data, feeds, tmp_path, "onnx", Target("host", frozenset({"fpu"})))
    for name, mine, theirs in zip(outputs, found, litert(data, feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


@pytest.mark.product(2)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("kind", ["SQRT", "RSQRT"])
@pytest.mark.parametrize("scale", [0.031, 0.4])
def test_roots_are_those_of_the_reference_kernels(scale: float, kind: str, dtype: Any, tmp_path: Path) -> None:
    """LiteRT stops at the first number below 0."""
    bounds, point = np.iinfo(dtype), 0 if dtype is np.int16 else -100
    step = scale if dtype is np.int8 else scale / 256
    x = np.arange(point, int(bounds.max) + 1, 1 if dtype is np.int8 else 7).astype(dtype)
    tensors = [T("x", x.shape, dtype, step, point), T("y", x.shape, dtype, 1.3 * step**0.5, point // 2)]
    data, found = found_of(tensors, Op(kind, ["x"], ["y"]), {"x": x}, tmp_path)
    np.testing.assert_array_equal(found, litert(data, {"x": x}, reference=True)[0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_sums_are_those_of_tflite_micro(dtype: Any, tmp_path: Path) -> None:
    """LiteRT's reference kernel reads uint8, whatever the type is; its default one has no integers."""
    point = {"int8": -4, "uint8": 120, "int16": 0}[np.dtype(dtype).name]
    tensors = [
        T("x", [9, 40, 7], dtype, 0.05, point),
        T("a", [2], np.int32, data=np.asarray([0, 2])),
        T("y", [40], dtype, 0.731, point // 2),
    ]
    x, bounds = drawn(tensors[0]), np.iinfo(dtype)
    data, found = found_of(tensors, Op("SUM", ["x", "a"], ["y"], "ReducerOptions"), {"x": x}, tmp_path)
    if dtype is np.uint8:
        np.testing.assert_array_equal(found, litert(data, {"x": x}, reference=True)[0])
    total = (x.astype(np.int64) - point).sum(axis=(0, 2))
    steps = rescaled(total, float(np.float32(0.05)) / float(np.float32(0.731))) + point // 2
    np.testing.assert_array_equal(found, np.clip(steps, bounds.min, bounds.max))


@pytest.mark.product(3)
@pytest.mark.parametrize("activation", [0, 1, 2])
@pytest.mark.parametrize(("kind", "shape"), [("ADD", [300]), ("SUB", [300]), ("SUB", [1])])
@pytest.mark.parametrize("shifts", [(0, 0), (0, 3), (5, 0)])
def test_sums_of_int16_whose_scales_are_powers_of_2_are_shifted(
    shifts: tuple[int, int], kind: str, shape: list[int], activation: int, tmp_path: Path
) -> None:
    scales = [2.0 ** (-12 - shift) for shift in shifts]
    a, b = (
        T(name, [300] if name == "a" else shape, np.int16, scale, 0) for name, scale in zip("ab", scales, strict=True)
    )
    op = Op(kind, ["a", "b"], ["y"], f"{kind.title()}Options", {"FusedActivationFunction": activation})
    feeds = {"a": drawn(a), "b": drawn(b)}
    data, found = found_of([a, b, T("y", [300], np.int16, 2.0**-12, 0)], op, feeds, tmp_path)
    np.testing.assert_array_equal(found, litert(data, feeds, reference=True)[0])


def test_sums_of_int16_are_scaled_where_the_model_does_not_say_that_they_are_shifted(tmp_path: Path) -> None:
    tensors = [
        T(name, [300], np.int16, scale, 0) for name, scale in (("a", 2.0**-12), ("b", 2.0**-15), ("y", 2.0**-12))
    ]
    feeds = {"a": drawn(tensors[0]), "b": drawn(tensors[1])}
    for op in (Op("ADD", ["a", "b"], ["y"]), Op("ADD", ["a", "b"], ["y"], "AddOptions", {"PotScaleInt16": False})):
        data, found = found_of(tensors, op, feeds, tmp_path)
        np.testing.assert_array_equal(found, litert(data, feeds, reference=True)[0])


def test_squared_differences_of_int16_are_those_of_tflite_micro(tmp_path: Path) -> None:
    """By its arithmetic with Python's integers: LiteRT has none of int16."""
    scales = {"a": 0.0003, "b": 0.0002, "y": 0.013}
    tensors = [T(name, [400], np.int16, scale, 0) for name, scale in scales.items()]
    feeds = {"a": drawn(tensors[0]), "b": drawn(tensors[1])}
    _, found = found_of(tensors, Op("SQUARED_DIFFERENCE", ["a", "b"], ["y"]), feeds, tmp_path)
    a, b, y = (float(np.float32(scale)) for scale in scales.values())
    unit = 2 * max(a, b)
    difference = rescaled(feeds["a"], a / unit) - rescaled(feeds["b"], b / unit)
    expected = np.clip(rescaled(difference**2, unit * unit / y), -(2**15), 2**15 - 1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("scale", [0.5, 0.0625, 0.375])
def test_ties_of_a_dense_layer_are_rounded_away_from_zero(scale: float, dtype: Any, tmp_path: Path) -> None:
    point = 0 if dtype is np.int8 else 128
    x = (np.arange(256) + np.iinfo(dtype).min).astype(dtype).reshape(256, 1)
    tensors = [
        T("x", x.shape, dtype, 1.0, point),
        T("w", [1, 1], dtype, scale, point, data=np.array([[point + 1]])),
        T("b", [1], np.int32, scale, data=np.array([0])),
        T("y", x.shape, dtype, 1.0, point),
    ]
    data = model(tensors, [Op("FULLY_CONNECTED", list("xwb"), ["y"], "FullyConnectedOptions")], ["x"], ["y"])
    (found,) = compute(data, {"x": x}, tmp_path, "tflite", Target("host", frozenset()))
    np.testing.assert_array_equal(found, litert(data, {"x": x}, reference=True)[0])


def decimal_cases() -> list[Case]:
    """Dense layers with scales that people write, whose sums are ties but for float32's error of the scales."""
    dice, found = np.random.default_rng(3), []
    for number, (x, w, y) in enumerate(((0.15, 0.01, 0.1), (0.1, 0.01, 0.6), (0.01, 0.15, 0.05), (0.01, 0.3, 0.05))):
        for dtype in (np.int8, np.uint8, None):  # None: of int8, with a scale each
            kind, point = dtype or np.int8, 128 if dtype is np.uint8 else 0
            scales = w if dtype else [w, 0.1, 0.02, 0.5, 0.06, 0.3]
            tensors = [
                T("x", [300, 5], kind, x, 9 + point),
                T("w", [6, 5], kind, scales, point, data=dice.integers(-9, 10, [6, 5]) + point),
                T("b", [6], np.int32, x * np.asarray(scales), data=dice.integers(-50, 50, 6)),
                T("y", [300, 6], kind, y, point - 8),
            ]
            op = Op("FULLY_CONNECTED", list("xwb"), ["y"], "FullyConnectedOptions", {})
            found.append(Case(f"{tensors[0].dtype.__name__}{len(np.atleast_1d(scales))}_{number}", op, tensors))
    return found


def test_sums_of_a_dense_layer_are_multiplied_as_float64(tmp_path: Path) -> None:
    check(decimal_cases(), tmp_path)


def test_float32_is_rounded_with_ties_away_from_zero_and_kept_inside(tmp_path: Path) -> None:
    x = np.array([[0.49999997, 0.5, -0.5, 1.5, -2.5, 126.5, 1e9, -1e9, np.inf, -np.inf, -0.49999997, 64.5]], np.float32)
    tensors = [T("x", x.shape), T("y", x.shape, np.int8, 1.0, -3)]
    data = model(tensors, [Op("QUANTIZE", ["x"], ["y"], "QuantizeOptions")], ["x"], ["y"])
    (found,) = compute(data, {"x": x}, tmp_path, "tflite", Target("host", frozenset()))
    rounded = np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)
    np.testing.assert_array_equal(found, np.clip(rounded - 3, -128, 127))


def scales_that_tell(values: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """Return scales of which it matters whether the product of the first two is one of float32."""
    dice = np.random.default_rng(1)
    for _ in range(20_000):
        x, w = dice.uniform(0.01, 0.1, 2).astype(np.float32)
        y = np.float32(255.0 * float(x) * float(w) * dice.uniform(1, 2))
        single, double = float(x * w) / float(y), float(x) * float(w) / float(y)
        if single != double and (rescaled(values, single) != rescaled(values, double)).any():
            return float(x), float(w), float(y)
    raise AssertionError("no such scales")


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
def test_scales_of_uint8_are_multiplied_as_float32(kind: str, tmp_path: Path) -> None:
    x, w, y = scales_that_tell(np.arange(256) * 251)
    shape = [1, 16, 16, 1]
    options = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    values = {"StrideH": 1, "StrideW": 1} if kind == "TRANSPOSE_CONV" else {**CONV}
    values |= {"DepthMultiplier": 1} if kind == "DEPTHWISE_CONV_2D" else {}
    tensors = [
        T("x", shape, np.uint8, x),
        T("w", [1, 1, 1, 1], np.uint8, w, data=np.array([251])),
        T("s", [4], np.int32, data=np.array(shape)),
        T("y", shape, np.uint8, y),
    ]
    inputs = ["s", "w", "x"] if kind == "TRANSPOSE_CONV" else ["x", "w", "b"]
    if kind != "TRANSPOSE_CONV":
        tensors[2] = T("b", [1], np.int32, x * w, data=np.zeros(1))
    data = model(tensors, [Op(kind, inputs, ["y"], options.get(kind, "TransposeConvOptions"), values)], ["x"], ["y"])
    feeds: dict[str, Any] = {"x": np.arange(256).astype(np.uint8).reshape(shape)}
    (found,) = compute(data, feeds, tmp_path, "tflite", Target("host", frozenset()))
    np.testing.assert_array_equal(found, litert(data, feeds, reference=True)[0])


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_softmax_of_nothing(rounding: Any, tmp_path: Path) -> None:
    """Its sum is 0, whose leading zeros would be counted without an end; that is left to no device."""
    tensors = [T("x", [3, 0], np.uint8, 0.05, 120), T("y", [3, 0], np.uint8, 1 / 256, 0)]
    data = model(tensors, [Op("SOFTMAX", ["x"], ["y"], "SoftmaxOptions", {"Beta": 1.0})], ["x"], ["y"])
    (found,) = compute(data, {"x": np.zeros([3, 0], np.uint8)}, tmp_path, rounding, Target("host", frozenset()))
    assert found.shape == (3, 0)


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_softmax_without_options(rounding: Any, tmp_path: Path) -> None:
    """Its beta is 0 in LiteRT, so that all results are 1/4, where its kernel of integers dies."""
    tensors = [T("x", [3, 4], np.int8, 0.05, 3), T("y", [3, 4], np.int8, 1 / 256, -128)]
    data = model(tensors, [Op("SOFTMAX", ["x"], ["y"])], ["x"], ["y"])
    feeds = {"x": np.arange(-60, 60, 10, dtype=np.int8).reshape(3, 4)}
    (found,) = compute(data, feeds, tmp_path, rounding, Target("host", frozenset()))
    assert (found == -64).all()


def quotient_cases(dtype: Any) -> list[Case]:
    """Quotients, norms, logarithms and products, which LiteRT computes in fixed point of 31 bits."""
    bounds = np.iinfo(dtype)
    zero = {np.int8: -4, np.uint8: 120, np.int16: 0}[dtype]

    def t(name: str, shape: list[int], scale: float, point: int = zero, data: Any = None) -> T:
        return T(name, shape, dtype, scale, point, data=data)

    def case(tag: str, kind: str, options: str, *tensors: T, inputs: str = "x", **values: Any) -> Case:
        return Case(tag, Op(kind, list(inputs), ["y"], options, values), tensors)

    divisors = R.integers(bounds.min // 2, bounds.max // 2, [3, 1, 40])
    divisors[divisors == zero] += 1
    scale = 0.05 / (0.031 * (20000 if dtype is np.int16 else 150))
    quotient = t("a", [60, 40], 0.05), t("b", [3, 1, 40], 0.031, data=divisors), t("y", [3, 60, 40], scale, zero)
    found = [case("quotients", "DIV", "DivOptions", *quotient, inputs="ab", FusedActivationFunction=3)]
    if dtype is not np.uint8:
        for tag, axes, shape in (("rows", [2], [90, 4]), ("columns", [0, 2], [4])):
            places = T("w", [len(axes)], np.int32, data=np.asarray(axes))
            count = 3 if tag == "rows" else 270
            unit = {np.int8: 0.011, np.int16: 5e-5}[dtype]
            out = float((unit * 0.4 * bounds.max) ** count) if tag == "rows" else 1.0
            tensors = t("x", [90, 4, 3], unit), places, t("y", shape, out / bounds.max)
            found.append(case(tag, "REDUCE_PROD", "ReducerOptions", *tensors, inputs="xw"))
    if dtype is not np.int16:
        low = int(bounds.min)
        rows = t("x", [300, 24], 0.021)
        found.append(case("norms", "L2_NORMALIZATION", "L2NormOptions", rows, t("y", [300, 24], 1 / 128, low + 128)))
        for tag, fine in (("logs", 0.021), ("coarse logs", 0.3)):
            tensors = t("x", [300, 24], fine), t("y", [300, 24], 1 / 16, low + 255)
            found.append(case(tag, "LOG_SOFTMAX", "", *tensors))
    return found


@pytest.mark.parametrize("features", [FEATURES[0], FEATURES[1]], ids=["fpu", "none"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_quotients_norms_and_logarithms(dtype: Any, features: frozenset[str], tmp_path: Path) -> None:
    data, inputs, outputs = one_model(quotient_cases(dtype))
    feeds = {tensor.name: drawn(tensor) for tensor in inputs}
    for name in ("norms.x", "logs.x"):
        if name in feeds:
            feeds[name][:100] //= 16  # small norms, and logarithms of many alike
            feeds[name][-1] = -4 if dtype is np.int8 else 120  # a norm of 0
    expected = litert(data, feeds, reference=True)
    found = compute(data, feeds, tmp_path, "tflite", Target("cortex-m4", features))
    differing = {n: int((f != e).sum()) for n, f, e in zip(outputs, found, expected, strict=True)}
    assert differing == dict.fromkeys(outputs, 0)


@pytest.mark.parametrize(
    ("kind", "dtype", "x", "y"),
    [
        ("NEG", np.int8, (0.05, 0), (0.05, 0)),
        ("RELU_0_TO_1", np.int8, (0.05, -20), (0.011, -17)),
        ("RELU_0_TO_1", np.uint8, (0.05, 100), (0.003, 7)),
        # scales of which it matters that they are multiplied as float32
        ("LOGISTIC", np.int8, (0.10264597088098526, 0), (1 / 256, -128)),
        ("TANH", np.int8, (0.01640775240957737, 0), (1 / 127, 0)),
        ("RSQRT", np.int8, (0.04880848899483681, -128), (0.009668071754276752, -20)),
    ],
)
def test_all_numbers_of_8_bits(kind: str, dtype: Any, x: Any, y: Any, tmp_path: Path) -> None:
    numbers = np.arange(256).astype(np.uint8).view(dtype)
    tensors = [T("x", [256], dtype, *x), T("y", [256], dtype, *y)]
    data, found = found_of(tensors, Op(kind, ["x"], ["y"]), {"x": numbers}, tmp_path)
    np.testing.assert_array_equal(found, litert(data, {"x": numbers}, reference=True)[0])
