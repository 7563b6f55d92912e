"""Loops whose constant indices and weights repeat along axes of the output, as those of a resize by whole factors do.

Such an axis is split into whole periods and the elements at its ends. The elements of a period are
computed together: indices and weights become numbers, and what several elements read is loaded and converted once.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Expr, Graph, Node
from mtool.compiler.ir.expr import axis, const, number, simplify
from mtool.compiler.ir.node import expression_of
from mtool.compiler.ir.scalar import evaluate
from mtool.compiler.kernels.code_price import price_of_code

PERIODS = range(1, 5)
LARGEST = 64  # parts of an expression
TERMS = 8  # of a sum, which are written one after the other
RESULTS = 16  # computed together
BYTES_OF_CODE = 4  # of a part
LIMIT = 2.0**30  # of constants whose products and sums are finite
SIGNLESS = {"load", "axis", "add", "sub", "mul", "cast", "quantize", "mean"}


@frozen
class Stretch:
    """Elements along an axis: `period` of them from `first` on, and again every `step` elements, `blocks` times."""

    first: int
    period: int
    blocks: int
    step: int

    def place(self, number: int, phase: int) -> Expr:
        """Return the index of an element of a block; `axis(number)` is the block's number."""
        return _affine(number, self.step if self.blocks > 1 else 0, self.first + phase)


@frozen
class Block:
    """Results that are computed together, each at an index of the output, for all blocks of stretches of axes."""

    stretches: Mapping[int, Stretch]
    results: Sequence[tuple[tuple[Expr, ...], Expr]]

    def axes(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Return the axes of the loops around it and their sizes."""
        sizes = {n: self.stretches[n].blocks if n in self.stretches else size for n, size in enumerate(shape)}
        return [(number, size) for number, size in sizes.items() if size != 1]

    @property
    def parts(self) -> int:
        """The number of different parts, and of stores."""
        return sum(part.op not in ("const", "axis") for part in self.uses()) + len(self.results)

    def uses(self) -> Counter[Expr]:
        """Return how many parts or results use each part, without the indices of loads."""
        counts = Counter(expr for _, expr in self.results)
        waiting = [*counts]
        while waiting:
            part = waiting.pop()
            for arg in part.args if part.op != "load" else ():
                waiting += [arg] if arg not in counts else []
                counts[arg] += 1
        return counts


def cost_of(blocks: Sequence[Block], shape: Sequence[int]) -> float:
    """Return the instructions of a loop's blocks, about."""
    return float(sum(prod(size for _, size in block.axes(shape)) * block.parts for block in blocks))


def blocks_that_pay(node: Node, graph: Graph) -> list[Block]:
    """Return the blocks of a loop if they save enough instructions for their code."""
    blocks, out = blocks_of(node, graph), graph.types[node.outputs[0]]
    expr = expression_of(node)
    if not blocks or expr is None:
        return []
    saved = out.count * expr.size - cost_of(blocks, out.shape)
    code_bytes = BYTES_OF_CODE * sum(block.parts for block in blocks)
    return blocks if saved > code_bytes * price_of_code(node, graph) else []


def blocks_of(node: Node, graph: Graph) -> list[Block]:
    """Return the blocks of a loop; none: nothing in it repeats, or it is too large."""
    expr, shape = expression_of(node), graph.types[node.outputs[0]].shape
    is_half = graph.types[node.outputs[0]].dtype.is_half
    if expr is None or graph.is_sample or is_half or expr.size > LARGEST or not prod(shape):
        return []
    whole = _without_sums(expr)
    if whole is None or any(part.dtype is DType.BOOL for part in whole.parts()):  # conditions would be always true
        return []
    is_signless = all(_is_signless(part, node, graph) for part in whole.parts(leaves=("load",)))
    is_signless &= graph.types[node.outputs[0]].dtype.is_integer
    splits: dict[int, tuple[dict[Expr, Array], list[Stretch]]] = {}
    for dim in range(len(shape)):
        tables = _tables(whole, dim, node, graph)
        stretches = _stretches([*tables.values()], shape[dim]) if tables else []
        if stretches:
            splits[dim] = tables, stretches
    if not splits or prod(max(stretch.period for stretch in choices) for _, choices in splits.values()) > RESULTS:
        return []
    blocks = []
    for chosen in itertools.product(*(choices for _, choices in splits.values())):
        stretches_of = dict(zip(splits, chosen, strict=True))
        results = []
        for phases in itertools.product(*(range(stretch.period) for stretch in chosen)):
            result = whole
            for (dim, stretch), phase in zip(stretches_of.items(), phases, strict=True):
                result = _with_numbers(result, dim, stretch, phase, splits[dim][0])
            places = {dim: s.place(dim, phase) for (dim, s), phase in zip(stretches_of.items(), phases, strict=True)}
            index = tuple(places.get(dim, axis(dim) if size != 1 else number(0)) for dim, size in enumerate(shape))
            results.append((index, result.rewrite(lambda part: _folded(part, is_signless))))
        blocks.append(Block(stretches_of, results))
    return blocks


def _without_sums(expr: Expr) -> Expr | None:
    """Return an expression with the terms of its sums one after the other; None: there are too many."""
    sums = [part for part in expr.parts() if part.op == "reduce"]
    if any(
        part.value.kind != "add" or part.value.careful or prod(size for _, size in part.value.axes) > TERMS
        for part in sums
    ):
        return None

    def terms(part: Expr) -> Expr:
        if part.op != "reduce":
            return part
        total, axes = const(0, part.dtype), part.value.axes
        for values in itertools.product(*(range(size) for _, size in axes)):
            at = {dim: number(value) for (dim, _), value in zip(axes, values, strict=True)}
            total = Expr("add", part.dtype, (total, part.args[0].with_axes(at)))
        return total

    return expr.rewrite(terms)


def _is_signless(part: Expr, node: Node, graph: Graph) -> bool:
    """Whether a part is finite, and the sign of a zero in it makes no difference to an integer that depends on it."""
    if part.op == "const" or (part.op == "load" and _constant(part, node, graph) is not None):
        data = part.value if part.op == "const" else _constant(part, node, graph)
        return bool((np.abs(np.asarray(data, np.float64)) < LIMIT).all())
    return part.op in SIGNLESS and (part.op != "load" or part.dtype.is_integer)


def _constant(part: Expr, node: Node, graph: Graph) -> Array | None:
    return graph.constants.get(node.inputs[part.value])


def _tables(expr: Expr, dim: int, node: Node, graph: Graph) -> dict[Expr, Array]:
    """Return the loads of constants of which only one index differs, along an axis of the output, and their elements.

    Empty: none of them is the index of another load.
    """
    tables, is_index = {}, False
    for part in expr.parts():
        if part.op != "load":
            continue
        is_index |= any(p in tables and p.dtype is DType.INT32 for index in part.args for p in index.parts())
        data = _constant(part, node, graph)
        if data is None or not data.size or data.dtype.kind not in "if":
            continue
        if sum(index == axis(dim) for index in part.args) != 1:
            continue
        if all(index == axis(dim) or index.op == "const" for index in part.args):
            tables[part] = data[tuple(slice(None) if index.op == "axis" else index.value for index in part.args)]
    return tables if is_index else {}


def _stretches(tables: Sequence[Array], size: int) -> list[Stretch]:
    """Return the whole periods of tables, and the elements in front of them and behind them; none: nothing repeats."""
    for period in PERIODS:
        if size < 3 * period:
            break
        same = np.ones(size - period, bool)
        for table in tables:
            steps = table[period:] - table[:-period]
            step = steps[len(steps) // 2]
            same &= (steps == step) & bool(step == 0 or table.dtype == np.int32)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(int)))
        runs = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        first, last = max(runs, key=lambda run: run[1] - run[0], default=(0, 0))
        blocks = (last - first) // period + 1
        behind = first + blocks * period
        if blocks > 1 and first <= period and size - behind <= period:
            ends = [Stretch(at, count, 1, 0) for at, count in ((0, first), (behind, size - behind)) if count]
            alike = all(table.dtype == np.int32 or np.array_equal(table[:first], table[behind:]) for table in tables)
            if first == size - behind and first and alike:
                ends = [Stretch(0, first, 2, behind)]
            return [*ends, Stretch(first, period, blocks, period)]
    return []


