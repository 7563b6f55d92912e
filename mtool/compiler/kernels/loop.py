"""The loop operator: one expression an element, as one loop nest. Every simple operator becomes one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from mtool.compiler.ir import Computation, DType, Expr, Graph, Node
from mtool.compiler.ir.expr import Reduction, axis, first_of
from mtool.compiler.ir.scalar import ADD, FUNCTIONS, MUL, Text, literal
from mtool.compiler.kernels.expressions import (
    Leaves,
    element,
    is_identity,
    kernel_of,
    needs_math,
    operand_names,
    operands_read,
)
from mtool.compiler.kernels.mve.loops import NotVectorsError, VectorLoop, vector_loop
from mtool.compiler.kernels.schedule import Kernel, KernelOp, Schedule, Target, identity_loads
from mtool.compiler.kernels.specification import RowWise, Specification, always


class Loop(Computation):
    """An expression for each element of the output, which may reduce over further axes."""


SPECIFICATION = Specification(Loop, row_wise=RowWise(always(())))  # it reads no rows except those of its expression

INDENT = "    "
FOURS = 9
"""The fewest terms along the innermost axis of a float sum that are added four at a time, pair by pair,"""
LARGEST_BODY = 32
"""if a term's expression has at most this many parts."""
FOURS_BLOCK = 16
"""Terms of a block, which is added up from zero,"""
BLOCK = 8
"""if they are not added by fours."""

NAMES = "ijklmnpqrs"  # axis names; beyond them a7, a8, …


def _axis_name(number: int) -> str:
    return NAMES[number] if number < len(NAMES) else f"a{number}"


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
        """Count the expression's functions an element."""
        return float(graph.types[node.outputs[0]].count * Loop.of(node).expr.size)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the nest."""
        expr = Loop.of(node).expr
        out = graph.types[node.outputs[0]]
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

        def axes(number: int) -> Text:
            return Text("0") if number < len(out.shape) and out.shape[number] == 1 else Text(_axis_name(number))

        def reduce(part: Expr) -> Text:
            if part not in totals:
                totals[part] = f"total{len(totals)}" if totals else "total"
                text = Leaves(node, graph, names, axes, reduce=reduce).number
                lines.extend(_reduction(part, totals[part], text, graph.is_sample))
            return Text(totals[part])

        if flat:
            value = element(expr, node, graph, names, lambda number: Text("0"), offset="i")
            lines = _for("i", "0", str(out.count), 1, [f"output[i] = {value};"])
        else:
            value = element(expr, node, graph, names, axes, reduce=reduce)
            lines.append(f"output[{element_offset(out.shape)}] = {value};")
            lines = _loops([(number, size) for number, size in enumerate(out.shape) if size != 1], lines)
        body = "\n".join(INDENT + line for line in lines)
        return kernel_of(node, graph, body, None, inputs=used, needs_math=needs_math(expr))


def element_offset(shape: tuple[int, ...]) -> str:
    """Return the flat offset of the element at the axes' present values, as C."""
    text = ""
    for number, size in enumerate(shape):
        if size == 1:
            continue
        axis = _axis_name(number)
        text = axis if not text else f"({text}) * {size} + {axis}" if " " in text else f"{text} * {size} + {axis}"
    return text or "0"


def _reduction(part: Expr, name: str, text: Callable[[Expr], Text], joined: bool) -> list[str]:
    """Return the C of a reduction whose body `text` writes; `joined`: of one structure at all sizes."""
    how: Reduction = part.value
    dtype, (body,) = part.dtype, part.args
    op = {"multiply": "mul"}.get(how.kind, how.kind)

    def changed(by: Text) -> str:
        combined = FUNCTIONS[op].text(Expr(op, dtype), Text(name), by).c
        symbol = next((symbol for symbol in "+*" if combined.startswith(f"{name} {symbol} ")), "")
        return f"{name} {symbol}= {by.c};" if symbol else f"{name} = {combined};"

    begin = f"{dtype.computed} {name} = {literal(first_of(how.kind, dtype), dtype).c};"
    if how.kind == "add" and dtype.is_float and changed(Text("x")) == f"{name} += x;":
        return [begin, *_float_sum(how, dtype, name, body, text, joined)]
    return [begin, *_loops(how.axes, [changed(text(body))])]


def _for(name: str, first: str, last: str, step: int, lines: Sequence[str]) -> list[str]:
    """Return lines in a loop."""
    head = f"for (int32_t {name} = {first}; {name} < {last}; {f'{name} += {step}' if step > 1 else f'++{name}'}) {{"
    return [head, *(INDENT + line for line in lines), "}"]


def _loops(axes: Sequence[tuple[int, int]], lines: Sequence[str]) -> list[str]:
    """Return lines in a loop over each axis."""
    for number, size in reversed(axes):
        lines = _for(_axis_name(number), "0", str(size), 1, lines)
    return [*lines]


