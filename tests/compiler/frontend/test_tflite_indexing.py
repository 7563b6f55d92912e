"""TFLite operators that select, place or sum elements by index, and other rare ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import R, compute, drawn
from tflite_models import Array, Op, T, litert, model

import mtool
from mtool.compiler.kernels.target import Target

pytest.importorskip("ai_edge_litert")
HOST = Target("host", frozenset())
F32, I8, I16, I32, I64, BOOL = np.float32, np.int8, np.int16, np.int32, np.int64, np.bool_


def check(
    kind: str,
    inputs: Sequence[tuple[T, Array | None]],
    outputs: Sequence[T] | T,
    folder: Path,
    options: str = "",
    values: Mapping[str, Any] | None = None,
) -> list[Array]:
    """Compare one operator's outputs with LiteRT's; an input is drawn where none is given."""
    made = [outputs] if isinstance(outputs, T) else list(outputs)
    tensors = [*(tensor for tensor, _ in inputs), *made]
    feeds = {x.name: drawn(x) if data is None else data for x, data in inputs if x.data is None}
    op = Op(kind, [x.name for x, _ in inputs], [y.name for y in made], options, values or {})
    data = model(tensors, [op], list(feeds), [y.name for y in made])
    found = compute(data, feeds, folder, "onnx", HOST)
    for mine, theirs in zip(found, litert(data, feeds), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(mine, theirs)
    return found


def given(name: str, data: Any, dtype: Any = I32) -> tuple[T, Array]:
    """Return an input that only the run knows."""
    array = np.asarray(data, dtype)
    return T(name, array.shape, dtype), array


def known(name: str, data: Any, dtype: Any = I32) -> tuple[T, None]:
    """Return a constant."""
    array = np.asarray(data, dtype)
    return T(name, array.shape, dtype, data=array), None


def x(shape: Sequence[int], dtype: Any = F32, name: str = "x") -> tuple[T, None]:
    return T(name, shape, dtype, None if dtype in (F32, I32, I64, BOOL) else 0.05, 0 if dtype is I16 else 3), None


def y(shape: Sequence[int], dtype: Any = F32, name: str = "y") -> T:
    return T(name, shape, dtype, None if dtype in (F32, I32, I64, BOOL) else 0.05, 0 if dtype is I16 else 3)


@pytest.mark.parametrize("dtype", [F32, I8, I32])
def test_the_largest(dtype: Any, tmp_path: Path) -> None:
    tensor, _ = x([5, 9], dtype)
    data = drawn(tensor)
    data[1] = data[1, 0]  # equal ones
    outputs = [y([5, 4], dtype), y([5, 4], I32, "places")]
    check("TOPK_V2", [(tensor, data), known("k", 4)], outputs, tmp_path)


@pytest.mark.product(3)
@pytest.mark.parametrize(("axis", "made"), [(-1, [2, 3, 6]), (0, [6, 2, 3]), (1, [2, 6, 3])])
@pytest.mark.parametrize("dtype", [F32, I8, I32])
def test_one_hot(axis: int, made: list[int], dtype: Any, tmp_path: Path) -> None:
    places = given("i", [[0, 5, -1], [6, 2, 2]])
    inputs = [places, known("d", 6), known("on", 7, dtype), known("off", 2, dtype)]
    inputs = [(T(t.name, t.shape, t.dtype, None if dtype is not I8 or n < 2 else 0.05, 3 * (n > 1), data=t.data), d)
              for n, (t, d) in enumerate(inputs)]  # fmt: skip
    check("ONE_HOT", inputs, y(made, dtype), tmp_path, "OneHotOptions", {"Axis": axis})


@pytest.mark.parametrize("dtype", [F32, I32, I8])
@pytest.mark.parametrize(("places", "part"), [([[0], [3], [0]], [3, 4]), ([[0, 3], [2, 1]], [2])])
def test_scattered_elements_are_summed(places: Any, part: list[int], dtype: Any, tmp_path: Path) -> None:
    tensor, _ = x(part, dtype, "u")
    check("SCATTER_ND", [given("i", places), (tensor, None), known("s", [5, 4])], y([5, 4], dtype), tmp_path)


@pytest.mark.product(3)
@pytest.mark.parametrize("dtype", [F32, I32, I64])
@pytest.mark.parametrize(
    ("places", "shape", "values"), [(3, [6], 1.0), ([1, 4], [6], [5, 6]), ([[0, 2], [3, 1]], [4, 3], [7, 9]),
                                    ([[0, 2], [3, 1]], [4, 3], 8)]
)  # fmt: skip
def test_sparse_to_dense(places: Any, shape: list[int], values: Any, dtype: Any, tmp_path: Path) -> None:
    inputs = [given("i", places), known("s", shape), given("v", values, dtype), given("d", 2, dtype)]
    check("SPARSE_TO_DENSE", inputs, y(shape, dtype), tmp_path, "SparseToDenseOptions")


@pytest.mark.parametrize(("time", "batch"), [(1, 0), (0, 2), (2, 0), (3, 1)])
@pytest.mark.parametrize("dtype", [F32, I16])
def test_sequences_are_reversed(time: int, batch: int, dtype: Any, tmp_path: Path) -> None:
    shape = [3, 4, 5, 2]
    lengths = given("n", R.integers(1, shape[time] + 1, shape[batch]))
    if dtype is I16:  # of integers that stand for themselves
        inputs, out = [(T("x", shape, dtype), R.integers(-99, 99, shape).astype(dtype)), lengths], T("y", shape, dtype)
    else:
        inputs, out = [x(shape, dtype), lengths], y(shape, dtype)
    check("REVERSE_SEQUENCE", inputs, out, tmp_path, "ReverseSequenceOptions", {"SeqDim": time, "BatchDim": batch})


@pytest.mark.parametrize("dtype", [F32, I32, I8])
def test_diagonals(dtype: Any, tmp_path: Path) -> None:
    check("MATRIX_DIAG", [x([2, 3, 4], dtype)], y([2, 3, 4, 4], dtype), tmp_path)
    for shape, size in (([2, 3, 3], 3), ([2, 3, 5], 3), ([2, 5, 3], 3)):
        check("MATRIX_SET_DIAG", [x(shape, dtype), x([2, size], dtype, "d")], y(shape, dtype), tmp_path)


@pytest.mark.parametrize("dtype", [F32, I32])
@pytest.mark.parametrize("kind", ["SUM", "PROD", "MAX", "MIN"])
def test_segments(kind: str, dtype: Any, tmp_path: Path) -> None:
    numbers = given("n", [[2, 0, -1], [2, 4, 0]])
    inputs = [x([2, 3, 4], dtype), numbers, known("c", 6)]
    check(f"UNSORTED_SEGMENT_{kind}", inputs, y([6, 4], dtype), tmp_path)
    if kind == "SUM":
        check("SEGMENT_SUM", [x([5, 2], dtype), known("n", [0, 0, 1, 2, 2])], y([3, 2], dtype), tmp_path)


@pytest.mark.parametrize("dtype", [F32, I8])
def test_rows_of_a_table(dtype: Any, tmp_path: Path) -> None:
    data = R.integers(-128, 128, (7, 4)).astype(dtype)
    table = T("t", [7, 4], dtype, None if dtype is F32 else 0.031, 0, data=data), None
    check("EMBEDDING_LOOKUP", [given("i", [6, 0, 3]), table], y([3, 4]), tmp_path)


@pytest.mark.product(3)
@pytest.mark.parametrize("begin", [[0, 1, 2], [-3, 9, 0], [1, 2, 1]])
@pytest.mark.parametrize("part", [[2, 2, 4], [1, 5, 3], [3, 5, 6], [3, 5, 2]])
def test_a_part_is_replaced(begin: list[int], part: list[int], tmp_path: Path) -> None:
    for dtype in (F32, I32):
        inputs = [x([3, 5, 6], dtype), x(part, dtype, "u"), given("b", begin)]
        check("DYNAMIC_UPDATE_SLICE", inputs, y([3, 5, 6], dtype), tmp_path)


@pytest.mark.product(2)
@pytest.mark.parametrize(
    ("axis", "batch", "places", "made"),
    [
        (1, 1, [2, 3], [2, 3, 4, 6]),
        (2, 1, [2, 3], [2, 5, 3, 6]),
        (3, 2, [2, 5, 3, 2], [2, 5, 4, 3, 2]),
        (-1, 1, [2, 2, 3], [2, 5, 4, 2, 3]),
        (2, -1, [2, 5, 3], [2, 5, 3, 6]),
        (3, 3, [2, 5, 4], [2, 5, 4]),
    ],
)
def test_gathered_by_batch(axis: int, batch: int, places: list[int], made: list[int], tmp_path: Path) -> None:
    shape = [2, 5, 4, 6]
    indices = given("i", R.integers(0, shape[axis], places))
    options = {"Axis": axis, "BatchDims": batch}
    for dtype in (F32, I8):
        check("GATHER", [x(shape, dtype), indices], y(made, dtype), tmp_path, "GatherOptions", options)


@pytest.mark.parametrize(
    ("masks", "numbers", "made"),
    [
        ({"NewAxisMask": 1}, ([0, 1, 0], [0, 3, 4], [1, 1, 2]), [1, 2, 2, 5]),
        ({"NewAxisMask": 4}, ([0, 1, 0], [3, 3, 4], [1, 1, 2]), [3, 2, 1, 5]),
        ({"EllipsisMask": 1}, ([0, 1], [0, 4], [1, 2]), [3, 4, 2]),
        ({"EllipsisMask": 2}, ([1, 0, 2], [3, 0, 5], [1, 1, 1]), [2, 4, 3]),
        ({"EllipsisMask": 2, "NewAxisMask": 4}, ([1, 0, 0, 2], [3, 0, 0, 5], [1, 1, 1, 1]), [2, 4, 1, 3]),
        ({"EllipsisMask": 1, "ShrinkAxisMask": 2}, ([0, 3], [0, 4], [1, 1]), [3, 4]),
        ({"EllipsisMask": 1, "EndMask": 2, "BeginMask": 2}, ([0, 3], [0, 4], [1, -1]), [3, 4, 5]),
    ],
)
def test_slices_with_new_axes(masks: dict[str, int], numbers: Any, made: list[int], tmp_path: Path) -> None:
    reported = [known(name, data) for name, data in zip("bes", numbers, strict=True)]
    check("STRIDED_SLICE", [x([3, 4, 5]), *reported], y(made), tmp_path, "StridedSliceOptions", masks)


@pytest.mark.slow
def test_elements_that_few_models_have(tmp_path: Path) -> None:
    corners = np.asarray([[0, 0, 1, -1, 3, -2, 1e-30, -5], [1, -1, 0, 0, 3, -2, -1, 1e30]], F32)
    check("ATAN2", [given("a", corners[0], F32), given("b", corners[1], F32)], y([8]), tmp_path)
    check("ATAN2", [x([40, 5]), x([40, 5], name="b")], y([40, 5]), tmp_path)
    for dtype in (np.int32, np.int8, np.uint32):
        bounds = np.iinfo(dtype)
        data = R.integers(bounds.min, bounds.max, (2, 50), endpoint=True).astype(dtype)
        tensors = [(T(name, [50], dtype), row) for name, row in zip("ab", data, strict=True)]
        check("BITWISE_XOR", tensors, T("y", [50], dtype), tmp_path, "BitwiseXorOptions")
        bits = T("n", [50], dtype), R.integers(0, 8 * np.dtype(dtype).itemsize + 3, 50).astype(dtype)
        check("RIGHT_SHIFT", [tensors[0], bits], T("y", [50], dtype), tmp_path, "RightShiftOptions")
    for bits, low in ((8, -1.3), (4, 0.0), (16, -2.0)):
        values = {"Min": low, "Max": 1.7, "NumBits": bits}
        check("FAKE_QUANT", [x([300])], y([300]), tmp_path, "FakeQuantOptions", values)


@pytest.mark.parametrize("dtype", [F32, I32])
def test_numbers_are_counted_into_buckets(dtype: Any, tmp_path: Path) -> None:
    data = np.asarray([-9, 0, 1, 2, 3, 10, 11, 99], dtype)
    values = {"Boundaries": np.asarray([0, 2, 10.5, 50], F32)}
    check("BUCKETIZE", [(T("x", [8], dtype), data)], y([8], I32), tmp_path, "BucketizeOptions", values)


@pytest.mark.parametrize(
    ("kind", "tensors", "outputs", "most"),
    [
        ("WHERE", [T("x", [3, 4], BOOL), T("y", [1, 2], I64, signature=[-1, 2])], ["y"], {"y/NonZero": 12}),
        ("UNIQUE", [T("x", [14], I32), T("y", [1], I32, signature=[-1]), T("i", [14], I32)], ["y", "i"], {"y": 14}),
    ],
)
def test_what_only_the_run_can_count(
    kind: str, tensors: list[T], outputs: list[str], most: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    options, values = ("UniqueOptions", {"IdxOutType": 2}) if kind == "UNIQUE" else ("", {})
    path.write_bytes(model(tensors, [Op(kind, ["x"], outputs, options, values)], ["x"], outputs))
    deployment = mtool.Deployment(tmp_path / "project")
    report = mtool.verify(path, board="host", options=mtool.Options(maxima=most), deployment=deployment)
    report.check()
    assert [output.name for output in report.outputs] == [*outputs, "y_count"]


@pytest.mark.parametrize("kind", ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM", "AND"])
def test_stablehlo(kind: str, tmp_path: Path) -> None:
    for dtype in (BOOL, I32) if kind == "AND" else (F32, I32):
        inputs = [x([4, 5], dtype), x([4, 5], dtype, "b")]
        check(f"STABLEHLO_{kind}", inputs, y([4, 5], dtype), tmp_path)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_three_dimensions(padding: int, stride: int, tmp_path: Path) -> None:
    size, kernel = [1, 5, 6, 7, 2], [2, 3, 3, 2, 4]
    made = [-(-(n - (k - 1) * padding) // stride) for n, k in zip(size[1:4], kernel[:3], strict=True)]
    weights = known("w", R.standard_normal(kernel), F32)
    inputs = [x(size), weights, known("b", [1, 2, 3, 4], F32)]
    values = {"Padding": padding, "StrideD": stride, "StrideH": stride, "StrideW": stride}
    check("CONV_3D", inputs, y([1, *made, 4]), tmp_path, "Conv3DOptions", values)


def test_pools_of_squares(tmp_path: Path) -> None:
    values = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 3}
    check("L2_POOL_2D", [x([1, 7, 6, 3])], y([1, 4, 3, 3]), tmp_path, "Pool2DOptions", values)
