"""TFLite operators whose operands or options do not match are refused with a reason."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_models import Op, T, litert, model

from mtool.base.errors import ModelError
from mtool.base.option_values import Rounding
from mtool.compiler.frontend import ModelOptions, load

I8, U8, I16, I32, I64, F32 = np.int8, np.uint8, np.int16, np.int32, np.int64, np.float32
CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 1}
POOL = {"StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2, "Padding": 1}
IMAGE = [1, 4, 4, 2]


def x(shape: Sequence[int] = IMAGE, dtype: Any = F32, scale: float | None = None, zero: int = 0) -> T:
    return T("x", shape, dtype, scale, zero)


def y(shape: Sequence[int] = IMAGE, dtype: Any = F32, scale: float | None = None, zero: int = 0) -> T:
    return T("y", shape, dtype, scale, zero)


def q(tensor: T, scale: float = 0.1, zero: int = 0, dtype: Any = I8) -> T:
    return T(tensor.name, tensor.shape, dtype, scale, zero)


def wide(tensor: T, scale: float = 0.001) -> T:
    return q(tensor, scale, 0, I16)


def known(name: str, data: Any, dtype: Any = I32) -> T:
    array = np.asarray(data, dtype)
    return T(name, array.shape, dtype, data=array)


def w(shape: Sequence[int], dtype: Any = F32, scale: Any = None, axis: int = 0, zero: int = 0) -> T:
    return T("w", shape, dtype, scale, zero, axis, np.ones(shape, dtype))


def refusal(
    folder: Path, kind: str, tensors: Sequence[T], options: str, values: Mapping[str, Any], how: Rounding
) -> str:
    path = folder / "m.tflite"
    inputs = [t.name for t in tensors if t.name != "y"]
    op = Op(kind, inputs, ["y"], options, values)
    path.write_bytes(model(tensors, [op], [t.name for t in tensors if t.data is None and t.name != "y"], ["y"]))
    with pytest.raises(ModelError) as caught:
        load(path, ModelOptions(rounding=how))
    return "\n".join([caught.value.what, *caught.value.details])


OUT = y([1, 4, 4, 3])
FILTERS = [3, 1, 1, 2]
W, W8 = w(FILTERS), w(FILTERS, I8, 0.1)

ZERO_POINTS: Sequence[Any] = [
    ("CONV_2D", "Conv2DOptions", IMAGE, FILTERS, [1, 4, 4, 3], 0.1, 0, CONV),
    ("CONV_2D", "Conv2DOptions", IMAGE, FILTERS, [1, 4, 4, 3], [0.1, 0.1, 0.2], 0, CONV),
    ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", IMAGE, [1, 1, 1, 2], IMAGE, 0.1, 3, CONV),
    ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", IMAGE, [1, 1, 1, 2], IMAGE, [0.1, 0.2], 3, CONV),
    ("FULLY_CONNECTED", "FullyConnectedOptions", [1, 4], [3, 4], [1, 3], [0.1, 0.1, 0.2], 0, {}),
]
"""Products of int8 whose weights have a zero point that LiteRT's kernels refuse or leave out."""