def _float_sum(
    how: Reduction, dtype: DType, name: str, body: Expr, text: Callable[[Expr], Text], joined: bool
) -> list[str]:
    """Return the C of a sum of floats: blocks, each from zero, are added up.

    One term after the other, n terms are off by up to n roundings of their sum. With blocks and compensated addition of
    their sums, the bound does not grow with n (docs/verify.md).
    """
    axes = how.axes
    *outer, (inner, size) = axes or [(0, 1)]
    count = prod(size for _, size in axes)
    fours = size >= FOURS and body.size <= LARGEST_BODY and not how.careful and not joined
    most = 1 if how.careful else FOURS_BLOCK if fours else BLOCK

    def terms(total: str, number: int, first: str, length: int) -> list[str]:
        """Return the C that adds up the terms from `first` on along an axis, including all inner axes."""
        behind = axes[[axis for axis, _ in axes].index(number) + 1 :]
        k, last, lines = _axis_name(number), _plus(first, length), [f"{total} += {text(body).c};"]
        if number != inner:
            own = terms(total, *behind[-1][:1], "0", size)
            return _for(k, first, last, 1, _loops(behind[:-1], own))
        if not fours or length < 4:
            return _for(k, first, last, 1, lines)
        parts = [text(body.with_axes({inner: axis(inner) + n})) for n in range(4)]
        a, b, c, d = (part.at(ADD if n % 2 == 0 else MUL) for n, part in enumerate(parts))
        whole = _plus(first, length // 4 * 4)
        found = _for(k, first, whole, 4, [f"{total} += ({a} + {b}) + ({c} + {d});"])
        return found + (_for(k, whole, last, 1, lines) if length % 4 else [])

    if count <= most and not joined:
        return _loops(outer, terms(name, inner, "0", size)) if axes else [f"{name} += {text(body).c};"]
    if joined and axes:
        return _joined_sum(axes, dtype, name, text(body), most)
    behind, split = 1, len(axes) - 1  # the terms of the axes behind the one along which the blocks lie
    while behind * axes[split][1] <= most:
        behind, split = behind * axes[split][1], split - 1
    (number, size_split), length = axes[split], most // behind
    part, rest = f"{name}_part", f"{name}_rest"
    function = "f64" if dtype is DType.FLOAT64 else "f32"
    add = f"mt_add_{function}(&{name}, &{rest}, {part});"
    zero = literal(0, dtype).c

    def block(first: str, length: int) -> list[str]:
        return [f"{dtype.computed} {part} = {zero};", *terms(part, number, first, length), add]

    whole = size_split // length * length
    lines = _for(f"{_axis_name(number)}0", "0", str(whole), length, block(f"{_axis_name(number)}0", length))
    if whole < size_split:
        lines += ["{", *(INDENT + line for line in block(str(whole), size_split - whole)), "}"]
    total = f"{name} = mt_total_{function}({name}, {rest});"
    return [f"{dtype.computed} {rest} = {zero};", *_loops(axes[:split], lines), total]


def _joined_sum(axes: Sequence[tuple[int, int]], dtype: DType, name: str, term: Text, most: int) -> list[str]:
    """Return the C of a sum of floats, in blocks of the innermost axis, whatever its size."""
    (*outer, (inner, size)), zero = axes, literal(0, dtype).c
    k, function = _axis_name(inner), "f64" if dtype is DType.FLOAT64 else "f32"
    block = [
        f"{dtype.computed} {name}_part = {zero};",
        *_for(k, f"{k}0", f"{k}0 + {most} && {k} < {size}", 1, [f"{name}_part += {term.c};"]),
        f"mt_add_{function}(&{name}, &{name}_rest, {name}_part);",
    ]
    lines = _loops(outer, _for(f"{k}0", "0", str(size), most, block))
    return [f"{dtype.computed} {name}_rest = {zero};", *lines, f"{name} = mt_total_{function}({name}, {name}_rest);"]


def _plus(first: str, count: int) -> str:
    return str(int(first) + count) if first.isdigit() else f"{first} + {count}"


class HeliumLoop(LoopNest):
    """The innermost axis by vectors of 4, 8 or 16 elements; the results are those of portable C."""

    name = "mve_loop"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Expressions of the functions that Helium has, and moves, unless their indices differ from row to row."""
        return target.has_mve and self._loop(node, graph) is not None

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Count the instructions of a vector, its loop, and each row."""
        loop = self._loop(node, graph)
        return loop.cost if loop is not None else super().cost(node, graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the nest."""
        loop, expr = self._loop(node, graph), Loop.of(node).expr
        assert loop is not None
        names, read = operand_names(node, graph, expr), operands_read(expr, node, graph)
        used = {
            number: name for number, name in names.items() if number in (read if loop.reads is None else loop.reads)
        }
        body = "\n".join(INDENT + line for line in loop.lines)
        own, math = loop.constants, needs_math(expr)
        return kernel_of(node, graph, body, None, own, inputs=used, needs_math=math, headers=("mt_mve_loop.h",))

    @staticmethod
    def _loop(node: Node, graph: Graph) -> VectorLoop | None:
        try:
            return vector_loop(node, graph, _axis_name)
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
    return any(all(any(part.op == "load" for part in one.parts(leaves=("load",))) for one in pair) for pair in pairs)


SCHEDULES = (
    LoopNest(),
    Move("c99_move", "", "memmove", (), 0, 1 / 4),
    HeliumLoop(),
    Move("mve_move", "has_mve", "mt_mve_move", ("mt_mve_move.h",), 0, 3 / 16),
    Move("rvv_move", "has_rvv", "mt_rvv_move", ("mt_rvv.h",), 8, 1 / 16),
)
KERNEL = KernelOp(SPECIFICATION, lambda node, _: Loop.of(node).label or "loop", SCHEDULES, _macs)
