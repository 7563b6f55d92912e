"""Replace float arithmetic between integers by integer arithmetic with the same results.

An expression that ends in `quantize` is a function of the small integers and the accumulator that it reads. The
rewrites, in order:

  bounds   quantize(max(x, c)) clamps after rounding instead (quantize is monotonic)
  tables   one 8-bit argument: all 256 results are computed here; a shift if the table is equivalent to one
  pairs    a sum of two scaled 8-bit arguments: (a*m + b*n + o) >> s, compared with the float formula
           for all 65,536 pairs; on targets without an FPU also with ties to even
  requant  an int32 or int64 accumulator times a scale: `requantize`

A `rescale` of a sum, TFLite's arithmetic, becomes a pair too if the results are equal. An accumulator that is only read
as an integer (for `rescale`) never becomes a float.

Last, on targets without an FPU, float scales become 32-bit multipliers and one shift an operator. Results of 8 bits are
those of the float scales, for every accumulator that can occur: each multiplier is proved to give them
(mtool.compiler.kernels.exact_scaling), rounds ties to even where they occur, or is marked so that results near a half
are rounded as float32 rounds them. Otherwise the operator keeps its floats. Results of 16 bits may differ by one near
ties.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mtool.compiler.ir import Array, Computation, DType, Expr, Graph, Node, Rewriter, WithEpilogue, rewritten
from mtool.compiler.ir.expr import call, const, identity, load
from mtool.compiler.ir.scalar import FUNCTIONS, FixedRequantize, Requantize, RescalePair, evaluate
from mtool.compiler.kernels.exact_scaling import Steps
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import with_expression
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.kernels.weighted_sum import WeightedSum

SEARCH = 6  # the largest distance from a pair's rounded multipliers at which others are tried
SAMPLE = 15  # the stride of the first, quick comparison
SMALL = (DType.INT8, DType.UINT8)
Term = tuple[Expr, float, int]  # an 8-bit expression, its scale and zero point


@dataclass(frozen=True, slots=True)
class ScaledSum:
    """A sum a * ratios[0] + b * ratios[1] + offset of two 8-bit expressions, rounded and clamped to limits.

    zeros: their zero points.
    """

    atoms: tuple[Expr, Expr]
    ratios: tuple[float, float]
    offset: float
    limits: tuple[int, int]
    zeros: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, part: Expr) -> "ScaledSum | None":
        """Match a `quantize` of float arithmetic, or TFLite's `rescale` to 8 bits; None: no match."""
        if part.args[1].op != "const" or part.args[2].op != "const":
            return None
        if part.op == "quantize":
            terms, step, zero = _terms(part.args[0], _dequantized), float(part.args[1].value), int(part.args[2].value)
            limits = part.value or part.dtype.limits
        elif part.dtype in SMALL and part.args[1].value:
            terms, step, zero = _terms(part.args[0], _rescaled), 1 / _factor(part), part.value.zero_point
            limits = part.value.low, part.value.high
        else:
            return None
        if terms is None or terms[0][0] == terms[1][0]:
            return None
        (a, a_scale, a_zero), (b, b_scale, b_zero) = terms
        ratios = a_scale / step, b_scale / step
        return cls((a, b), ratios, zero - ratios[0] * a_zero - ratios[1] * b_zero, limits, (a_zero, b_zero))

    def exact(self, wanted: Array, a: Array, b: Array) -> RescalePair | None:
        """Find multipliers, an offset and a shift that give `wanted` [a, b] everywhere; None: not found.

        For a pair of multipliers, the valid offsets for each of the 65,536 sums are an interval; all must intersect.
        """
        low, high = self.limits
        largest = int(max(np.abs(a).max(), np.abs(b).max()))
        steps = sorted(itertools.product(range(-SEARCH, SEARCH + 1), repeat=2), key=lambda d: abs(d[0]) + abs(d[1]))
        for shift in self.shifts(largest):
            left, right = (round(ratio * 2**shift) for ratio in self.ratios)
            least = np.where(wanted > low, wanted << shift, -(2**40))
            most = np.where(wanted < high, ((wanted + 1) << shift) - 1, 2**40)
            for more_left, more_right in steps:
                for some in (slice(None, None, SAMPLE), slice(None)):  # a sample rules out most multipliers
                    sums = (a[some] * (left + more_left))[:, None] + (b[some] * (right + more_right))[None]
                    first, last = int((least[some, some] - sums).max()), int((most[some, some] - sums).min())
                    if first > last:
                        break
                added = (first + last) // 2
                if first <= last and np.abs(sums).max() + abs(added) < 2**31:
                    return RescalePair(left + more_left, right + more_right, added, shift, low, high)
        return None

    def even(self, wanted: Array, a: Array, b: Array) -> RescalePair | None:
        """Return a pair that rounds ties to even, if it gives `wanted` [a, b] everywhere.

        It is for scales that are powers of two, with which ties occur.
        """
        shift = self.shifts(255)[0]
        left, right = (round(ratio * 2**shift) for ratio in self.ratios)
        zero_point = self.offset + sum(ratio * zero for ratio, zero in zip(self.ratios, self.zeros, strict=True))
        added = -left * self.zeros[0] - right * self.zeros[1]
        pair = RescalePair(left, right, added, shift, *self.limits, even=True, zero_point=round(zero_point))
        got = FUNCTIONS["rescale_pair"].meaning(Expr("rescale_pair", DType.INT32, value=pair), a[:, None], b[None])
        return pair if np.array_equal(got, wanted) else None

    def shifts(self, largest: int) -> range:
        """Return the shifts, largest first, with which no sum overflows 32 bits."""
        reach = largest * (abs(self.ratios[0]) + abs(self.ratios[1])) + abs(self.offset) + 2
        return range(min(23, math.floor(31 - math.log2(reach))), 11, -1)


