"""The one emitter of loop nests."""

from mtool.ir import Expr, Graph, Node
from mtool.ir.expr import Reduction, first_of
from mtool.ir.scalar import FUNCTIONS, Text, literal
from mtool.kernels.expressions import (
    Leaves,
    element,
    is_identity,
    needs_math,
    operand_arguments,
    operand_constants,
    operand_names,
    operands_read,
)
from mtool.kernels.in_place import identity_loads
from mtool.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.kernels.target import Target
from mtool.ops.loop.node import Loop

INDENT = "    "
NAMES = "ijklmnpqrs"  # axis names; beyond them a7, a8, …


def _axis_name(number: int) -> str:
    return NAMES[number] if number < len(NAMES) else f"a{number}"


class LoopNest(BaseSchedule):
    """Axes in order, outermost first; a single flat loop where every operand has the output's shape."""

    name = "c99_loop"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Every expression has this form."""
        return True

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Operands that are read only at the element that is written."""
        expr = Loop.of(node).expr
        if any(part.op == "reduce" for part in expr.walk()):
            return ()
        return identity_loads(node, graph, expr)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Count the expression's functions an element."""
        weight = sum(1 for _ in Loop.of(node).expr.walk())
        return float(graph.types[node.outputs[0]].count * weight)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the nest."""
        expr = Loop.of(node).expr
        out = graph.types[node.outputs[0]]
        names = operand_names(node, graph, expr)
        read = operands_read(expr, node, graph)
        used = {number: name for number, name in names.items() if number in read}
        arguments = [*operand_arguments(node, graph, used), Argument("output", out.dtype.c, "output")]
        loads = [part for part in expr.walk() if part.op == "load"]
        free = any(part.op == "axis" for part in expr.walk(indices=False))
        free = free or any(part.op == "reduce" for part in expr.walk())  # which a table's index may hold too
        flat = not free and all(
            is_identity(load, out.shape, graph.types[node.inputs[load.value]].shape)
            or graph.types[node.inputs[load.value]].count == 1
            or self._is_table(load)
            for load in loads
        )
        lines = self._flat(expr, node, graph, names, out.count) if flat else self._nest(expr, node, graph, names)
        constants = operand_constants(node, graph, used)
        body = "\n".join(lines)
        return Kernel(tuple(arguments), body, constants, needs_math(expr))

    def _is_table(self, load: Expr) -> bool:
        """A lookup whose index holds no bare axis: table[input[i] + 128]."""
        return not any(part.op == "axis" for arg in load.args for part in arg.walk(indices=False))

    def _flat(self, expr: Expr, node: Node, graph: Graph, names: dict[int, str], count: int) -> list[str]:
        value = element(expr, node, graph, names, lambda number: Text("0"), offset="i")
        return [f"{INDENT}for (int32_t i = 0; i < {count}; ++i) {{", f"{INDENT * 2}output[i] = {value};", f"{INDENT}}}"]

    def _nest(self, expr: Expr, node: Node, graph: Graph, names: dict[int, str]) -> list[str]:
        out = graph.types[node.outputs[0]]
        lines: list[str] = []
        depth = 1
        for number, size in enumerate(out.shape):
            if size != 1:
                axis = _axis_name(number)
                lines.append(f"{INDENT * depth}for (int32_t {axis} = 0; {axis} < {size}; ++{axis}) {{")
                depth += 1

        def axes(number: int) -> Text:
            return Text("0") if number < len(out.shape) and out.shape[number] == 1 else Text(_axis_name(number))

        totals: dict[Expr, str] = {}

        def reduce(part: Expr) -> Text:
            if part not in totals:
                totals[part] = f"total{len(totals)}" if totals else "total"
                body = Leaves(node, graph, names, axes, reduce=reduce).number(part.args[0])
                lines.extend(_reduction(part, totals[part], body, depth))
            return Text(totals[part])

        value = element(expr, node, graph, names, axes, reduce=reduce)
        index = element_offset(out.shape)
        lines.append(f"{INDENT * depth}output[{index}] = {value};")
        lines.extend(INDENT * level + "}" for level in range(depth - 1, 0, -1))
        return lines


def element_offset(shape: tuple[int, ...]) -> str:
    """Return the flat offset of the element that the axes stand at, as C."""
    text = ""
    for number, size in enumerate(shape):
        if size == 1:
            continue
        axis = _axis_name(number)
        text = axis if not text else f"({text}) * {size} + {axis}" if " " in text else f"{text} * {size} + {axis}"
    return text or "0"


def _reduction(part: Expr, name: str, body: Text, depth: int) -> list[str]:
    how: Reduction = part.value
    dtype = part.dtype
    start = literal(first_of(how.kind, dtype), dtype)
    lines = [f"{INDENT * depth}{dtype.computed} {name} = {start.c};"]
    level = depth
    for number, size in how.axes:
        axis = _axis_name(number)
        lines.append(f"{INDENT * level}for (int32_t {axis} = 0; {axis} < {size}; ++{axis}) {{")
        level += 1
    op = {"multiply": "mul"}.get(how.kind, how.kind)
    combined = FUNCTIONS[op].text(Expr(op, dtype), Text(name), body).c
    symbol = next((symbol for symbol in "+*" if combined.startswith(f"{name} {symbol} ")), "")
    changed = f"{symbol}= {body.c}" if symbol else f"= {combined}"
    lines.append(f"{INDENT * level}{name} {changed};")
    lines.extend(INDENT * down + "}" for down in range(level - 1, depth - 1, -1))
    return lines


SCHEDULE = LoopNest()
