"""From one type to another: casts of values and of bits."""

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.scalar.function import A, Function
from mtool.compiler.ir.scalar.text import ADD, COMPARE, UNARY, Text, boolean, half, loaded, nibble, stored
from mtool.compiler.ir.types import DType


def _cast(expr: Expr, a: A) -> A:
    data = np.asarray(a)
    if expr.args[0].dtype.is_float and expr.dtype.is_integer:
        data = _truncated(data.astype(np.float64), expr.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        return data.astype(expr.dtype.numpy)


def _truncated(data: A, dtype: DType) -> A:
    """Return integers, towards zero, as mt_scalar.h has them: of NaN and outside of the type its least number."""
    bits = 64 if dtype.size == 8 else 32
    whole, least = np.trunc(data), -(2.0 ** (bits - 1))
    held = np.where((whole >= least) & (whole < -least), whole, least).astype(f"int{bits}")
    if dtype.kind == "int" or dtype.size < 4:
        return held
    fits = (whole >= 0) & (whole < -2 * least)
    return np.where(fits, np.where(fits, whole, 0).astype(f"uint{bits}"), held.astype(f"uint{bits}"))


def _cast_text(expr: Expr, x: Text) -> Text:
    source = expr.args[0].dtype
    if expr.dtype is DType.BOOL:
        return boolean(f"{x.at(ADD)} != 0", COMPARE)
    if expr.dtype.is_half:
        wide = x.c if source.computed == "float" else f"(float){x.at(UNARY)}"
        return Text(f"{half(expr.dtype)}_round({wide})")
    if source.is_float and expr.dtype.is_integer:
        x = _integer_from(source, expr.dtype, x)
    if expr.dtype.is_nibble:
        return nibble(expr.dtype, x)
    if source.is_float and expr.dtype.is_integer and expr.dtype.size >= 4:
        return x
    return Text(f"({expr.dtype.c}){x.at(UNARY)}", UNARY)


def _integer_from(source: DType, dtype: DType, x: Text) -> Text:
    """Return a float as an integer; a small one by way of int32, as in onnxruntime. C's own cast may be undefined."""
    code = dtype.code if dtype.size >= 4 else DType.INT32.code
    return Text(f"mt_{code}_from_{source.code}({x.c})")


def _bitcast(expr: Expr, a: A) -> A:
    return np.ascontiguousarray(a).view(expr.dtype.numpy).reshape(np.shape(a))


def _bitcast_text(expr: Expr, x: Text) -> Text:
    source = expr.args[0].dtype
    if source.is_half:
        x = Text(stored(x.c, source))
    elif source.is_float:
        x = Text(f"mt_u{source.size * 8}_of_{source.code}({x.c})")
    if expr.dtype.is_half:
        return Text(loaded(f"({expr.dtype.c}){x.at(UNARY)}", expr.dtype))
    if expr.dtype.is_float:
        unsigned = f"u{expr.dtype.size * 8}"
        return Text(f"mt_{expr.dtype.code}_of_{unsigned}((uint{expr.dtype.size * 8}_t){x.at(UNARY)})")
    return Text(f"({expr.dtype.c}){x.at(UNARY)}", UNARY)


CONVERSIONS: dict[str, Function] = {
    "bitcast": Function(_bitcast, _bitcast_text),
    "cast": Function(_cast, _cast_text),
}