def _terms(expr: Expr, read: Callable[[Expr], Term | None]) -> tuple[Term, Term] | None:
    """Return the two terms of a sum or a difference."""
    if expr.op not in ("add", "sub"):
        return None
    left, right = (read(arg) for arg in expr.args)
    if left is None or right is None:
        return None
    atom, scale, zero = right
    return left, (atom, -scale if expr.op == "sub" else scale, zero)


def _dequantized(expr: Expr) -> Term | None:
    """Match (x - zero) * scale of floats."""
    if expr.op != "mul" or expr.args[1].op != "const" or expr.args[0].op != "cast":
        return None
    inner, zero = expr.args[0].args[0], 0
    if inner.op == "sub" and inner.args[1].op == "const":
        inner, zero = inner.args[0], int(inner.args[1].value)
    atom = inner.args[0] if inner.op == "cast" else inner
    return (atom, float(expr.args[1].value), zero) if atom.dtype in SMALL else None


def _rescaled(expr: Expr) -> Term | None:
    """Match (x - zero) * 2^n of int32, possibly rescaled."""
    scale, zero = 1.0, 0
    if expr.op == "rescale" and expr.args[1].op == "const" and expr.args[2].op == "const":
        scale, expr = _factor(expr), expr.args[0]
    if expr.op == "mul" and expr.args[1].op == "const":
        scale, expr = scale * float(expr.args[1].value), expr.args[0]
    if expr.op == "sub" and expr.args[1].op == "const":
        zero, expr = int(expr.args[1].value), expr.args[0]
    if expr.op != "cast" or expr.args[0].dtype not in SMALL:
        return None
    return expr.args[0], scale, zero


def _factor(part: Expr) -> float:
    """Return the factor of a rescale by constants."""
    _, multiplier, shift = part.args
    return int(multiplier.value) / float(2 ** (32 + int(shift.value)))


FAST_ROUNDING = 2**22
MAY_BE_NAN = {"log", "log1p", "sqrt", "pow", "asin", "acos", "acosh", "atanh", "fmod", "remainder"}
"""Functions that may return NaN, which is quantized to the lowest value, whatever the bounds."""


def use_integer_math(graph: Graph, target: Target) -> Graph:
    """Rewrite every `quantize` in epilogues and loops to which one of the forms applies."""

    def change(rewriter: Rewriter, node: Node) -> Node | None:
        attrs = Computation.of(node)
        work = _Work(rewriter, replace(node, inputs=tuple(map(rewriter.resolve, node.inputs))), target)
        expr = attrs.expr.rewrite(_bounds).rewrite(work.rewritten).rewrite(_without_ones)
        is_copy = isinstance(attrs, Loop) and expr.op == "load" and _is_copy(expr, node, graph)
        if is_copy and node.outputs[0] not in graph.outputs:
            rewriter.rename(node.outputs[0], work.inputs[expr.value])
            return None
        return with_expression(node, expr, work.inputs)

    return rewritten(graph, change, Computation)


def _is_copy(expr: Expr, node: Node, graph: Graph) -> bool:
    if expr.value >= len(node.inputs):
        return False  # a table from this pass
    source, out = graph.types[node.inputs[expr.value]], graph.types[node.outputs[0]]
    plain = all(index.op == "axis" and index.value == dim for dim, index in enumerate(expr.args))
    return plain and source == out


