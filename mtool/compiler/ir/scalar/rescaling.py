"""To integers and from integers to others: with a scale in float, in fixed point, or as TFLite has it."""

from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.scalar.function import A, Function
from mtool.compiler.ir.scalar.text import MUL, UNARY, Text
from mtool.compiler.ir.types import DType


def _quantise(expr: Expr, x: A, scale: A, zero_point: A) -> A:
    low, high = expr.value or expr.dtype.limits
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.float32(x) / np.float32(scale)) + zero_point
    return np.where(np.isnan(steps), low, np.clip(steps, low, high)).astype(expr.dtype.numpy)


def _quantise_text(expr: Expr, x: Text, scale: Text, zero_point: Text) -> Text:
    low, high = expr.value or expr.dtype.limits
    call = f"mt_quantise({x.c}, {scale.c}, {zero_point.c}, {low}, {high})"
    return Text(f"({expr.dtype.c}){call}", UNARY)


@dataclass(frozen=True, slots=True)
class Requantise:
    """int32 or int64 to a small integer: saturate(round_half_even((float)acc * scale) + zero_point) to [low, high].

    `bounded`: |acc * scale| is known to stay below 2^22, so that the cheap rounding is right.
    """

    zero_point: int
    low: int
    high: int
    bounded: bool


def _requantise(expr: Expr, total: A, scale: A) -> A:
    how: Requantise = expr.value
    product = np.asarray(total).astype(np.float32) * np.asarray(scale, np.float32)
    return np.clip(np.rint(product) + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)


def _requantise_text(expr: Expr, total: Text, scale: Text) -> Text:
    how: Requantise = expr.value
    name = "mt_requantise" if how.bounded else "mt_requantise_wide"
    if expr.args[0].dtype is DType.INT64:
        name = "mt_requantise_long"
    call = f"{name}({total.c}, {scale.c}, {how.zero_point}, {how.low}, {how.high})"
    return Text(f"({expr.dtype.c}){call}", UNARY)


@dataclass(frozen=True, slots=True)
class FixedRequantise:
    """`Requantise` without an FPU: clamp((((int64)acc * multiplier) >> 32) + offset >> shift).

    That rounds ties up; `even` rounds them to even, for scales with which exact ties happen. `near`: some multipliers
    are negative; their accumulators beside a half are rounded as float32 rounds the product.
    """

    zero_point: int
    low: int
    high: int
    shift: int
    even: bool = False
    near: bool = False

    @property
    def offset(self) -> int:
        """Zero point and rounding, before the shift."""
        return (self.zero_point << self.shift) + (1 << (self.shift - 1))


def _fixed_requantise(expr: Expr, total: A, multiplier: A) -> A:
    how: FixedRequantise = expr.value
    whole = np.asarray(multiplier, np.int64)
    product = np.asarray(total, np.int64) * np.abs(whole)
    if how.even:
        half = np.int64(1) << (31 + how.shift)
        steps = (product + half - 1 + ((product >> (32 + how.shift)) & 1)) >> (32 + how.shift)
        return np.clip(steps + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)
    steps = (product >> 32) + how.offset >> how.shift
    if how.near:
        scale = np.ldexp(np.abs(whole), -32 - how.shift).astype(np.float32)
        rounded = np.rint(np.asarray(total).astype(np.float32) * scale).astype(np.int64) + how.zero_point
        steps = np.where(whole < 0, rounded, steps)
    return np.clip(steps, how.low, how.high).astype(expr.dtype.numpy)


def _fixed_requantise_text(expr: Expr, total: Text, multiplier: Text) -> Text:
    how: FixedRequantise = expr.value
    name, offset = ("_even", how.zero_point) if how.even else ("_exact" if how.near else "", how.offset)
    call = f"mt_requantise_fixed{name}({total.c}, {multiplier.c}, {offset}, {how.shift}, {how.low}, {how.high})"
    return Text(f"({expr.dtype.c}){call}", UNARY)


@dataclass(frozen=True, slots=True)
class RescalePair:
    """Two small integers to one: clamp((a * left + b * right + offset) >> shift), all in int32.

    `even`: the shift rounds to the nearest, ties to even, and the zero point is added behind it.
    """

    left: int
    right: int
    offset: int
    shift: int
    low: int
    high: int
    even: bool = False
    zero_point: int = 0


def _rescale_pair(expr: Expr, a: A, b: A) -> A:
    how: RescalePair = expr.value
    total = np.asarray(a, np.int64) * how.left + np.asarray(b, np.int64) * how.right + how.offset
    if how.even:
        total = total + (1 << (how.shift - 1)) - 1 + ((total >> how.shift) & 1)
    return np.clip((total >> how.shift) + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)


