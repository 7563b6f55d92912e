"""The loop operator: one expression an element, as one loop nest. Every simple operator becomes one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from mtool.compiler.ir import Computation, DType, Expr, Graph, Node, TensorType
from mtool.compiler.ir.expr import Reduction, acc, axis, first_of
from mtool.compiler.ir.scalar import FIXED16, FUNCTIONS, Text, largest, literal
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.expression_cost import FUNCTION_CALL, GUARDS
from mtool.compiler.kernels.expressions import (
    SLOW,
    Leaves,
    element,
    flat_index,
    is_identity,
    kernel_of,
    needs_math,
    operand_names,
    operands_read,
)
from mtool.compiler.kernels.loop_text import (
    FOURS,
    INDENT,
    LARGEST_BODY,
    NumberSum,
    axis_name,
    by_fours,
    float_sum,
    indented,
    loops,
)
from mtool.compiler.kernels.mve.loops import NotVectorsError, VectorLoop, headers_of, vector_loop
from mtool.compiler.kernels.periods import Block, blocks_that_pay, cost_of
from mtool.compiler.kernels.schedule import Kernel, KernelOp, Schedule, Target, identity_loads
from mtool.compiler.kernels.specification import RowWise, Specification, always

PART_BYTES = 3
"""Those of the code of a part of an expression, about."""


class Loop(Computation):
    """An expression for each element of the output, which may reduce over further axes."""


SPECIFICATION = Specification(Loop, row_wise=RowWise(always(())))  # it reads no rows except those of its expression


class LoopNest(Schedule):
    """Axes in order, outermost first; a single flat loop where every operand has the output's shape."""

    name = "c99_loop"

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Operands that are read only at the element that is written."""
        expr = Loop.of(node).expr
        if any(part.op == "reduce" for part in expr.walk()):
            return ()
        return identity_loads(node, graph, expr)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Count the expression's functions an element, those of mt_fixed16.h as many."""
        expr = Loop.of(node).expr
        blocks = blocks_that_pay(node, graph)
        if blocks:
            return cost_of(blocks, graph.types[node.outputs[0]].shape)
        long = sum(part.op in FIXED16 for part in expr.parts())
        return float(graph.types[node.outputs[0]].count * (expr.size + FUNCTION_CALL * long))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the nest."""
        expr = Loop.of(node).expr
        out = graph.types[node.outputs[0]]
        blocks = blocks_that_pay(node, graph)
        if blocks:
            return _by_blocks(node, graph, blocks)
        names, read = operand_names(node, graph, expr), operands_read(expr, node, graph)
        used = {number: name for number, name in names.items() if number in read}
        loads = [part for part in expr.walk() if part.op == "load"]
        free = any(part.op == "axis" for part in expr.walk(indices=False))
        free |= any(part.op == "reduce" for part in expr.walk())  # a table's index may contain one too
        flat = not free and all(
            is_identity(load, out.shape, graph.types[node.inputs[load.value]].shape)
            or graph.types[node.inputs[load.value]].count == 1
            # a table's index contains no bare axis: table[input[i] + 128]
            or not any(part.op == "axis" for arg in load.args for part in arg.walk(indices=False))
            for load in loads
        )
        lines: list[str] = []
        totals: dict[Expr, str] = {}
        total = _repeated(expr)
        expr = expr if total is None else expr.with_part(total, acc(DType.INT32))

        def axes(number: int) -> Text:
            return Text("0") if number < len(out.shape) and out.shape[number] == 1 else Text(axis_name(number))

        def reduce(part: Expr) -> Text:
            if part not in totals:
                totals[part] = f"total{len(totals)}" if totals else "total"
                text = Leaves(node, graph, names, axes, reduce=reduce).number
                lines.extend(_reduction(part, totals[part], text, graph.is_sample))
            return Text(totals[part])

        place = {"offset": "i"} if flat else {"reduce": reduce}
        at = (lambda number: Text("0")) if flat else axes
        uniform = [] if flat or graph.is_sample else _uniform_loads(expr, node, graph)
        for number, part in enumerate(uniform):
            expr = expr.with_part(part, Expr("acc", part.dtype, (part,), f"u{number}"))
        if total is not None:
            first = Leaves(node, graph, names, at, **place).number(total).c
            lines.append(f"const int32_t acc = {first};")
        value = element(expr, node, graph, names, at, **place)
        around = [(0, out.count)] if flat else [(n, size) for n, size in enumerate(out.shape) if size != 1]
        inner, size = around[-1] if around else (0, 1)
        offset = "i" if flat else element_offset(out.shape)

        def stores(distances: Sequence[int]) -> list[str]:
            """Return the C of elements at distances along the innermost axis."""
            result = list[str]()
            for n in distances:
                offsets = {"offset": f"i + {n}" if n else "i"} if flat else place
                moved = expr if flat else expr.with_axes({inner: axis(inner) + n})
                value = element(moved, node, graph, names, at, **offsets)
                result.append(f"output[{offset}{f' + {n}' if n else ''}] = {value};")
            return result

        if lines or 3 * len(used) > target.registers or not _pays_by_fours(expr, size, node, graph, target):
            lines = loops(around[-1:], [*lines, f"output[{offset}] = {value};"])
        else:
            lines = by_fours(inner, "0", size, stores)
        text = Leaves(node, graph, names, at)
        before = [f"const {part.dtype.computed} u{n} = {text.number(part).c};" for n, part in enumerate(uniform)]
        lines = loops(around[:-1], [*before, *lines])
        body = "\n".join(INDENT + line for line in lines)
        return kernel_of(node, graph, body, None, inputs=used, needs_math=needs_math(expr))


def _pays_by_fours(expr: Expr, size: int, node: Node, graph: Graph, target: Target) -> bool:
    """Whether four elements a round save more than their code costs: at least an instruction an element."""
    is_long = size >= FOURS and not graph.is_sample and target.repeats_slowly
    if not is_long or expr.size > LARGEST_BODY or any(part.op in SLOW for part in expr.parts()):
        return False
    by_hand = target.has_float or not any(part.dtype.is_float for part in expr.parts())
    return by_hand and graph.types[node.outputs[0]].count > 3 * PART_BYTES * expr.size * price_of_code(node, graph)


def _by_blocks(node: Node, graph: Graph, blocks: Sequence[Block]) -> Kernel:
    """Return the C of blocks of results."""
    out, names, lines = graph.types[node.outputs[0]], operand_names(node, graph, Loop.of(node).expr), list[str]()
    leaves = Leaves(node, graph, names, lambda number: Text(axis_name(number) if out.shape[number] != 1 else "0"))
    for block in blocks:
        around = block.axes(out.shape)
        nest = loops(around, _block_lines(block, leaves, out))
        lines += nest if around else ["{", *indented(nest), "}"]
    read = set().union(*(operands_read(expr, node, graph) for block in blocks for _, expr in block.results))
    used = {number: name for number, name in names.items() if number in read}
    body = "\n".join(INDENT + line for line in lines)
    return kernel_of(node, graph, body, None, inputs=used, needs_math=needs_math(Loop.of(node).expr))


def _block_lines(block: Block, leaves: Leaves, out: TensorType) -> list[str]:
    """Return the C of a block: first what several parts of results read, then the results, then their stores."""
    uses, named, lines, stores = block.uses(), dict[Expr, Expr](), list[str](), list[str]()

    def visit(part: Expr, args: Sequence[Expr]) -> Expr:
        new = replace(part, args=tuple(args)) if args else part
        if uses[part] < 2 or part.op in ("const", "axis"):
            return new
        if part not in named:
            named[part] = Expr("acc", part.dtype, (part,), f"x{len(named)}")
            lines.append(f"const {part.dtype.computed} {named[part].value} = {leaves.number(new).c};")
        return named[part]

    for n, (index, expr) in enumerate(block.results):
        final = expr.fold(visit, leaves=("load",))
        text = leaves.number(final)
        result = text.c
        if final.op != "acc":
            result = f"({out.dtype.c})y{n}" if text.uncast else f"y{n}"
            lines.append(f"const {'int32_t' if text.uncast else out.dtype.c} y{n} = {text.uncast or text.c};")
        stores.append(f"output[{flat_index([leaves.number(term) for term in index], out.shape).c}] = {result};")
    return lines + stores


def _uniform_loads(expr: Expr, node: Node, graph: Graph) -> list[Expr]:
    """Return the loads that are the same along the innermost axis: a compiler expects stores to change them.

    A condition may keep a load in range: then there are none.
    """
    shapes = [graph.types[value].shape if value else () for value in (*node.inputs, node.outputs[0])]
    *_, inner = [-1, *(number for number, size in enumerate(shapes[-1]) if size != 1)]
    if inner < 0 or expr.op == "load" or any(part.op in GUARDS for part in expr.parts()):
        return []
    loads, waiting = dict[Expr, None](), [expr]
    while waiting:
        part = waiting.pop()
        is_known = all(p.op not in ("acc", "reduce") for p in part.parts())
        axes = {p.value for p in part.parts() if p.op == "axis"}
        if part.op == "load" and is_known and all(number < inner for number in axes):
            loads[part] = None
        elif part.op == "load":  # without indices that are not written
            waiting += [index for index, size in zip(part.args, shapes[part.value], strict=True) if size != 1]
        else:
            waiting += part.args
    return [*loads]


def _repeated(expr: Expr) -> Expr | None:
    """Return the total that an expression near ties reads more than once; None: it is another expression."""
    if expr.op == "where":
        expr = expr.args[0]
    return expr.args[0] if expr.op in ("is_near_tie", "shifted_tie") else None


def element_offset(shape: tuple[int, ...]) -> str:
    """Return the flat offset of the element at the axes' present values, as C."""
    text = ""
    for number, size in enumerate(shape):
        if size == 1:
            continue
        axis = axis_name(number)
        text = axis if not text else f"({text}) * {size} + {axis}" if " " in text else f"{text} * {size} + {axis}"
    return text or "0"


