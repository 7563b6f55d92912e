"""Operators that create tensors: ConstantOfShape 25, Range 11, EyeLike 22, OneHot 11, Trilu 14, ImageDecoder 20."""

import io
import math
import struct
from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import axis, call, choose, compare, const, load
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.bounds import Bounded
from mtool.compiler.operators.folding import SLOW, VECTORIZED, Folding, unknown_size
from mtool.compiler.operators.lowering import AlongAxis, Lowering
from mtool.compiler.operators.onnx_node import OnnxNode, as_in_onnx, computed, scalars_behind_first
from mtool.compiler.operators.operator import Case, Draw, Operator, TfliteBuiltin, case, constant
from mtool.compiler.operators.problems import MICROSOFT, OWN, NotComputed, Unsupported


class Fill(Attributes):
    """ConstantOfShape: the value of each element."""

    value: float | int | bool


class EyeLike(Attributes):
    """EyeLike: the diagonal of ones, `k` columns right of the main one."""

    k: int


class Trilu(Attributes):
    """Whether the upper (1) or the lower triangle (0) is kept."""

    upper: int = 1


def _fill(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.outputs[0]]
    ctx.loop(node, const(Fill.of(node).value, kind.dtype), [])


def _range(ctx: Lowering, node: Node) -> None:
    """Range: start + index * delta; the output's shape has the count."""
    kind = ctx.types[node.outputs[0]]
    start, delta = node.inputs[0], node.inputs[2]
    first, step = ctx.operands([start, delta], ())
    number = call("cast", axis(0), dtype=kind.dtype)
    ctx.loop(node, call("add", first, call("mul", number, step)), [start, delta])


def _eye_like(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.outputs[0]]
    diagonal = compare("equal", axis(1), axis(0) + EyeLike.of(node).k)
    ctx.loop(node, choose(diagonal, const(1, kind.dtype), const(0, kind.dtype)), [])


def _one_hot(ctx: Lowering, node: Node) -> None:
    """OneHot: a negative index counts from the end; one out of range gives `off` everywhere."""
    indices, values = node.inputs[0], node.inputs[2]
    kind, result = ctx.types[indices], ctx.types[node.outputs[0]]
    dim, depth = AlongAxis.of(node).axis, result.shape[AlongAxis.of(node).axis]
    index = tuple(axis(number) for number in range(len(result.shape)) if number != dim)
    chosen = load(0, kind.dtype, index)
    if not kind.dtype.is_integer:
        chosen = call("cast", chosen, dtype=DType.INT64)
    wide = call("cast", chosen, dtype=DType.INT64)
    zero, size = const(0, DType.INT64), const(depth, DType.INT64)
    from_end = choose(call("less", wide, zero, dtype=DType.BOOL), call("add", wide, size), wide)
    hit = call("equal", from_end, call("cast", axis(dim), dtype=DType.INT64), dtype=DType.BOOL)
    off, on = (load(1, result.dtype, (const(n, DType.INT32),)) for n in (0, 1))
    ctx.loop(node, choose(hit, on, off), [indices, values])


def _trilu(ctx: Lowering, node: Node) -> None:
    """Trilu: the upper or lower triangle, counted from diagonal k."""
    kind = ctx.types[node.outputs[0]]
    rank = len(kind.shape)
    inputs = [name for name in node.inputs if name]
    k: Expr | int = 0
    if len(inputs) > 1:
        (fill,) = ctx.operands(inputs[1:], ())
        fill = load(1, fill.dtype, ()) if fill.op == "load" else fill
        k = call("cast", fill, dtype=DType.INT32) if fill.op == "load" else int(fill.value)
    ahead = axis(rank - 1) - axis(rank - 2)
    is_kept = compare("greater_equal" if Trilu.of(node).upper else "less_equal", ahead, k)
    element = load(0, kind.dtype, tuple(axis(n) for n in range(rank)))
    ctx.loop(node, choose(is_kept, element, const(0, kind.dtype)), inputs)


def _constant_of_shape(node: OnnxNode) -> None:
    value = numpy_helper.to_array(node.attrs["value"]).item() if "value" in node.attrs else 0
    node.emit(Fill(value=value), op="Fill", inputs=[])


def _check_range(values: Sequence[Array]) -> None:
    """Refuse a step of 0 and infinite numbers: onnx's inference gives such a Range no elements."""
    numbers = [float(n) for value in values for n in value.reshape(-1)]
    if not all(map(math.isfinite, numbers)) or (numbers and numbers[-1] == 0):
        raise Unsupported(f"its start, limit and step, {numbers}, make an infinite range")