def _bounds(part: Expr) -> Expr:
    """Move constant bounds out of a quantize."""
    if part.op != "quantize" or part.args[1].op != "const" or part.args[2].op != "const":
        return part
    low, high = part.value or part.dtype.limits
    inner, scale, zero_point = part.args
    if any(each.op in MAY_BE_NAN for each in inner.walk()):
        return part
    while inner.op in ("maximum", "minimum") and inner.args[1].op == "const" and not np.isnan(inner.args[1].value):
        step = evaluate(call("quantize", inner.args[1], scale, zero_point, dtype=part.dtype), [], ()).item()
        low, high = (max(low, step), high) if inner.op == "maximum" else (low, min(high, step))
        inner = inner.args[0]
    return replace(part, args=(inner, scale, zero_point), value=(low, max(low, high)))


def _whole(part: Expr) -> Expr:
    """Simplify an integer that is converted to a float, multiplied by 1, and converted back."""
    inner = part.args[0]
    if part.dtype in (DType.INT32, DType.INT64) and inner.op == "mul" and inner.args[1] == const(1.0, DType.FLOAT32):
        cast = inner.args[0]
        if cast.op == "cast" and cast.args[0].dtype is part.dtype:
            return cast.args[0]
        if cast.op == "cast" and cast.args[0].dtype is DType.INT32:
            return replace(part, args=cast.args)
    return part


def _without_ones(part: Expr) -> Expr:
    """Simplify a float times 1, once nothing depends on the factor to recognize an integer."""
    return part.args[0] if part.op == "mul" and part.args[1] == const(1.0, DType.FLOAT32) else part


class _Work:
    """Rewrites one node: constants that the new forms need are appended to its inputs."""

    def __init__(self, rewriter: Rewriter, node: Node, target: Target) -> None:
        self.rewriter, self.node, self.target = rewriter, node, target
        self.inputs = list(node.inputs)
        self.known: dict[Expr, Expr] = {}
        self.tabled: dict[Expr, Expr] = {}  # the expression that a lookup replaces

    def rewritten(self, part: Expr) -> Expr:
        """Rewrite a part; equal parts give equal results, so that repeated uses of one number remain visible."""
        if part not in self.known:
            self.known[part] = self._rewritten(part)
        return self.known[part]

    def _rewritten(self, part: Expr) -> Expr:
        if part.op == "cast":
            return _whole(part)
        if part.op == "rescale":
            return self._pair(part) or part
        if part.op != "quantize":
            return part
        for form in (self._table, self._pair, self._requantize):
            found: Expr | None = form(part)
            if found is not None:
                return found
        return part

    def _parameter(self, expr: Expr) -> Array | None:
        """Return a constant's value, or the vector behind a per-channel load."""
        if expr.op == "const":
            return np.asarray(expr.value, expr.dtype.numpy)
        value = self.inputs[expr.value] if expr.op == "load" else ""
        return self.rewriter.constants.get(value)

    def _number(self, part: Expr) -> Expr:
        """Replace a load of a constant with one element by its number."""
        data = self._parameter(part) if part.op == "load" else None
        return part if data is None or data.size != 1 else const(data.reshape(-1)[0].item(), part.dtype)

    def _table(self, part: Expr) -> Expr | None:
        part = part.rewrite(lambda p: self.tabled.get(p, p))  # a table of tables is one table
        part = part.rewrite(self._number)
        inside = set(self.tabled.values())
        atoms = _atoms(part, lambda expr: expr not in inside and self._is_activation(expr))
        if atoms is None or len(atoms) != 1 or part.dtype not in SMALL:
            return None
        (atom,) = atoms
        low, high = atom.dtype.limits
        values = np.arange(low, high + 1).astype(atom.dtype.numpy)
        table = _tabulate(part, {atom: 0}, [values], (256,))
        if part.dtype == atom.dtype and np.array_equal(table, values):
            return atom
        steps = table.astype(np.int32) - values
        if (steps == steps[0]).all():
            shift = const(int(steps[0]), DType.INT32)
            moved = call("add", call("cast", atom, dtype=DType.INT32), shift, value="index")
            shifted = call("cast", moved, dtype=part.dtype)
            self.tabled[shifted] = part
            return shifted
        self.inputs.append(self.rewriter.constant(f"{self.node.name}/table", table))
        index = call("add", call("cast", atom, dtype=DType.INT32), const(-low, DType.INT32), value="index")
        lookup = load(len(self.inputs) - 1, part.dtype, (index,))
        self.tabled[lookup] = part
        return lookup

    def _is_activation(self, expr: Expr) -> bool:
        """Whether an expression is an 8-bit number that is only known at run time."""
        if expr.dtype not in SMALL:
            return False
        return expr.op != "load" or self.inputs[expr.value] not in self.rewriter.constants

    def _pair(self, part: Expr) -> Expr | None:
        found = ScaledSum.of(part)
        if found is None:
            return None
        a, b = found.atoms
        grids = [
            np.arange(atom.dtype.limits[0], atom.dtype.limits[1] + 1).astype(atom.dtype.numpy).reshape(view)
            for atom, view in ((a, (-1, 1)), (b, (1, -1)))
        ]
        wanted = _tabulate(part, {a: 0, b: 1}, [np.broadcast_to(grid, (256, 256)) for grid in grids], (256, 256))
        left, right = (grid.reshape(-1).astype(np.int64) for grid in grids)
        how = found.exact(wanted.astype(np.int64), left, right)
        if how is None and part.op == "quantize" and not self.target.has_float:
            how = found.even(wanted.astype(np.int64), left, right)
        return None if how is None else Expr("rescale_pair", part.dtype, (a, b), how)

    def _requantize(self, part: Expr) -> Expr | None:
        inner, scale, zero_point = part.args
        out_scale, zero = self._parameter(scale), self._parameter(zero_point)
        if inner.op != "mul" or inner.args[0].op != "cast" or out_scale is None or zero is None or zero.size != 1:
            return None
        total, factor = inner.args[0].args[0], self._parameter(inner.args[1])
        if total.dtype not in (DType.INT32, DType.INT64) or factor is None:
            return None
        ratio = (factor.astype(np.float32) / out_scale.astype(np.float32)).astype(np.float32)
        low, high = part.value or part.dtype.limits
        attrs = self.node.attrs
        bound = (attrs.acc_bound if isinstance(attrs, WithEpilogue) else 0) or 2**31
        bounded = bool(bound * np.float64(ratio.max()) < FAST_ROUNDING)
        value = Requantize(int(zero.reshape(-1)[0]), low, high, bounded)
        if ratio.size == 1:
            operand = const(ratio.reshape(-1)[0].item(), DType.FLOAT32)
        else:
            vector = inner.args[1] if inner.args[1].op == "load" else scale
            self.inputs.append(self.rewriter.constant(f"{self.node.name}/scale", ratio))
            operand = load(len(self.inputs) - 1, DType.FLOAT32, vector.args)
        return Expr("requantize", part.dtype, (total, operand), value)