def _rescale_pair_text(expr: Expr, a: Text, b: Text) -> Text:
    how: RescalePair = expr.value
    total = f"{a.at(MUL)} * {how.left} + {b.at(MUL)} * {how.right} + {how.offset}".replace("+ -", "- ")
    if how.even:
        steps = f"mt_shift_even({total}, {how.shift}) + {how.zero_point}".replace("+ -", "- ")
        return Text(f"({expr.dtype.c})mt_clamp({steps}, {how.low}, {how.high})", UNARY)
    return Text(f"({expr.dtype.c})mt_clamp(({total}) >> {how.shift}, {how.low}, {how.high})", UNARY)


@dataclass(frozen=True, slots=True)
class Rescale:
    """int32 to an integer as TFLite's kernels do it: clamp(round(acc * multiplier / 2^(32 + shift)) + zero_point).

    The multiplier and the shift are arguments of the expression. Rounding is once, ties up; `twice`: first to
    acc * multiplier / 2^31, ties up, then the rest, ties away from zero. `wide`: a shift may be below 1, down to -31.
    """

    zero_point: int
    low: int
    high: int
    wide: bool
    twice: bool


def _rescale(expr: Expr, total: A, multiplier: A, shift: A) -> A:
    how: Rescale = expr.value
    product = np.asarray(total, np.int64) * np.asarray(multiplier, np.int64)
    total_shift = np.asarray(shift, np.int64) + 32
    if how.twice:
        left = np.maximum(31 - total_shift, 0)
        first = ((product << left) + (1 << 30)) >> 31
        right = np.maximum(total_shift - 31, 0)
        steps = np.where(right > 0, (first + (np.int64(1) << right >> 1) - (first < 0)) >> right, first)
    else:
        steps = (product + (np.int64(1) << (total_shift - 1))) >> total_shift
    return np.clip(steps + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)


def _rescale_text(expr: Expr, total: Text, multiplier: Text, shift: Text) -> Text:
    how: Rescale = expr.value
    call = (
        f"mt_rescale{'_twice' if how.twice else ''}{'_wide' if how.wide else ''}({total.c}, {multiplier.c}, {shift.c})"
    )
    if expr.dtype is DType.INT32:
        return Text(call)
    moved = f"{call} + {how.zero_point}".replace("+ -", "- ") if how.zero_point else call
    return Text(f"({expr.dtype.c})mt_clamp({moved}, {how.low}, {how.high})", UNARY)


@dataclass(frozen=True, slots=True)
class RescaleLong:
    """int64 to an integer as TFLite's kernels of int16 do it: clamp(round(acc * multiplier / 2^shift) + zero_point).

    The multiplier, of 15 bits, and the shift are arguments of the expression; ties are rounded up.
    """

    zero_point: int
    low: int
    high: int


def _rescale_long(expr: Expr, total: A, multiplier: A, shift: A) -> A:
    how: RescaleLong = expr.value
    shift = np.asarray(shift, np.int64)
    product = np.asarray(total, np.int64) * np.asarray(multiplier, np.int64)
    steps = (product + (np.int64(1) << (shift - 1))) >> shift
    return np.clip(steps + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)


def _rescale_long_text(expr: Expr, total: Text, multiplier: Text, shift: Text) -> Text:
    how: RescaleLong = expr.value
    call = f"mt_rescale_long({total.c}, {multiplier.c}, {shift.c})"
    moved = f"{call} + {how.zero_point}".replace("+ -", "- ") if how.zero_point else call
    return Text(f"({expr.dtype.c})mt_clamp({moved}, {how.low}, {how.high})", UNARY)


def _mean(expr: Expr, total: A, count: A) -> A:
    wide, divisor = np.asarray(total, np.int64), np.asarray(count, np.int64)
    return (np.sign(wide) * ((np.abs(wide) + divisor // 2) // divisor)).astype(expr.dtype.numpy)


RESCALING: dict[str, Function] = {
    "quantise": Function(_quantise, _quantise_text),
    "requantise": Function(_requantise, _requantise_text),
    "requantise_fixed": Function(_fixed_requantise, _fixed_requantise_text),
    "rescale": Function(_rescale, _rescale_text),
    "rescale_long": Function(_rescale_long, _rescale_long_text),
    "mean": Function(_mean, lambda expr, a, b: Text(f"mt_mean({a.c}, {b.c})")),  # int32, ties away from zero
    "rescale_pair": Function(_rescale_pair, _rescale_pair_text),
}