CASES = [
    ("CONV_2D", [x(), W, OUT], "Conv2DOptions", {**CONV, "Padding": 7}, "its padding number 7"),
    ("CONV_2D", [x(), W, OUT], "Conv2DOptions", {**CONV, "StrideW": 0}, "its stride is 1 x 0"),
    ("CONV_2D", [x(), W, OUT], "Conv2DOptions", {**CONV, "DilationHFactor": 0}, "its dilation is 0 x 1"),
    ("CONV_2D", [x(), W, OUT], "Conv2DOptions", {**CONV, "DilationWFactor": -2}, "its dilation is 1 x -2"),
    ("CONV_2D", [x(), w([4, 1, 1, 3]), y()], "Conv2DOptions", CONV, "its weights are for 3 channels; its input has 2"),
    ("CONV_2D", [x(), T("w", [4, 1, 1, 0]), y()],
     "Conv2DOptions", CONV, "its weights are for 0 channels; its input has 2"),
    ("CONV_2D", [x([4, 4, 2]), w([4, 1, 1, 2]), y()],
     "Conv2DOptions", CONV, "its input 0 has 3 dimensions; expected 4"),
    ("CONV_2D", [q(x()), w(FILTERS, I8, [0.1, 0.1], 3), q(OUT)], "Conv2DOptions", CONV,
     "its weights have 2 scales for 3 channels"),
    ("CONV_2D", [x(), w(FILTERS, I8), OUT], "Conv2DOptions", CONV, "its weights are int8 without a scale"),
    ("CONV_2D", [q(x(), 1e-25), w(FILTERS, I8, 1e-20), q(OUT)], "Conv2DOptions", CONV, "too small or too large"),
    ("CONV_2D", [q(x(), 1e25), w(FILTERS, I8, 1e20), q(OUT)], "Conv2DOptions", CONV, "too small or too large"),
    ("CONV_2D", [q(x(), 1e15), w(FILTERS, I8, 1e15), q(OUT, 1e-12)], "Conv2DOptions", CONV,
     "too small or too large"),
    ("CONV_2D", [x(), W, known("b", [1, 2], F32), OUT], "Conv2DOptions", CONV,
     "its bias has 2 elements; expected 3"),
    ("CONV_2D", [q(x()), W8, known("b", [1, 2, 3], F32), q(OUT)], "Conv2DOptions", CONV,
     "its bias is float32"),
    ("CONV_2D", [x(), W, known("b", [1, 2, 3]), OUT], "Conv2DOptions", CONV, "its bias is int32"),
    ("CONV_2D", [x(), T("w", FILTERS), OUT], "Conv2DOptions", CONV, "its input 1 (weights) is not a constant"),
    ("CONV_2D", [q(x(), 0.1, 200), W8, q(OUT)], "Conv2DOptions", CONV,
     "the zero point 200 is out of range for int8"),
    ("CONV_2D", [q(x()), W8, q(OUT, 0.1, -129)], "Conv2DOptions", CONV,
     "the zero point -129 is out of range for int8"),
    *((kind, [q(x(s)), w(f, I8, scale, axis, 3), q(y(o))], options, values,
       "its weights are int8 with a zero point of 3")
      for kind, options, s, f, o, scale, axis, values in ZERO_POINTS),
    ("CONV_2D", [wide(x()), w(FILTERS, U8, 0.1, 0, 128), wide(OUT)], "Conv2DOptions", CONV,
     "its weights are uint8 with a zero point of 128; with an input of int16"),
    ("FULLY_CONNECTED", [wide(x([1, 4])), w([3, 4], U8, 0.1, 0, 128), wide(y([1, 3]))], "FullyConnectedOptions", {},
     "its input is int16 and its weights are uint8"),
    ("DEPTHWISE_CONV_2D", [x(), w([1, 1, 1, 3]), OUT], "DepthwiseConv2DOptions", CONV, "an input of 2 channels"),
    ("DEPTHWISE_CONV_2D", [x(), w([2, 1, 1, 2]), y()], "DepthwiseConv2DOptions", CONV, "its weights [2, 1, 1, 2]"),
    ("TRANSPOSE_CONV", [known("s", [4, 4, 2]), w([2, 1, 1, 2]), x(), y()],
     "TransposeConvOptions", {"StrideH": 1, "StrideW": 1},
     "its output's shape [4, 4, 2]"),
    ("TRANSPOSE_CONV", [known("s", [1, 4, -4, 2]), w([2, 1, 1, 2]), x(), y()], "TransposeConvOptions",
     {"StrideH": 1, "StrideW": 1}, "its output's shape [1, 4, -4, 2]"),
    ("FULLY_CONNECTED", [x([2, 4]), w([3, 4]), y([2, 3])], "FullyConnectedOptions", {"WeightsFormat": 1}, "shuffled"),
    ("FULLY_CONNECTED", [x([2, 4]), w([3, 5]), y([2, 3])], "FullyConnectedOptions", {}, "its weights are for 5 inputs"),
    ("FULLY_CONNECTED", [x([2, 4]), T("w", [3, 0]), y([2, 3])],
     "FullyConnectedOptions", {}, "its weights are for 0 inputs"),
    ("FULLY_CONNECTED", [x([]), w([3, 1]), y([1, 3])], "FullyConnectedOptions", {}, "its input is []"),
    ("BATCH_MATMUL", [x([4]), T("w", [4, 2]), y([2])], "BatchMatMulOptions", {}, "its input 0 has 1 dimension"),
    ("AVERAGE_POOL_2D", [x(), y()], "Pool2DOptions", {**POOL, "FilterWidth": 0}, "its window 2 x 0"),
    ("MAX_POOL_2D", [x(), y()], "Pool2DOptions", {**POOL, "StrideH": -1}, "its stride is -1 x 1"),
    ("RESIZE_BILINEAR", [x(), known("s", [0, 4]), y()], "ResizeBilinearOptions", {}, "its size [0, 4]"),
    ("RESIZE_BILINEAR", [x(), known("s", [4, 4, 4]), y()], "ResizeBilinearOptions", {}, "its size [4, 4, 4]"),
    ("SPACE_TO_DEPTH", [q(x()), q(y([1, 2, 2, 8]), 0.2)],
     "SpaceToDepthOptions", {"BlockSize": 2}, "have different quantizations"),
    ("SPACE_TO_BATCH_ND", [x(), known("b", [2, 2]), known("p", [[0, 0]]), y([4, 2, 2, 2])],
     "", {}, "its block [2, 2] and pads"),
    ("SPACE_TO_BATCH_ND", [x(), known("b", [2, 0]), known("p", [[0, 0], [0, 0]]), y([4, 2, 2, 2])],
     "", {}, "its block [2, 0]"),
    ("SPACE_TO_BATCH_ND", [x(), known("b", [3, 2]), known("p", [[0, 0], [0, 0]]), y([4, 2, 2, 2])],
     "", {}, "its padded size [4, 4]"),
    ("BATCH_TO_SPACE_ND", [x([3, 2, 2, 2]), known("b", [2, 2]), known("c", [[0, 0], [0, 0]]), y()],
     "", {}, "its block [2, 2] and crops"),
    ("BATCH_TO_SPACE_ND", [x([4, 2, 2, 2]), known("b", [2, 2]), known("c", [[0, 0]]), y()],
     "", {}, "and crops [[0, 0]]"),
    ("SUM", [x(), known("a", [4]), y()], "ReducerOptions", {}, "its axes are [4]; its input has 4 dimensions"),
    ("SUM", [x(), known("a", [-5]), y()], "ReducerOptions", {}, "its axes are [-5]; its input has 4 dimensions"),
    ("PAD", [x(), known("p", [[0, 0]] * 3), y()], "", {}, "it has 3 pairs of pads; its input has 4 dimensions"),
    ("PAD", [x(), known("p", [[0, 0], [0, -1], [0, 0], [0, 0]]), y()], "", {}, "its pads are"),
    ("PAD", [q(x()), known("p", [[0, 0]] * 4), q(y(), 0.2)], "", {}, "have different quantizations"),
    ("CONCATENATION", [x(), y()], "ConcatenationOptions", {"FusedActivationFunction": 1}, "it has a fused activation"),
    ("PRELU", [wide(x()), T("w", [2], I16, 0.1, data=np.asarray([3, 4])), wide(y())], "", {},
     "its slopes are int16, which LiteRT reads as int8"),
    ("MIRROR_PAD", [x([3]), known("p", [[3, 0]]), y([6])],
     "MirrorPadOptions", {"Mode": 0}, "its pads [3, 0] do not fit its input [3]"),
    ("MIRROR_PAD", [x([3]), known("p", [[0, 4]]), y([7])],
     "MirrorPadOptions", {"Mode": 1}, "its pads [0, 4] do not fit its input [3]"),
    ("SPLIT", [known("a", 4), x(), y()], "SplitOptions", {"NumSplits": 1}, "its axis 4"),
    ("SPLIT", [known("a", -5), x(), y()], "SplitOptions", {"NumSplits": 1}, "its axis -5"),
    ("SPLIT", [known("a", 0), q(x()), q(y(), 0.2)], "SplitOptions", {"NumSplits": 1}, "have different quantizations"),
    ("SPLIT_V", [x(), known("s", [3]), known("a", 1), y()],
     "SplitVOptions", {"NumSplits": 1}, "its parts [3] do not add up to 4"),
    ("SPLIT_V", [x(), known("s", [2, 2]), known("a", 1), y()], "SplitVOptions", {"NumSplits": 1}, "its axis 1"),
    ("UNPACK", [x([2, 3]), y([3])], "UnpackOptions", {"Num": 1, "Axis": 0}, "its axis 0 and outputs (1) do not fit"),
    ("UNPACK", [q(x([1, 3])), q(y([3]), 0.2)], "UnpackOptions", {"Num": 1, "Axis": 0}, "its axis 0"),
    ("UNPACK", [x([1, 3]), y([3])], "UnpackOptions", {"Num": 1, "Axis": 2}, "its axis 2"),
    ("SLICE", [x([4]), known("b", [0, 0]), known("s", [1, 1]), y([1])], "", {}, "its begin [0, 0]"),
    ("SLICE", [x([4]), known("b", [1]), known("s", [4]), y([4])], "", {}, "its begin [1] and size [4]"),
    ("SLICE", [x([4]), known("b", [-1]), known("s", [1]), y([1])], "", {}, "its begin [-1]"),
    ("MAX_POOL_2D", [x(dtype=I8), y([1, 3, 3, 2], I8)], "Pool2DOptions", {**POOL, "FusedActivationFunction": 1},
     "its input 0 is int8 without a scale"),
    ("DIV", [x(dtype=I16), known("b", [2], I16), y(dtype=I16)], "DivOptions", {}, "int16 without a scale"),
    ("LEAKY_RELU", [q(x()), q(y())], "LeakyReluOptions", {"Alpha": float("nan")},
     "option Alpha of operator 0 (LEAKY_RELU) is nan"),
    ("STRIDED_SLICE", [x([4]), known("b", [0, 0]), known("e", [1, 1]), known("s", [1, 1]), y([1])],
     "StridedSliceOptions", {"EllipsisMask": 3}, "its begin [0, 0]"),
    ("STRIDED_SLICE", [x([4]), known("b", [0]), known("e", [1]), known("s", [0]), y([1])], "StridedSliceOptions", {},
     "strides [0]"),
    ("STRIDED_SLICE", [x([4]), known("b", [0, 0]), known("e", [1, 1]), known("s", [1, 1]), y([1])],
     "StridedSliceOptions", {},
     "its begin [0, 0]"),
    ("STRIDED_SLICE", [x([4]), known("b", [4]), known("e", [5]), known("s", [1]), y([])], "StridedSliceOptions",
     {"ShrinkAxisMask": 1}, "its begin [4]"),
    ("STRIDED_SLICE", [x([4]), known("b", [5]), known("e", [6]), known("s", [1]), y([])], "StridedSliceOptions",
     {"ShrinkAxisMask": 1}, "its begin [5]"),
    ("STRIDED_SLICE", [x([4]), known("b", [-5]), known("e", [5]), known("s", [1]), y([])], "StridedSliceOptions",
     {"ShrinkAxisMask": 1}, "its begin [-5]"),
    ("GATHER", [x([2, 4]), known("i", [[0], [1], [1]]), y([3, 1])],
     "GatherOptions", {"Axis": 1, "BatchDims": 1}, "its indices [3, 1], axis 1 and batch_dims 1 do not match"),
    ("GATHER", [x([2, 4]), known("i", [[0], [1]]), y([2, 1])],
     "GatherOptions", {"Axis": 0, "BatchDims": 1}, "axis 0 and batch_dims 1 do not match"),
    ("TOPK_V2", [x([2, 4]), known("k", 5), y([2, 5])], "TopKV2Options", {}, "its k is 5; expected at most 4"),
    ("ONE_HOT", [known("x", [1]), known("d", 3), known("a", 1, F32), known("b", 0, F32), y([1, 3])], "OneHotOptions",
     {"Axis": 2}, "its depth 3 or its axis 2 is out of range"),
    ("SCATTER_ND", [known("i", [[0]]), x([1]), known("s", [-3]), y([3])], "", {}, "its output float32[-3]"),
    ("SPARSE_TO_DENSE", [known("i", [[0, 1]]), known("s", [4]), x([1]), known("d", 0, F32), y([4])], "", {},
     "its indices [1, 2] do not fit its output's shape [4]"),
    ("REVERSE_SEQUENCE", [x([2, 4]), known("n", [1, 2]), y([2, 4])], "ReverseSequenceOptions",
     {"SeqDim": 1, "BatchDim": 1}, "its seq_dim 1 and batch_dim 1"),
    ("MATRIX_SET_DIAG", [x([2, 4]), known("d", [1, 2, 3], F32), y([2, 4])], "", {}, "diagonals [3]"),
    ("SEGMENT_SUM", [x([2, 4]), known("n", [1, 0]), y([1, 4])], "", {}, "its segment numbers are not sorted"),
    ("UNSORTED_SEGMENT_SUM", [x([2, 4]), known("n", [1, 0, 0]), known("c", 2), y([2, 4])], "", {},
     "its segment numbers [3]"),
    ("DYNAMIC_UPDATE_SLICE", [x([4]), known("u", [0] * 5, F32), known("b", [0]), y([4])], "", {},
     "its update [5] does not fit its operand [4]"),
    ("UNIQUE", [x([4]), T("y", [4], I32)], "", {}, "its input float32[4]"),
    ("RIGHT_SHIFT", [x([4]), known("n", [1] * 4, F32), y([4])], "", {}, "its inputs are float32 and float32"),
    ("FAKE_QUANT", [x([4]), y([4])], "FakeQuantOptions", {"Min": 1.0, "Max": 2.0, "NumBits": 8}, "its range 1.0"),
    ("CONV_3D", [x([1, 2, 2, 2, 3]), w([1, 1, 1, 2, 4]), y([1, 2, 2, 2, 4])], "Conv3DOptions", {},
     "its weights are for 2 channels; its input has 3"),
    ("CONV_3D", [x([1, 2, 2, 2, 2]), w([1, 1, 1, 2, 4]), y([1, 2, 2, 2, 4])], "Conv3DOptions", {"StrideD": 0},
     "its stride is 0 x "),
    ("TRANSPOSE_CONV", [known("s", [1, 9, 4, 2]), w([2, 1, 1, 2]), x(), y([1, 9, 4, 2])], "TransposeConvOptions",
     {"StrideH": 1, "StrideW": 1, "Padding": 1}, "its output's shape [1, 9, 4, 2] does not match its input"),
    ("ARG_MAX", [x([2, 4]), known("a", 1), y([2], I64)], "ArgMaxOptions", {"OutputType": 2},
     "its output is int64, but its option output_type is another type"),
    ("DEQUANTIZE", [x(), y()], "", {}, "its input is float32, which is not quantized"),
    ("SOFTMAX", [x(), y()], "SoftmaxOptions", {"Beta": -1.0}, "its beta is -1.0"),
    ("ATAN2", [x([2, 3]), T("b", [2, 1]), y([2, 3])], "", {}, "its operands are [2, 3] and [2, 1]; LiteRT"),
    ("EXP", [x([2]), T("y", [2], I8, 1e-40)], "", {}, "the scale of its output 'y', 1e-40, is too small"),
    ("ADD", [q(x()), q(T("b", IMAGE)), y()], "AddOptions", {}, "'y' is float32, but its input 'x' is quantized"),
    ("ADD", [x(), y()], "AddOptions", {}, "its input 1 is not given"),
    ("EXP", [x([2]), T("y", [2], I32, 0.1)], "", {}, "its output 'y' is int32 with 1 scale"),
    ("EXP", [x([2]), T("y", [2], I8, [0.1, 0.2])], "", {}, "its output 'y' is int8 with 2 scales"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "tensors", "options", "values", "words"), CASES, ids=[f"{c[0]}-{c[4]}" for c in CASES]
)
def test_what_does_not_go_together_is_refused(
    kind: str, tensors: list[T], options: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    found = refusal(tmp_path, kind, tensors, options, values, "onnx")
    assert words in found and kind in found


EXACT = [
    ("ADD", [q(x()), T("w", IMAGE, I16, 0.1), q(y())],
     "AddOptions", {}, "'w' is int16; --rounding tflite needs 8 bits"),
    ("ADD", [q(x()), T("w", IMAGE), q(y())], "AddOptions", {}, "'w' is float32; --rounding tflite needs 8 bits"),
    ("CONV_2D", [q(x()), W, q(OUT)], "Conv2DOptions", CONV, "its weights are float32"),
    ("CONV_2D", [q(x()), W8, q(OUT, 0.1, -2852826175)], "Conv2DOptions", CONV,
     "the zero point -2852826175 is out of range for int8"),
    ("RELU6", [q(x()), q(y(), 0.1, -4391040)], "", {}, "the zero point -4391040 is out of range for int8"),
    ("CONV_2D", [q(x()), w(FILTERS, I8), q(OUT)], "Conv2DOptions", CONV, "its weights are int8"),
    ("CONV_2D", [q(x()), W8, known("b", [1, 2]), q(OUT)], "Conv2DOptions", CONV,
     "its bias int32[2]"),
    ("CONV_2D", [q(x()), W8, known("b", [1, 2, 3], I64), q(OUT)], "Conv2DOptions", CONV,
     "its bias int64[3]"),
    ("FULLY_CONNECTED", [q(x([2, 4])), w([3, 5], I8, 0.1), q(y([2, 3]))],
     "FullyConnectedOptions", {}, "its weights are for 5 inputs"),
    ("FULLY_CONNECTED", [q(x([2, 4])), w([3, 4], I8, 0.1), q(y([2, 3]))],
     "FullyConnectedOptions", {"WeightsFormat": 1}, "shuffled"),
    ("AVERAGE_POOL_2D", [q(x()), q(y(), 0.2)], "Pool2DOptions", {**POOL, "Padding": 0}, "have different quantizations"),
    ("SOFTMAX", [q(x([1, 4])), q(y([1, 4]), 1 / 128, -128)], "SoftmaxOptions", {"Beta": 1.0}, "scale is not 1/256"),
    ("SOFTMAX", [q(x([1, 4])), q(y([1, 4]), 1 / 256, 0)], "SoftmaxOptions", {"Beta": 1.0}, "scale is not 1/256"),
    ("MEAN", [wide(x()), known("a", [1]), q(y([1, 4, 2]))], "ReducerOptions", {}, "is int16; --rounding tflite"),
    ("SOFTMAX", [wide(x([1, 4])), q(y([1, 4]))], "SoftmaxOptions", {"Beta": 1.0}, "its input is int16"),
    ("AVERAGE_POOL_2D", [wide(x()), q(y())], "Pool2DOptions", {**POOL, "Padding": 0}, "is int16; --rounding tflite"),
    ("MUL", [wide(x()), T("w", IMAGE, I16, 0.1), q(y())], "MulOptions", {}, "is int16; --rounding tflite"),
    ("SUB", [q(x()), T("w", IMAGE, I16, 0.1), q(y())], "SubOptions", {}, "'w' is int16; --rounding tflite"),
    ("FULLY_CONNECTED", [wide(x([2, 4])), w([3, 4], I8, 0.1), q(y([2, 3]))], "FullyConnectedOptions", {},
     "is int16; --rounding tflite"),
    ("CONV_2D", [wide(x()), W8, q(OUT)], "Conv2DOptions", CONV, "is int16; --rounding tflite"),
    ("TRANSPOSE_CONV", [known("s", IMAGE), w([2, 1, 1, 2], I8, 0.1), wide(x()), q(y())], "TransposeConvOptions",
     {"StrideH": 1, "StrideW": 1}, "is int16; --rounding tflite"),
    ("MAX_POOL_2D", [q(x()), q(y(), 0.2)], "Pool2DOptions", {**POOL, "Padding": 0}, "have different quantizations"),
    ("ADD", [wide(x(), 0.25), T("w", IMAGE, I16, 0.25), wide(y(), 0.125)], "AddOptions", {},
     "LiteRT does not support the scales of its operands and its result, 2^-2, 2^-2, 2^-3"),
    ("SUB", [wide(x(), 0.5), T("w", IMAGE, I16, 0.25), wide(y(), 0.125)], "SubOptions", {}, "LiteRT does not support"),
    ("ADD", [wide(x(), 0.25), T("w", [2], I16, 0.5), wide(y(), 0.5)], "AddOptions", {}, "its operands differ in shape"),
    ("SUM", [wide(x([2**16])), known("a", [0]), wide(y([]))], "ReducerOptions", {}, "may overflow 32 bits"),
    ("PRELU", [q(x()), w([2], I8, [0.1, 0.2], 0), q(y())], "", {}, "its slopes are int8 with 2 scales"),
    ("SQUARED_DIFFERENCE", [T("x", IMAGE, U8, 0.1), T("w", IMAGE, U8, 0.1), T("y", IMAGE, U8, 0.1)], "", {},
     "uint8 is not supported"),
    ("DIV", [q(x()), T("w", IMAGE, I8, 0.1), q(y(), 0.5)], "DivOptions", {},
     "for divisors up to 128, LiteRT's kernel shifts numbers by more bits than they have"),  # it makes 127 of 3 / 157
    ("DIV", [q(x()), T("w", [2], I8, 0.1, 3, data=np.asarray([3, 4])), q(y(), 1e-3)], "DivOptions", {},
     "a constant divisor is 0"),
    ("LOG_SOFTMAX", [q(x([1, 4])), q(y([1, 4]), 0.2)], "", {}, "its output has scale 0.2"),
    ("REDUCE_PROD", [T("x", [4], U8, 0.1), known("a", [0]), T("y", [], U8, 0.1)], "ReducerOptions", {},
     "LiteRT supports int8 and int16"),
    ("FULLY_CONNECTED", [wide(x([2, 4])), w([3, 4], I8, 0.1), known("b", [1, 2, 3]), wide(y([2, 3]))],
     "FullyConnectedOptions", {}, "its bias is int32"),
    ("QUANTIZE", [x(), T("y", IMAGE, I32, 0.1)], "QuantizeOptions", {}, "its output is int32 with 1 scale"),
    ("RELU", [q(x()), T("y", IMAGE, I16, 0.1)], "", {}, "'y' is int16; --rounding tflite needs 8 bits"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "tensors", "options", "values", "words"), EXACT, ids=[f"{c[0]}-{c[4]}" for c in EXACT]
)
def test_what_has_no_exact_form_is_refused(
    kind: str, tensors: list[T], options: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    found = refusal(tmp_path, kind, tensors, options, values, "tflite")
    assert words in found and kind in found


def by_litert(kind: str, weights: T, tensors: Sequence[T], options: str, values: Mapping[str, Any]) -> Any:
    """Return what LiteRT's reference kernels make of an input with weights, and with a bias of 0."""
    image, made = tensors
    bias = np.zeros(made.shape[-1], I64 if image.dtype == I16 else I32)
    scale = np.asarray(weights.scale) * image.scale
    b = T("b", bias.shape, bias.dtype, scale.tolist(), 0, 0, bias)
    versions = {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 6, "FULLY_CONNECTED": 9}
    op = Op(kind, ["x", "w", "b"], ["y"], options, values)
    data = model([image, weights, b, made], [op], ["x"], ["y"], versions=versions)
    return litert(data, {"x": np.arange(np.prod(image.shape), dtype=image.dtype).reshape(image.shape)}, reference=True)


@pytest.mark.parametrize(("kind", "options", "shape", "filters", "made", "scale", "axis", "values"), ZERO_POINTS)
def test_litert_refuses_a_zero_point_of_int8_weights_or_leaves_it_out(
    kind: str, options: str, shape: list[int], filters: list[int], made: list[int], scale: Any, axis: int,
    values: dict[str, Any],
) -> None:  # fmt: skip
    tensors = [q(x(shape)), q(y(made))]
    without, with_one = (w(filters, I8, scale, axis, zero) for zero in (0, 3))
    expected = by_litert(kind, without, tensors, options, values)
    if kind == "CONV_2D":
        with pytest.raises(RuntimeError, match="zero_point"):
            by_litert(kind, with_one, tensors, options, values)
    else:
        assert np.array_equal(by_litert(kind, with_one, tensors, options, values), expected)


def test_litert_reads_weights_of_uint8_as_int8_where_the_input_is_int16() -> None:
    tensors = [wide(x([1, 4]), 1.0), wide(y([1, 3]), 1.0)]
    data = np.arange(190, 202, dtype=U8).reshape(3, 4)
    found, expected = (
        by_litert("FULLY_CONNECTED", T("w", [3, 4], d.dtype, 0.5, 4, 0, d), tensors, "FullyConnectedOptions", {})
        for d in (data, data.view(I8))
    )
    assert np.array_equal(found, expected)


def test_a_value_that_is_made_twice_or_never(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    tensors = [T("x", [4]), T("y", [4]), T("z", [4])]
    path.write_bytes(model(tensors, [Op("RELU", ["x"], ["y"]), Op("EXP", ["x"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError, match="defines 'y' twice"):
        load(path)
    path.write_bytes(model(tensors, [Op("RELU", ["x"], ["x"])], ["x"], ["x"]))
    with pytest.raises(ModelError, match="defines 'x' twice"):
        load(path)
    path.write_bytes(model(tensors, [Op("RELU", ["x"], ["y"])], ["x"], ["y", "z"]))
    with pytest.raises(ModelError, match="has no operator that computes its output 'z'"):
        load(path)