def _reduction(part: Expr, name: str, text: Callable[[Expr], Text], joined: bool) -> list[str]:
    """Return the C of a reduction whose body `text` writes; `joined`: of one structure at all sizes."""
    how: Reduction = part.value
    dtype, (body,) = part.dtype, part.args
    op = {"multiply": "mul"}.get(how.kind, how.kind)
    fits = how.kind == "add" and not joined and largest(body) * prod(size for _, size in how.axes) < 2**31
    accumulate = Expr(op, dtype, value="index" if fits else None)  # "index": C's own addition, which can't overflow

    def changed(by: Text) -> str:
        combined = FUNCTIONS[op].text(accumulate, Text(name), by).c
        symbol = next((symbol for symbol in "+*" if combined.startswith(f"{name} {symbol} ")), "")
        return f"{name} {symbol}= {by.c};" if symbol else f"{name} = {combined};"

    begin = f"{dtype.computed} {name} = {literal(first_of(how.kind, dtype), dtype).c};"
    if how.kind == "add" and dtype.is_float and changed(Text("x")) == f"{name} += x;":
        return [begin, *float_sum(how, name, body, NumberSum(dtype, text), joined=joined)]
    *outer, (inner, size) = how.axes or [(0, 1)]
    if size < FOURS or body.size > LARGEST_BODY or joined:
        return [begin, *loops(how.axes, [changed(text(body))])]
    parts = [body.with_axes({inner: axis(inner) + n}) for n in range(4)]
    fours = by_fours(inner, "0", size, lambda distances: [changed(text(parts[n])) for n in distances])
    return [begin, *loops(outer, fours)]