def _with_numbers(expr: Expr, dim: int, stretch: Stretch, phase: int, tables: Mapping[Expr, Array]) -> Expr:
    """Return the expression of an element of each block, of which `axis(dim)` is the number."""
    first, moved = stretch.first + phase, -1 - dim

    def replaced(part: Expr) -> Expr:
        table = tables.get(part)
        if table is None:
            return part
        if part.dtype.is_float or stretch.blocks == 1:
            return const(table[first].item(), part.dtype)
        return _affine(moved, int(table[first + stretch.step] - table[first]), int(table[first]))

    return expr.rewrite(replaced).with_axes({dim: stretch.place(dim, phase)}).with_axes({moved: axis(dim)})


def _affine(dim: int, factor: int, first: int) -> Expr:
    return axis(dim) * factor + first if factor else number(first)


def _folded(part: Expr, is_signless: bool) -> Expr:
    """Return a part whose constants are computed here; `is_signless`: a zero has no sign, and there is no NaN."""
    if part.op not in ("add", "mul") or part.value == "index":
        return simplify(part)
    left, right = part.args
    zero, one = const(0, part.dtype), const(1, part.dtype)
    if left.op == right.op == "const":
        return const(evaluate(part, [], ()).item(), part.dtype)
    if part.op == "mul" and one in (left, right):
        return right if left == one else left
    if is_signless and zero in (left, right):
        if part.op == "mul":
            return zero
        return right if left == zero else left
    return part