def _atoms(part: Expr, is_atom: Callable[[Expr], bool]) -> set[Expr] | None:
    """Return the 8-bit expressions that `part` is a function of; None: it depends on something else."""
    found: set[Expr] = set()
    waiting = [*part.args]
    while waiting:
        arg = waiting.pop()
        if arg in found or is_atom(arg):
            found.add(arg)
        elif arg.op in ("load", "acc", "axis", "reduce"):
            return None
        else:
            waiting += arg.args
    return found


def _tabulate(part: Expr, numbers: dict[Expr, int], values: list[Array], shape: tuple[int, ...]) -> Array:
    """Evaluate an expression with its atoms replaced by arrays of `shape`."""
    index = identity(len(shape))

    def replaced(expr: Expr, args: Sequence[Expr]) -> Expr:
        return load(numbers[expr], expr.dtype, index) if expr in numbers else replace(expr, args=tuple(args))

    return evaluate(part.fold(replaced), values, shape)


APART = 4  # the most accumulators by which a multiplier may miss a step


def use_fixed_point(graph: Graph, target: Target) -> Graph:
    """Rewrite `requantize` as `requantize_fixed` on targets without float32 hardware, or with vectors of integers."""
    if target.has_float and not target.has_rvv:
        return graph
    return rewritten(graph, lambda rewriter, node: _fixed(rewriter, node, target), WithEpilogue)  # a loop has no sum