class HeliumLoop(LoopNest):
    """The innermost axis by vectors of 4, 8 or 16 elements; the results are those of portable C."""

    name = "mve_loop"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Expressions of the functions that Helium has, and moves, unless their indices differ from row to row."""
        return target.has_mve and self._loop(node, graph) is not None

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Count the instructions of a vector, its loop, and each row."""
        vector = self._loop(node, graph)
        return vector.cost if vector is not None else super().cost(node, graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the nest."""
        vector, expr = self._loop(node, graph), Loop.of(node).expr
        assert vector is not None
        names, read = operand_names(node, graph, expr), operands_read(expr, node, graph)
        used = {
            number: name for number, name in names.items() if number in (read if vector.reads is None else vector.reads)
        }
        body = "\n".join(INDENT + line for line in vector.lines)
        constants, math = vector.constants, needs_math(expr)
        headers = headers_of(node, graph)
        return kernel_of(node, graph, body, None, constants, inputs=used, needs_math=math, headers=headers)

    @staticmethod
    def _loop(node: Node, graph: Graph) -> VectorLoop | None:
        try:
            return vector_loop(node, graph)
        except NotVectorsError:
            return None


# Loops that only copy: one memmove.


@dataclass(frozen=True)
class Move(Schedule):
    """One call of memmove, or of the runtime's vectorized copy, for states and line buffers, which may overlap."""

    name: str
    core: str  # the feature or property of a target that it needs; "": none
    function: str
    headers: tuple[str, ...]
    call_cost: float  # instructions
    byte_cost: float

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """A copy of contiguous, non-constant elements in a model with states or line buffers."""
        has_core = not self.core or target.has(self.core)
        return has_core and bool(graph.states or graph.line_buffers) and copied_range(node, graph) is not None

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input: memmove copies between ranges that overlap."""
        return (0,)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of the call and of each byte."""
        return self.call_cost + graph.types[node.outputs[0]].bytes * self.byte_cost

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the call."""
        out, start = graph.types[node.outputs[0]], copied_range(node, graph)
        call = f"{self.function}(output, input{f' + {start}' if start else ''}, {out.c_bytes});"
        return kernel_of(node, graph, f"    {call}", None, headers=self.headers)


def copied_range(node: Node, graph: Graph) -> int | None:
    """Return the start of the contiguous elements that a loop copies; None: it does something else."""
    expr = Loop.of(node).expr
    if expr.op != "load" or node.inputs[expr.value] in graph.constants:
        return None
    source, out = graph.types[node.inputs[expr.value]], graph.types[node.outputs[0]]
    if source.dtype != out.dtype or len(source.shape) != len(out.shape):
        return None
    start, whole = 0, True  # whether all dimensions so far are taken whole, from the last one up
    for dim in reversed(range(len(out.shape))):
        first = _first(expr.args[dim], dim, out.shape[dim])
        if first is None or (not whole and out.shape[dim] != 1):
            return None
        start += first * prod(source.shape[dim + 1 :])
        whole = whole and source.shape[dim] == out.shape[dim]
    return start


def _first(index: Expr, dim: int, size: int) -> int | None:
    """Return n of an index `axis + n`, or of a constant n if the axis has only one element."""
    if index.op == "const":
        return int(index.value) if size == 1 else None
    if index == axis(dim):
        return 0
    if index.op == "add" and index.args[0] == axis(dim) and index.args[1].op == "const":
        return int(index.args[1].value)
    return None


def _macs(node: Node, graph: Graph) -> int:
    """Return one per term of sums of products of two operands, such as two activations or non-constant weights."""
    parts = Loop.of(node).expr.parts(leaves=("load",))
    sums: list[Reduction] = [part.value for part in parts if part.op == "reduce" and _sums_products(part)]
    return graph.types[node.outputs[0]].count * sum(prod(size for _, size in how.axes) for how in sums)


def _sums_products(part: Expr) -> bool:
    """Whether a reduction adds up products of different elements: not squares, nor multiples of constants."""
    if part.value.kind != "add":
        return False
    factors = [factor.args for factor in part.args[0].parts(leaves=("load",)) if factor.op == "mul"]
    pairs = [pair for pair in factors if pair[0] != pair[1]]
    return any(all(any(part.op == "load" for part in side.parts(leaves=("load",))) for side in pair) for pair in pairs)


SCHEDULES = (
    LoopNest(),
    Move("c99_move", "", "memmove", (), 0, 1 / 4),
    Move("dsp_move", "has_dsp", "mt_dsp_move", ("mt_dsp_move.h",), 16, 1 / 8),
    HeliumLoop(),
    Move("mve_move", "has_mve", "mt_mve_move", ("mt_mve_move.h",), 0, 3 / 16),
    Move("rvv_move", "has_rvv", "mt_rvv_move", ("mt_rvv.h",), 8, 1 / 16),
)
KERNEL = KernelOp(SPECIFICATION, lambda node, _: Loop.of(node).label or "loop", SCHEDULES, _macs)
