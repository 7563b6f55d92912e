"""Replace float arithmetic between integers by integer arithmetic with the same results.

An expression that ends in `quantize` is a function of the small integers and the accumulator that it reads. The
rewrites, in order:

  bounds   quantize(max(x, c)) clamps after rounding instead (quantize is monotonic)
  tables   one 8-bit argument: all 256 results are computed here; a shift if the table is equivalent to one
  choices  quantize(max(f, g)) becomes max(quantize(f), quantize(g)), and so do minima and conditions
  pairs    a sum or a product of two scaled 8-bit arguments (mtool.compiler.passes.scaled_pairs)
  requant  an int32 or int64 accumulator times a scale: `requantize`

A `rescale` of a sum, TFLite's arithmetic, becomes a pair too if the results are equal. An accumulator that is only read
as an integer (for `rescale`) never becomes a float.

Last, on targets without an FPU, float scales become 32-bit multipliers and one shift an operator. Results of 8 bits are
those of the float scales, for every accumulator that can occur: each multiplier is proved to give them
(mtool.compiler.kernels.exact_scaling), rounds ties to even where they occur, or is marked so that results near a half
are rounded as float32 rounds them. Otherwise the operator keeps its floats. Results of 16 bits may differ by one near
ties.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Array, Computation, DType, Expr, Graph, Node, Rewriter, WithEpilogue, rewritten
from mtool.compiler.ir.expr import call, const, identity, load
from mtool.compiler.ir.scalar import FUNCTIONS, FixedRequantize, Requantize, evaluate
from mtool.compiler.kernels.exact_scaling import Steps
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import with_expression
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.passes.scaled_pairs import SMALL, ScaledProduct, ScaledSum

FAST_ROUNDING = 2**22
MAY_BE_NAN = {"log", "log1p", "sqrt", "pow", "asin", "acos", "acosh", "atanh", "fmod", "remainder"}
"""Functions that may return NaN, which is quantized to the lowest value, whatever the bounds."""


def use_integer_math(graph: Graph, target: Target) -> Graph:
    """Rewrite every `quantize` in epilogues and loops to which one of the forms applies."""

    def change(rewriter: Rewriter, node: Node) -> Node | None:
        attrs = Computation.of(node)
        work = _ExprRewriter(rewriter, replace(node, inputs=tuple(map(rewriter.resolve, node.inputs))), target)
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
    if any(node.op in MAY_BE_NAN for node in inner.walk()):
        return part
    while inner.op in ("maximum", "minimum") and inner.args[1].op == "const" and not np.isnan(inner.args[1].value):
        step = evaluate(call("quantize", inner.args[1], scale, zero_point, dtype=part.dtype), [], ()).item()
        low, high = (max(low, step), high) if inner.op == "maximum" else (low, min(high, step))
        inner = inner.args[0]
    return replace(part, args=(inner, scale, zero_point), value=(low, max(low, high)))


def _without_round_trip(part: Expr) -> Expr:
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


class _ExprRewriter:
    """Rewrites one node: constants that the new forms need are appended to its inputs."""

    def __init__(self, rewriter: Rewriter, node: Node, target: Target) -> None:
        self.rewriter, self.node, self.target = rewriter, node, target
        self.inputs = list(node.inputs)
        self.rewrites: dict[Expr, Expr] = {}
        self.tabled: dict[Expr, Expr] = {}  # the expression that a lookup replaces

    def rewritten(self, part: Expr) -> Expr:
        """Rewrite a part; equal parts give equal results, so that repeated uses of one number remain visible."""
        if part not in self.rewrites:
            self.rewrites[part] = self._rewritten(part)
        return self.rewrites[part]

    def _rewritten(self, part: Expr) -> Expr:
        choice = self._choice_of_constants(part)
        if choice is not None:
            return choice
        if part.op == "cast":
            return _without_round_trip(part)
        if part.op == "rescale":
            return self._pair(part) or part
        if part.op != "quantize":
            return part
        for form in (self._table, self._choice, self._pair, self._requantize):
            result: Expr | None = form(part)
            if result is not None:
                return result
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
        lookup = self._look_up(atom, table)
        self.tabled[lookup] = part
        return lookup

    def _look_up(self, index: Expr, table: Array) -> Expr:
        """Return the element of a table for all 256 values of an 8-bit index."""
        # in the order of the numbers' bits as uint8
        ordered = np.roll(table, index.dtype.limits[0])
        self.inputs.append(self.rewriter.constant(f"{self.node.name}/table", ordered))
        place = call("cast", call("cast", index, dtype=DType.UINT8), dtype=DType.INT32)
        return load(len(self.inputs) - 1, DType.of(table.dtype), (place,))

    def _is_activation(self, expr: Expr) -> bool:
        """Whether an expression is an 8-bit number that is only known at run time."""
        if expr.dtype not in SMALL:
            return False
        return expr.op != "load" or self.inputs[expr.value] not in self.rewriter.constants

    def _choice_of_constants(self, part: Expr) -> Expr | None:
        """Compute a function of a choice between two constants for both."""
        args = [self._number(arg) for arg in part.args]
        choices = [arg for arg in args if arg.op == "where"]
        if len(choices) != 1 or part.op in ("where", "load", "reduce") or part.dtype is DType.BOOL:
            return None
        condition, *sides = choices[0].args
        if any(arg.op != "const" for arg in (*args, *sides) if arg != choices[0]):
            return None
        parts = [replace(part, args=tuple(side if arg == choices[0] else arg for arg in args)) for side in sides]
        yes, no = (const(evaluate(expr, [], ()).item(), part.dtype) for expr in parts)
        return call("where", condition, yes, no, dtype=part.dtype)

    def _choice(self, part: Expr) -> Expr | None:
        """Quantize both sides of a maximum, a minimum or a condition, if both are integers then.

        quantize is monotonic. A maximum with a NaN is NaN, which quantize makes the lowest number.
        """
        inner, *parameters = part.args
        if inner.op not in ("maximum", "minimum", "where"):
            return None
        if inner.op != "where" and any(node.op in MAY_BE_NAN for node in inner.walk()):
            return None
        *condition, left, right = inner.args
        sides = [self.rewritten(_bounds(replace(part, args=(side, *parameters)))) for side in (left, right)]
        if any(side.op == "quantize" for side in sides):
            return None
        return call(inner.op, *condition, *sides, dtype=part.dtype)

    def _pair(self, part: Expr) -> Expr | None:
        product = ScaledProduct.of(part)
        pair = product or ScaledSum.of(part)
        if pair is None:
            return None
        a, b = pair.atoms
        grids = [
            np.arange(atom.dtype.limits[0], atom.dtype.limits[1] + 1).astype(atom.dtype.numpy).reshape(view)
            for atom, view in ((a, (-1, 1)), (b, (1, -1)))
        ]
        results = _tabulate(part, {a: 0, b: 1}, [np.broadcast_to(grid, (256, 256)) for grid in grids], (256, 256))
        expected = results.astype(np.int64)
        if (expected == expected[0, 0]).all():
            return const(int(expected[0, 0]), part.dtype)
        codes = grids[0].reshape(-1).astype(np.int64), grids[1].reshape(-1).astype(np.int64)
        values = [
            _tabulate(term, {atom: 0}, [grid.reshape(-1)], (256,)).astype(np.float64)
            for term, atom, grid in zip(part.args[0].args, (a, b), grids, strict=True)
        ]
        terms = values[0], -values[1] if part.args[0].op == "sub" else values[1]
        plain = pair.exact(part, expected, codes)
        if plain is not None or self.target.has_mve:  # otherwise Helium's floats are faster
            return plain
        even = pair.even(part, expected, codes) if part.op == "quantize" else None
        return even or pair.beside_ties(part, expected, codes, terms, self._look_up)

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
    atoms: set[Expr] = set()
    waiting = [*part.args]
    while waiting:
        arg = waiting.pop()
        if arg in atoms or is_atom(arg):
            atoms.add(arg)
        elif arg.op in ("load", "acc", "axis", "reduce"):
            return None
        else:
            waiting += arg.args
    return atoms


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
        result = _form(scales, part.value, part.dtype, shift, attrs.acc_bound, reach)
        if result is None:
            return part
        value, multipliers = result
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


def is_short(req: FixedRequantize, multipliers: Array, bound: int) -> bool:
    """Whether the short functions of mt_math.h compute the same: no product and no sum needs more than 32 bits."""
    largest = int(np.abs(multipliers.astype(np.int64)).max())
    fits = bound < 2**20 and (bound * largest >> 20) + (abs(req.offset) + (abs(req.low) << req.shift) << 12) + 2 < 2**31
    return fits and not req.even and (4 if req.near else 1) <= req.shift <= 19


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
    scales: Array, req: Requantize, kind: DType, shift: int, bound: int, reach: Reach
) -> tuple[FixedRequantize, Array] | None:
    """Return how sums are scaled, and the multipliers, int32 [N]; None: they can't be scaled exactly."""
    nearest = np.rint(scales.astype(np.float64) * 2.0 ** (32 + shift)).astype(np.int64)
    plain = FixedRequantize(req.zero_point, req.low, req.high, shift)
    even = replace(plain, even=True)
    ties = _ties_happen(nearest, shift, bound)
    if kind.size > 1:
        return even if ties else plain, nearest.astype(np.int32)
    steps = Steps.of(scales, req, reach)
    exact = steps.multipliers(shift)
    exact = np.where(exact * float(bound) < 2.0 ** (62 - 1), exact, 0)
    if exact.all():
        return plain, exact.astype(np.int32)
    if ties and steps.agree_with(lambda acc: _result(even, kind, acc, nearest[:, None])):
        return even, nearest.astype(np.int32)
    signed = np.where(exact > 0, exact, -nearest)
    is_exact = nearest == scales.astype(np.float64) * 2.0 ** (32 + shift)
    if not (is_exact | (exact > 0)).all() or not steps.are_missed_beside_halves(nearest, shift, exact == 0, APART):
        return None
    return replace(plain, near=True), signed.astype(np.int32)


def _result(req: FixedRequantize, kind: DType, acc: Array, multiplier: Array) -> Array:
    expr = Expr("requantize_fixed", kind, value=req)
    return np.asarray(FUNCTIONS["requantize_fixed"].meaning(expr, acc, multiplier), np.int64) - req.zero_point


def _ties_happen(multipliers: Array, shift: int, bound: int) -> bool:
    """Whether acc * multiplier can be an odd number of halves, which needs enough factors of two."""
    zeros = max((int(m) & -int(m)).bit_length() - 1 for m in multipliers.tolist())
    return bound >= 2.0 ** (31 + shift - zeros)
