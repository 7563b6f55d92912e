"""Expressions as C inside a kernel: element loads, index arithmetic, epilogues."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Expr, Graph, Node
from mtool.compiler.ir.node import WithEpilogue, expression_of
from mtool.compiler.ir.scalar import ADD, FIXED16, MUL, Text, loaded, render, stored
from mtool.compiler.kernels.schedule import Argument, Kernel

LIBM = {
    "exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "floor", "ceil", "rint", "pow", "sigmoid", "round", "trunc",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "expm1", "log1p", "remainder", "fmod",
    "softplus", "mish",
}  # fmt: skip

SLOW = LIBM | {*FIXED16}
"""Expensive functions."""


def needs_math(expr: Expr) -> bool:
    """Whether an expression's C calls the math library."""
    return any(part.op in LIBM for part in expr.walk())


def operand_names(node: Node, graph: Graph, expr: Expr) -> dict[int, str]:
    """Name the inputs that an epilogue or loop reads: `input`, `scale`, `table`, `residual`, …"""
    names: dict[int, str] = {}
    for part in expr.walk():
        if part.op != "load" or part.value in names:
            continue
        value = node.inputs[part.value]
        if value in graph.constants:
            computed = any(index.op not in ("axis", "const") for index in part.args)
            stem = "table" if computed else _parameter_stem(expr, part)
        else:
            stem = "residual" if isinstance(node.attrs, WithEpilogue) else "input"
        count = sum(other.rstrip("0123456789") == stem for other in names.values())
        names[part.value] = stem if not count else f"{stem}{count + 1}"
    activations = [number for number, name in names.items() if name.startswith("input")]
    if len(activations) > 1:
        for index, number in enumerate(sorted(activations)):
            names[number] = f"input{index}"
    return names


def _parameter_stem(expr: Expr, load: Expr) -> str:
    for part in expr.walk():
        if part.op == "requantize" and part.args[1] == load:
            return "scale"
        if part.op in ("requantize_fixed", "rescale") and part.args[1] == load:
            return "multiplier"
        if part.op == "rescale" and part.args[2] == load:
            return "shift"
    return "parameter"


def operand_arguments(node: Node, graph: Graph, names: Mapping[int, str]) -> list[Argument]:
    """Return the function parameters for the inputs in `names`."""
    arguments = []
    for number, name in sorted(names.items()):
        value = node.inputs[number]
        source = ("constant", name) if value in graph.constants else ("input", number)
        arguments.append(Argument(name, graph.types[value].dtype.c, source))
    return arguments


def operand_constants(node: Node, graph: Graph, names: Mapping[int, str]) -> dict[str, Array]:
    """Return the constants among the inputs in `names`, by name."""
    values = ((name, node.inputs[number]) for number, name in names.items())
    return {name: graph.constants[value] for name, value in values if value in graph.constants}


def kernel_of(
    node: Node,
    graph: Graph,
    body: str,
    expr: Expr | None,
    data: Mapping[str, Array] | None = None,
    scratch: str = "",
    behind: Collection[str] = (),
    inputs: Mapping[int, str] | None = None,
    **more: Any,
) -> Kernel:
    """Assemble the function of a kernel with one output.

    Its parameters are the input, the output, the kernel's own constants, what `expr` reads, and scratch.

    Args:
        node: the node.
        graph: its graph.
        body: the C.
        expr: the expression applied to the kernel's results; None: none.
        data: the kernel's own constants, by their names in C.
        scratch: the type of its scratch; "": none.
        behind: those of its own constants whose parameters come after the expression's operands.
        inputs: the inputs that it reads, by their names in C, constant or not; None: input 0 from the arena, as
            `input`.
        more: the other fields of the Kernel.
    """
    names, data = operand_names(node, graph, expr) if expr else {}, data or {}
    constants = {name: Argument(name, DType.of(array.dtype).c, ("constant", name)) for name, array in data.items()}
    first = [Argument("input", graph.types[value].dtype.c, ("input", 0)) for value in node.inputs[:1]]
    arguments = [
        *(first if inputs is None else operand_arguments(node, graph, inputs)),
        Argument("output", graph.types[node.outputs[0]].dtype.c, "output"),
        *(argument for name, argument in constants.items() if name not in behind),
        *operand_arguments(node, graph, names),
        *(constants[name] for name in behind),
        *([Argument("scratch", scratch, "scratch")] if scratch else []),
    ]
    more.setdefault("needs_math", expr is not None and needs_math(expr))
    constants_read = {**data, **operand_constants(node, graph, names), **operand_constants(node, graph, inputs or {})}
    return Kernel(tuple(arguments), body, constants_read, **more)


def layout_of(name: str, data: Array) -> str:
    """Describe the layout of a constant that an expression reads, by its parameter's name."""
    if name.startswith("table"):
        is_small = data.shape == (256,)
        return "a result for each value that may be looked up" if is_small else "row-major"
    if name.startswith(tuple(_FACTORS)) and data.ndim <= 1:
        prefix = "of each output channel: " if data.size > 1 else ""
        return prefix + next(text for stem, text in _FACTORS.items() if name.startswith(stem))
    return "row-major"


_FACTORS = {
    "scale": "its accumulator's multiplier",
    "multiplier": "its accumulator's multiplier, in fixed point",
    "shift": "by how many bits the product is shifted",
}


def operands_read(expr: Expr, node: Node, graph: Graph) -> set[int]:
    """Return the numbers of the inputs that the C of an expression reads.

    An index into a dimension of size 1 is not written (`flat_index`), nor then what it would read.
    """
    numbers: set[int] = set()
    seen: set[int] = set()
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if part.op != "load":
            waiting += part.args
            continue
        numbers.add(part.value)
        shape = graph.types[node.inputs[part.value]].shape
        waiting += [index for index, size in zip(part.args, shape, strict=True) if size != 1]
    return numbers


