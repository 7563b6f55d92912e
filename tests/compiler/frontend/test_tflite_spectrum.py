"""RFFT2D and its consumers against LiteRT; MediaPipe's operators against their definitions."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import compute
from tflite_models import Array, Op, T, litert, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import load
from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset())
R = np.random.default_rng(3)


def spectrum(shape: tuple[int, ...], height: int, width: int) -> bytes:
    made = [*shape[:-2], height, width // 2 + 1]
    lengths = T("n", [2], np.int32, data=np.array([height, width], np.int32))
    tensors = [T("x", shape), lengths, T("c", made, kind="COMPLEX64"), *(T(name, made) for name in "ari")]
    ops = [Op("RFFT2D", ["x", "n"], ["c"], "Rfft2dOptions")]
    ops += [Op(kind, ["c"], [name]) for kind, name in (("COMPLEX_ABS", "a"), ("REAL", "r"), ("IMAG", "i"))]
    return model(tensors, ops, ["x"], list("ari"))


@pytest.mark.parametrize(
    ("shape", "height", "width"),
    [((1, 32), 1, 32), ((3, 1, 20), 1, 32), ((2, 8, 16), 8, 16), ((9, 40), 4, 32), ((3, 5), 4, 8)],
)
def test_spectra_are_litert_s(shape: tuple[int, ...], height: int, width: int, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data, feeds = spectrum(shape, height, width), {"x": R.standard_normal(shape).astype(np.float32)}
    expected = litert(data, feeds)
    found = compute(data, feeds, tmp_path, "onnx", HOST)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=2e-5)


def whole(name: str, numbers: Any) -> T:
    return T(name, [len(numbers)], np.int32, data=np.array(numbers, np.int32))


def test_complex_numbers_are_moved_as_litert_moves_them(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    tensors = [T("x", [4, 1, 16]), whole("n", [1, 16]), T("c", [4, 1, 9], kind="COMPLEX64", signature=[-1, 1, 9])]
    ops = [Op("RFFT2D", ["x", "n"], ["c"], "Rfft2dOptions")]
    cases = {
        "RESHAPE": ([2, 2, 9], [[2, 2, 9]], "", {}),
        "SQUEEZE": ([4, 9], [], "SqueezeOptions", {"SqueezeDims": np.array([1], np.int32)}),
        "EXPAND_DIMS": ([1, 4, 1, 9], [[0]], "", {}),
        "TRANSPOSE": ([9, 4, 1], [[2, 0, 1]], "", {}),
        "SLICE": ([2, 1, 3], [[1, 0, 2], [2, 1, 3]], "", {}),
        "STRIDED_SLICE": ([2, 1, 9], [[0, 0, 0], [4, 1, 9], [2, 1, 1]], "StridedSliceOptions", {}),
        "TILE": ([4, 3, 9], [[1, 3, 1]], "", {}),
        "BROADCAST_TO": ([2, 4, 1, 9], [[2, 4, 1, 9]], "", {}),
    }
    for kind, (shape, given, options, values) in cases.items():
        constants = [whole(f"{kind}{number}", numbers) for number, numbers in enumerate(given)]
        tensors += [*constants, T(f"{kind} c", shape, kind="COMPLEX64"), T(f"{kind} y", shape)]
        ops.append(Op(kind, ["c", *(one.name for one in constants)], [f"{kind} c"], options, values))
        ops.append(Op("IMAG", [f"{kind} c"], [f"{kind} y"]))
    tensors += [T("product", [4, 1, 9], kind="COMPLEX64"), *(T(f"{name} y", [4, 1, 9]) for name in ("MUL", "CAST"))]
    tensors += [T("shape", [3], np.int32), T("SHAPE y", [4, 1, 9])]
    ops += [Op("MUL", ["c", "c"], ["product"], "MulOptions", {}), Op("IMAG", ["product"], ["MUL y"])]
    ops += [Op("CAST", ["c"], ["CAST y"]), Op("SHAPE", ["c"], ["shape"], "ShapeOptions", {"OutType": 2})]
    ops.append(Op("RESHAPE", ["CAST y", "shape"], ["SHAPE y"]))
    names = [f"{kind} y" for kind in (*cases, "MUL", "CAST", "SHAPE")]
    data, feeds = model(tensors, ops, ["x"], names), {"x": R.standard_normal((4, 1, 16)).astype(np.float32)}
    for name, mine, theirs in zip(
        names, compute(data, feeds, tmp_path, "onnx", HOST), litert(data, feeds), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=2e-5, err_msg=name)


def test_a_complex_output_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    lengths = T("n", [2], np.int32, data=np.array([1, 8], np.int32))
    tensors = [T("x", [1, 8]), lengths, T("c", [1, 5], kind="COMPLEX64")]
    path.write_bytes(model(tensors, [Op("RFFT2D", ["x", "n"], ["c"], "Rfft2dOptions")], ["x"], ["c"]))
    with pytest.raises(ModelError):
        load(path)


def pool_options(padding: int, stride: tuple[int, int], window: tuple[int, int], activation: int = 0) -> bytes:
    """TfLitePoolParams: width before height, and room for what the kernel computes."""
    return struct.pack("<10i", padding, *stride, *window, activation, 0, 0, 0, 0)


def pooled(x: Array, padding: int, stride: int, window: int) -> tuple[Array, Array]:
    batch, height, width, channels = x.shape
    made = [-(-n // stride) if padding == 1 else (n - window) // stride + 1 for n in (height, width)]
    before = [max((m - 1) * stride + window - n, 0) // 2 for m, n in zip(made, (height, width), strict=True)]
    best = np.full((batch, *made, channels), np.finfo(np.float32).min, np.float32)
    places = np.full_like(best, 0.1)
    for b, oy, ox, c in np.ndindex(*best.shape):
        for k in range(window * window):
            y, z = oy * stride + k // window - before[0], ox * stride + k % window - before[1]
            if 0 <= y < height and 0 <= z < width and x[b, y, z, c] > best[b, oy, ox, c]:
                best[b, oy, ox, c] = x[b, y, z, c]
                places[b, oy, ox, c] = np.float32(k) + np.float32(0.1)
    return best, places


@pytest.mark.parametrize(("padding", "stride", "window"), [(1, 2, 2), (2, 2, 2), (1, 2, 3), (2, 1, 3)])
def test_maxima_and_their_places(padding: int, stride: int, window: int, tmp_path: Path) -> None:
    x = R.standard_normal((2, 7, 6, 3)).astype(np.float32)
    best, places = pooled(x, padding, stride, window)
    custom = pool_options(padding, (stride, stride), (window, window))
    tensors = [T("x", x.shape), T("y", best.shape), T("p", best.shape)]
    data = model(tensors, [Op("CUSTOM MaxPoolingWithArgmax2D", ["x"], ["y", "p"], custom=custom)], ["x"], ["y", "p"])
    found = compute(data, {"x": x}, tmp_path, "onnx", HOST)
    np.testing.assert_array_equal(found[0], best)
    np.testing.assert_array_equal(found[1], places)


def test_numbers_go_back_to_their_places(tmp_path: Path) -> None:
    x = R.standard_normal((1, 3, 4, 2)).astype(np.float32)
    places = (R.integers(0, 4, x.shape) + 0.1).astype(np.float32)
    expected = np.zeros((1, 6, 8, 2), np.float32)
    for b, y, z, c in np.ndindex(*x.shape):
        place = int(places[b, y, z, c])
        expected[b, 2 * y + place // 2, 2 * z + place % 2, c] = x[b, y, z, c]
    places[0, 0, 0, 0] = np.nan  # where no number is, nothing is written
    expected[0, :2, :2, 0] = 0
    tensors = [T("x", x.shape), T("p", x.shape), T("y", expected.shape)]
    op = Op("CUSTOM MaxUnpooling2D", ["x", "p"], ["y"], custom=pool_options(1, (2, 2), (2, 2)))
    data = model(tensors, [op], ["x", "p"], ["y"])
    (found,) = compute(data, {"x": x, "p": places}, tmp_path, "onnx", HOST)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.product(2)
@pytest.mark.parametrize("padding", [1, 2])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 2), (4, 2), (3, 1)])
def test_a_transposed_convolution_with_a_bias(padding: int, kernel: int, stride: int, tmp_path: Path) -> None:
    x, bias = R.standard_normal((1, 4, 3, 2)).astype(np.float32), R.standard_normal(5).astype(np.float32)
    w = R.standard_normal((5, kernel, kernel, 2)).astype(np.float32)
    totals = [max(0, kernel - (n - 1) % stride - 1) if padding == 1 else 0 for n in (4, 3)]
    full = np.zeros((1, stride * 3 + kernel, stride * 2 + kernel, 5))
    for y, z in np.ndindex(4, 3):
        full[0, y * stride : y * stride + kernel, z * stride : z * stride + kernel] += np.einsum(
            "i,oyxi->yxo", x[0, y, z], w
        )
    height, width = (n - total for n, total in zip(full.shape[1:3], totals, strict=True))
    first = [total // 2 for total in totals]
    expected = full[:, first[0] : first[0] + height, first[1] : first[1] + width] + bias
    tensors = [T("x", x.shape), T("w", w.shape, data=w), T("b", [5], data=bias), T("y", expected.shape)]
    op = Op(
        "CUSTOM Convolution2DTransposeBias",
        ["x", "w", "b"],
        ["y"],
        custom=struct.pack("<5i", padding, stride, stride, 0, 0),
    )
    (found,) = compute(model(tensors, [op], ["x"], ["y"]), {"x": x}, tmp_path, "onnx", HOST)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("custom", [b"", b"1234", pool_options(7, (2, 2), (2, 2)), pool_options(1, (0, 2), (2, 2))])
def test_options_that_are_none_are_refused(custom: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    tensors = [T("x", [1, 4, 4, 1]), T("y", [1, 2, 2, 1]), T("p", [1, 2, 2, 1])]
    op = Op("CUSTOM MaxPoolingWithArgmax2D", ["x"], ["y", "p"], custom=custom)
    path.write_bytes(model(tensors, [op], ["x"], ["y", "p"]))
    with pytest.raises(ModelError, match=r"its options have|its padding"):
        load(path)