def _fixed(rewriter: Rewriter, node: Node, target: Target) -> Node:
    attrs, inputs = WithEpilogue.of(node), list(node.inputs)

    def fixed(part: Expr) -> Expr:
        if part.op != "requantize" or not attrs.acc_bound or part.args[0].dtype is not DType.INT32:
            return part
        total, factor = part.args
        data = np.asarray(factor.value) if factor.op == "const" else rewriter.constants[inputs[factor.value]]
        scales = data.astype(np.float32).reshape(-1)
        shift = best_shift(float(scales.max()), attrs.acc_bound, 8 * part.dtype.size)
        if shift is None:
            return part
        reach = _reach(node, rewriter.graph, total, len(scales), attrs.acc_bound)
        found = _form(scales, part.value, part.dtype, shift, attrs.acc_bound, reach)
        if found is None:
            return part
        value, multipliers = found
        short = target.is_thumb1 and is_short(value, multipliers, attrs.acc_bound)
        value = replace(value, bounded=part.value.bounded, short=short, scales=tuple(scales.tolist()))
        if factor.op == "const":
            multiplier = const(int(multipliers[0]), DType.INT32)
        else:
            inputs.append(rewriter.constant(f"{node.name}/multiplier", multipliers.reshape(data.shape)))
            multiplier = Expr("load", DType.INT32, factor.args, len(inputs) - 1)
        return Expr("requantize_fixed", part.dtype, (total, multiplier), value)

    expr = attrs.epilogue.rewrite(fixed)
    return with_expression(node, expr, inputs)


def is_short(how: FixedRequantize, multipliers: Array, bound: int) -> bool:
    """Whether mt_requantize_fixed_short computes the same: no product and no sum needs more than 32 bits."""
    largest = int(np.abs(multipliers.astype(np.int64)).max())
    return bound < 2**20 and (bound * largest >> 20) + (abs(how.offset) << 12) + 2 < 2**31 and how.shift <= 19


def best_shift(largest: float, bound: int, bits: int = 8) -> int | None:
    """Return the largest shift that keeps the multiplier below 2^31, and scaled sums and results of `bits` below 2^30.

    None: the scale is too large for this form.
    """
    shift = min(30 - math.floor(math.log2(largest)) - 32, 29 - max(math.ceil(math.log2(max(largest * bound, 1))), bits))
    return shift if shift >= 1 and round(largest * 2.0 ** (32 + shift)) < 2**31 else None


def _reach(node: Node, graph: Graph, total: Expr, count: int, bound: int) -> Reach:
    """Return the range of the sums of `count` channels."""
    values = node.inputs[:3]
    if isinstance(node.attrs, WeightedSum) and total.op == "acc" and {*values[1:]} <= {*graph.constants}:
        low, high = graph.types[values[0]].dtype.limits
        weights, bias = graph.constants[values[1]], graph.constants[values[2]]
        if count == len(weights) == bias.size and weights.dtype.kind != "f":
            return Reach.of(weights, bias, low, high)
    return Reach.within(bound, count)


def _form(
    scales: Array, how: Requantize, kind: DType, shift: int, bound: int, reach: Reach
) -> tuple[FixedRequantize, Array] | None:
    """Return how sums are scaled, and the multipliers, int32 [N]; None: they can't be scaled exactly."""
    nearest = np.rint(scales.astype(np.float64) * 2.0 ** (32 + shift)).astype(np.int64)
    plain = FixedRequantize(how.zero_point, how.low, how.high, shift)
    even = replace(plain, even=True)
    ties = _ties_happen(nearest, shift, bound)
    if kind.size > 1:
        return even if ties else plain, nearest.astype(np.int32)
    steps = Steps.of(scales, how, reach)
    exact = steps.multipliers(shift)
    exact = np.where(exact * float(bound) < 2.0 ** (62 - 1), exact, 0)
    if exact.all():
        return plain, exact.astype(np.int32)
    if ties and steps.are_taken_by(lambda acc: _result(even, kind, acc, nearest[:, None])):
        return even, nearest.astype(np.int32)
    some = np.where(exact > 0, exact, -nearest)
    whole = nearest == scales.astype(np.float64) * 2.0 ** (32 + shift)
    if not (whole | (exact > 0)).all() or not steps.are_missed_beside_halves(nearest, shift, exact == 0, APART):
        return None
    return replace(plain, near=True), some.astype(np.int32)


def _result(how: FixedRequantize, kind: DType, acc: Array, multiplier: Array) -> Array:
    expr = Expr("requantize_fixed", kind, value=how)
    return np.asarray(FUNCTIONS["requantize_fixed"].meaning(expr, acc, multiplier), np.int64) - how.zero_point


def _ties_happen(multipliers: Array, shift: int, bound: int) -> bool:
    """Whether acc * multiplier can be an odd number of halves, which needs enough factors of two."""
    zeros = max((int(m) & -int(m)).bit_length() - 1 for m in multipliers.tolist())
    return bound >= 2.0 ** (31 + shift - zeros)