def _size_of_range(values: Sequence[Array]) -> int:
    if any(value.size != 1 for value in values):
        return unknown_size(values)
    start, limit, delta = (float(value.item()) for value in values)
    rounds = (limit - start) / delta if delta else math.inf
    return max(math.ceil(rounds), 0) if math.isfinite(rounds) else 1 << 62


def _eye_like_form(node: OnnxNode) -> None:
    """EyeLike: clamp a diagonal outside the matrix to the matrix's size."""
    rows, columns = node.shape
    node.emit(EyeLike(k=min(max(node.attrs.get("k", 0), -rows), columns)))


def _carry_one_hot(bounded: Bounded) -> int | None:
    if not bounded.single or bounded.operand:
        return None
    return bounded.axis if bounded.axis < AlongAxis.of(bounded).axis else bounded.axis + 1


def _range_cases(draw: Draw, op: Operator) -> Case:
    return Case([draw.constant(number, "float32") for number in (draw.rng.randint(0, 3), 9.5, 0.5)])


def _mel_cases(draw: Draw, op: Operator) -> Case:
    return Case(
        [*(draw.constant(n, "int64") for n in (8, 16, 8192)), *(draw.constant(f, "float32") for f in (0, 4096))]
    )


# ImageDecoder: Pillow decodes a constant image at compile time.


FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")  # those of the operator, as Pillow calls them


def _elements_of(encoded: Array) -> int:
    """Return the number of elements of the decoded image, from its header."""
    try:
        import PIL.Image
    except ImportError:
        raise NotComputed("decoding images needs Pillow, which is not installed: pip install pillow") from None
    try:
        with PIL.Image.open(io.BytesIO(np.asarray(encoded, np.uint8).tobytes()), formats=FORMATS) as image:
            return int(image.width * image.height * max(len(image.getbands()), 3))
    except Exception as failed:  # a damaged header
        raise NotComputed(f"its input is not an image that Pillow can decode: {type(failed).__name__}") from None


def _cases(draw: Draw, op: Operator) -> Case:
    """A bitmap of 2 x 2 pixels."""
    header = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 70, 0, 0, 54, 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0)
    return Case([draw.constant([*header, *draw.rng.randbytes(16)], np.uint8)], {"pixel_format": "RGB"})


OPERATORS = (
    Operator(
        "ConstantOfShape", cases=lambda draw, op: Case([draw.whole(draw.shape(3))]), canonical=_constant_of_shape,
        sizes=(0,), moves=True, folding=VECTORIZED.growing(),
    ),
    Operator("Fill", domain=OWN, attributes=Fill, lower=_fill),
    Operator(
        "Range", cases=_range_cases, check_constants=_check_range, sizes=(0, 1, 2), lower=_range,
        folding=Folding(VECTORIZED.cost, _size_of_range), tflite=(TfliteBuiltin("RANGE", 3, is_stored=True),),
    ),
    Operator("Range", domain=MICROSOFT, cases=_range_cases, expand=as_in_onnx),
    Operator(
        "EyeLike", cases=case(rank=2, k=(-1, 0, 2)), attributes=EyeLike, canonical=_eye_like_form, moves=True,
        folding=VECTORIZED, lower=_eye_like,
    ),
    Operator(
        "OneHot", cases=case(constant(4), constant([0.0, 1.0], "float32"), dtype="int64", rank=(1, 2), axis=(-1, 0, 1)),
        attributes=AlongAxis, axis_ends=(-1, 0), sizes=(1,), carry=_carry_one_hot, moves=True,
        canonical=lambda node: node.emit(AlongAxis(axis=node.axis(-1, len(node.result.shape)))),
        check_shapes=lambda node: math.prod(node.ins[1]) == 1 and node.ins[2] == (2,), folding=VECTORIZED.growing(),
        lower=_one_hot,
    ),
    Operator(
        "Trilu",
        cases=case(lambda draw, x: draw.constant(draw.rng.randint(-1, 1), "int64"), rank=(2, 3, 4), upper=(0, 1)),
        attributes=Trilu, check_shapes=scalars_behind_first, moves=True, folding=VECTORIZED, lower=_trilu,
    ),
    Operator("Trilu", domain=MICROSOFT, cases=case(rank=(2, 3), upper=(0, 1)), expand=as_in_onnx),
    Operator(
        "MelWeightMatrix", cases=_mel_cases, sizes=(0, 1, 2, 3, 4), folding=SLOW.growing(),
        canonical=computed("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
    ),
    Operator(
        "ImageDecoder", cases=_cases, canonical=computed("encoded_stream"), sizes=(0,), most_sizes=2**31,
        folding=Folding(lambda node: 8 * (node.values[0].size + _elements_of(node.values[0]))),
    ),
)  # fmt: skip
