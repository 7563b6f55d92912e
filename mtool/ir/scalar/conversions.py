"""From one type to another: casts of values and of bits."""

import numpy as np

from mtool.ir.expr import Expr
from mtool.ir.scalar.function import A, Function
from mtool.ir.scalar.text import ADD, UNARY, Text, half, loaded, nibble, stored
from mtool.ir.types import DType


def _cast(expr: Expr, a: A) -> A:
    data = np.asarray(a)
    with np.errstate(invalid="ignore", over="ignore"):
        if data.dtype.kind == "f" and expr.dtype.is_integer and expr.dtype.size < 4:
            data = data.astype(np.int32)
        return data.astype(expr.dtype.numpy)


def _cast_text(expr: Expr, x: Text) -> Text:
    source = expr.args[0].dtype
    if expr.dtype is DType.BOOL:
        return Text(f"(uint8_t)({x.at(ADD)} != 0)", UNARY)
    if expr.dtype.is_half:
        wide = x.c if source.computed == "float" else f"(float){x.at(UNARY)}"
        return Text(f"{half(expr.dtype)}_round({wide})")
    if expr.dtype.is_nibble:
        return nibble(expr.dtype, Text(f"(int32_t){x.at(UNARY)}", UNARY) if source.is_float else x)
    if source.is_float and expr.dtype.size < 4:  # by way of int32, as C's own conversion is undefined out of range
        return Text(f"({expr.dtype.c})(int32_t){x.at(UNARY)}", UNARY)
    return Text(f"({expr.dtype.c}){x.at(UNARY)}", UNARY)


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