def has_small_floats(node: Node, graph: Graph) -> bool:
    """Whether a node's expression computes with floats of at most 8 bits, and does not only move them."""
    expr = expression_of(node)
    if expr is None or expr.op == "load":
        return False
    kinds = {part.dtype for part in expr.parts()} | {graph.types[node.outputs[0]].dtype}
    return any(kind.is_float and kind.size == 1 for kind in kinds)


def has_halves(node: Node, graph: Graph) -> bool:
    """Whether a node reads, computes with or writes floats of 16 bits."""
    expr = expression_of(node)
    kinds = {graph.types[value].dtype for value in (*node.inputs, *node.outputs) if value}
    kinds |= {part.dtype for part in expr.parts()} if expr is not None else set()
    return any(kind.is_half and kind.size == 2 for kind in kinds)


def has_fixed16(node: Node, graph: Graph) -> bool:
    """Whether the C of a node's expression calls functions of mt_fixed16.h."""
    expr = expression_of(node)
    return expr is not None and any(part.op in FIXED16 for part in expr.parts())


_WITHOUT_LIBM = {
    "load", "acc", "axis", "const", "add", "sub", "mul", "div", "neg", "maximum", "minimum", "sign", "cast",
    "bitcast", "where", "less", "less_equal", "greater", "greater_equal", "equal", "and", "or", "xor", "not",
    "quantize", "requantize", "requantize_fixed", "rescale", "rescale_long", "rescale_pair", "mean",
    "shifted", "is_near_tie", "shifted_tie", "high_product", "factor",
}  # fmt: skip
"""Functions whose C needs nothing of math.h, whatever their type; infinite constants do."""


def has_libm(node: Node, graph: Graph) -> bool:
    """Whether a node's C may use functions or macros of math.h, other than on integers."""
    expr = expression_of(node)
    for part in expr.parts() if expr is not None else ():
        is_float = part.dtype.is_float or part.op in ("isnan", "isinf")
        is_finite = part.op != "const" or np.isfinite(part.value)
        if is_float and (part.op not in _WITHOUT_LIBM or not is_finite):
            return True
    if expr is not None and not isinstance(node.attrs, WithEpilogue):
        return False
    values = [value for value in (*node.inputs, *node.outputs) if value and value not in graph.constants]
    return any(graph.types[value].dtype.is_float for value in values)


def flat_index(index: Sequence[Text], shape: Sequence[int]) -> Text:
    """Return the row-major offset of an element as C."""
    total: Text | None = None
    for text, size in zip(index, shape, strict=True):
        if size == 1:
            continue
        if total is None or total.c == "0":
            total = text
        elif text.c == "0":
            total = Text(f"{total.at(MUL)} * {size}", MUL)
        else:
            total = Text(f"{total.at(MUL)} * {size} + {text.at(MUL)}", ADD)
    return total or Text("0")


def is_identity(load: Expr, shape: Sequence[int], operand_shape: Sequence[int]) -> bool:
    """Whether a load reads the same element of a tensor of the same shape."""
    return tuple(shape) == tuple(operand_shape) and all(
        (index.op == "axis" and index.value == dim) or (index.op == "const" and shape[dim] == 1)
        for dim, index in enumerate(load.args)
    )


@frozen
class Leaves:
    """The C of an expression's leaves: element loads, axes, results of the kernel.

    Attributes:
        node: the node whose inputs it loads.
        graph: the graph.
        names: C names of the inputs.
        axes: the C of each loop axis.
        acc: the C of the kernel's result.
        offset: the C of the element's flat offset, if the kernel has it at hand.
        reduce: the C of a reduction, where the kernel computes one.
    """

    node: Node
    graph: Graph
    names: dict[int, str]
    axes: Callable[[int], Text]
    acc: str = "acc"
    offset: str = ""
    reduce: Callable[[Expr], Text] | None = None

    def number(self, expr: Expr) -> Text:
        """Return an expression as a number to compute with."""
        return render(expr, self._leaf)

    def bits(self, load: Expr) -> str:
        """Return an element as it is stored."""
        shape = self.graph.types[self.node.inputs[load.value]].shape
        if self.offset and is_identity(load, self.graph.types[self.node.outputs[0]].shape, shape):
            return f"{self.names[load.value]}[{self.offset}]"
        return f"{self.names[load.value]}[{flat_index([self.number(i) for i in load.args], shape).c}]"

    def _leaf(self, part: Expr) -> Text:
        if part.op == "axis":
            return self.axes(part.value)
        if part.op == "acc":
            return Text(part.value or self.acc)
        if part.op == "reduce":
            assert self.reduce is not None
            return self.reduce(part)
        return Text(loaded(self.bits(part), self.graph.types[self.node.inputs[part.value]].dtype))


def element(
    expr: Expr,
    node: Node,
    graph: Graph,
    names: dict[int, str],
    axes: Callable[[int], Text],
    *,
    acc: str = "acc",
    offset: str = "",
    reduce: Callable[[Expr], Text] | None = None,
) -> str:
    """Return the C of one element's value as it is stored; the arguments are those of `Leaves`."""
    leaves = Leaves(node, graph, names, axes, acc, offset, reduce)
    if expr.op == "load":  # a move: the bits are copied unchanged
        return leaves.bits(expr)
    if expr.op == "cast" and expr.dtype.is_half and expr.args[0].dtype.computed == "float":
        return stored(leaves.number(expr.args[0]).c, expr.dtype)
    return stored(leaves.number(expr).c, expr.dtype)
