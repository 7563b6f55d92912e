"""Requantisation without an FPU: float scales become 32-bit multipliers and one shift an operator.

Results of 8 bits are those of the float scales, for every accumulator that can occur: each multiplier is proved to give
them (mtool.compiler.kernels.exact_scaling), rounds ties to even where they happen, or is marked so that what lies
beside a half is rounded as float32 rounds it. Where none of that holds, the operator keeps its floats. Results of 16
bits may differ by one, near ties.
"""

import math
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import const
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.scalar import FUNCTIONS, FixedRequantise, Requantise
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.exact_scaling import Steps
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.kernels.weighted_sum import WeightedSum

APART = 4  # accumulators at most by which a multiplier may miss a step


def use_fixed_point(graph: Graph, target: Target) -> Graph:
    """Rewrite `requantise` as `requantise_fixed` on targets without float32 hardware, or with vectors of integers."""
    if target.has_float and not target.has_rvv:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        attrs = node.attrs
        if not isinstance(attrs, WithEpilogue):  # a loop has no accumulator
            rewriter.keep(node)
            continue
        inputs = list(node.inputs)
        bound = attrs.acc_bound

        def fixed(part: Expr, inputs: list[str] = inputs, bound: int = bound, node: Node = node) -> Expr:
            if part.op != "requantise" or not bound:
                return part
            how: Requantise = part.value
            total, factor = part.args
            scales: Array = (
                np.asarray([factor.value], np.float32)
                if factor.op == "const"
                else rewriter.constants[inputs[factor.value]].astype(np.float32).reshape(-1)
            )
            if total.dtype is not DType.INT32:
                return part
            shift = best_shift(float(scales.max()), bound, 8 * part.dtype.size)
            if shift is None:
                return part
            found = _form(scales, how, part.dtype, shift, bound, _reach(node, graph, total, len(scales), bound))
            if found is None:
                return part
            value, multipliers = found
            if factor.op == "const":
                multiplier = const(int(multipliers[0]), DType.INT32)
            else:
                shape = rewriter.constants[inputs[factor.value]].shape
                inputs.append(rewriter.constant(f"{node.name}/multiplier", multipliers.reshape(shape)))
                multiplier = Expr("load", DType.INT32, factor.args, len(inputs) - 1)
            return Expr("requantise_fixed", part.dtype, (total, multiplier), value)

        expr = attrs.epilogue.rewrite(fixed)
        used = expr.operands() | set(range(len(SPECIFICATIONS[node.op].own(node))))
        kept = [number for number in range(len(inputs)) if number in used]
        expr = expr.with_operands({old: new for new, old in enumerate(kept)})
        new_inputs = tuple(inputs[number] for number in kept)
        rewriter.keep(replace(node, inputs=new_inputs, attrs=replace(attrs, expr=expr)))
    return rewriter.finish()


def best_shift(largest: float, bound: int, bits: int = 8) -> int | None:
    """Return the largest shift that keeps the multiplier below 2^31, and scaled sums and results of `bits` below 2^30.

    None: the scale is too large for this form.
    """
    shift = min(30 - math.floor(math.log2(largest)) - 32, 29 - max(math.ceil(math.log2(max(largest * bound, 1))), bits))
    return shift if shift >= 1 and round(largest * 2.0 ** (32 + shift)) < 2**31 else None


def _reach(node: Node, graph: Graph, total: Expr, count: int, bound: int) -> Reach:
    """Return which sums of `count` channels can occur."""
    values = node.inputs[:3]
    if isinstance(node.attrs, WeightedSum) and total.op == "acc" and {*values[1:]} <= {*graph.constants}:
        low, high = graph.types[values[0]].dtype.limits
        weights, bias = graph.constants[values[1]], graph.constants[values[2]]
        if count == len(weights) == bias.size and weights.dtype.kind != "f":
            return Reach.of(weights, bias, low, high)
    return Reach.within(bound, count)


def _form(
    scales: Array, how: Requantise, kind: DType, shift: int, bound: int, reach: Reach
) -> tuple[FixedRequantise, Array] | None:
    """Return how sums are scaled, and by which multipliers, int32 [N]; None: not exactly."""
    nearest = np.rint(scales.astype(np.float64) * 2.0 ** (32 + shift)).astype(np.int64)
    plain = FixedRequantise(how.zero_point, how.low, how.high, shift)
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


def _result(how: FixedRequantise, kind: DType, acc: Array, multiplier: Array) -> Array:
    expr = Expr("requantise_fixed", kind, value=how)
    return np.asarray(FUNCTIONS["requantise_fixed"].meaning(expr, acc, multiplier), np.int64) - how.zero_point


def _ties_happen(multipliers: Array, shift: int, bound: int) -> bool:
    """Whether acc * multiplier can be an odd number of halves: that takes enough factors of two."""
    zeros = max((int(m) & -int(m)).bit_length() - 1 for m in multipliers.tolist())
    return bound >= 2.0 ** (31 + shift - zeros)
