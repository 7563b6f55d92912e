"""Fuse loops into the kernel or loop that writes their input; quantize before moves of elements.

q(move(x)) is move(q(x)), number for number, and no float is moved or stored.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from mtool.compiler.ir import Computation, Expr, Graph, Node, WithEpilogue, identity, load
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.scalar import FUNCTIONS
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.expressions import SLOW
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import SPECIFICATIONS, with_expression

CHEAP = 5  # functions per element up to which a loop is computed again for each of its readers
LARGEST = 512  # the most parts of a fused expression,
DEEPEST = 48  # and its deepest nesting: C compilers limit brackets
MAX_ADDED_PARTS = 64  # parts that may be added by writing an expression several times
OPERANDS = 64  # the most operands of a loop: each is a parameter of its function


def fuse(graph: Graph) -> Graph:
    """Fuse loops into loops until no fusion applies, then into kernels.

    This order makes readers compute a dequantization from integers before it could make a kernel write floats. Nodes
    are visited in their order: a loop is fused into its reader after everything possible was fused into it. Each fusion
    removes an operand or brings it nearer to the inputs, so it terminates.
    """
    editor = Editor(graph)
    for fused in (partial(_into_loop, shrinking=True), _into_loop, _into_kernel):
        _fuse_everywhere(editor, fused)
    return editor.finish()


def _fuse_everywhere(editor: Editor, fused: Callable[[Editor, Node], Node | None]) -> None:
    """Fuse at each loop until nothing fits; `fused` returns the new loop, or None if it did nothing."""
    for node in editor.in_order():
        current: Node | None = node if isinstance(node.attrs, Loop) and editor.has(node) else None
        while current is not None:
            current = fused(editor, current)


def _makers(editor: Editor, node: Node) -> Iterator[tuple[Node, list[Expr]]]:
    """Yield the producers of a loop's inputs, latest first, with the loop's loads of them."""
    loads: dict[str, list[Expr]] = {}
    for part in Loop.of(node).expr.walk():
        if part.op == "load":
            loads.setdefault(node.inputs[part.value], []).append(part)
    makers = {maker.name: maker for value in loads if (maker := editor.makers.get(value))}
    for maker in sorted(makers.values(), key=editor.position, reverse=True):
        if maker.outputs[0] in loads:
            yield maker, loads[maker.outputs[0]]


def _into_loop(editor: Editor, node: Node, *, shrinking: bool = False) -> Node | None:
    """Fuse a loop into its reader; if `shrinking`, only one whose value is larger than its operands.

    Such a value (a dequantization) goes into its readers before its producer is fused with it.
    """
    for maker, loads in _makers(editor, node):
        single = not shrinking and editor.only_reader(maker.outputs[0]) is node
        is_loop = isinstance(maker.attrs, Loop) and (not shrinking or _shrinks(maker, editor))
        if is_loop and _may_inline(maker, node, loads, editor, single):
            return _inline(editor, maker, node)
    return None


def _into_kernel(editor: Editor, node: Node) -> None:
    for maker, loads in _makers(editor, node):
        value = maker.outputs[0]
        if (
            isinstance(maker.attrs, WithEpilogue)
            and editor.only_reader(value) is node
            and _is_last(maker, node, editor)
            and _elementwise(loads, node, editor, value)
            and _fits(maker, node, loads)
        ):
            _into_epilogue(editor, maker, node)
            return


def _elementwise(loads: list[Expr], node: Node, graph: Editor, value: str) -> bool:
    """Whether the loop reads `value` only at its own element, and reduces nothing."""
    shape = graph.types[value].shape
    plain = all(
        (index.op == "axis" and index.value == number) or shape[number] == 1
        for load in loads
        for number, index in enumerate(load.args)
    )
    reduces = any(part.op == "reduce" for part in Loop.of(node).expr.walk())
    return plain and not reduces and shape == graph.types[node.outputs[0]].shape


def _is_last(maker: Node, node: Node, editor: Editor) -> bool:
    """Whether all other inputs of the loop are available before `maker` runs."""
    others = [editor.makers[v] for v in node.inputs if v in editor.makers and v != maker.outputs[0]]
    return all(editor.position(other) < editor.position(maker) for other in others)


def _fits(maker: Node, node: Node, loads: list[Expr]) -> bool:
    """Whether a loop's expression stays small with its producer's expression inlined.

    An expression that is read several times is duplicated: in chains of squares it would double at each step.
    """
    body, expr = Computation.of(maker).expr, Loop.of(node).expr
    axes = Counter[int](part.value for part in body.walk() if part.op == "axis")
    written = sum(
        body.size - 1 + sum((load.args[number].size - 1) * count for number, count in axes.items() if number < rank)
        for load in loads
        for rank in [len(load.args)]
    )
    deepest = max((index.depth for load in loads for index in load.args), default=0) if axes else 0
    operands = len({*maker.inputs, *node.inputs})
    small = expr.size + written <= LARGEST and expr.depth + body.depth + deepest <= DEEPEST and operands <= OPERANDS
    return small and written - body.size <= MAX_ADDED_PARTS


def _may_inline(maker: Node, node: Node, loads: list[Expr], graph: Editor, single: bool) -> bool:
    expr = Loop.of(maker).expr
    parts = list(expr.walk())
    functions = [part for part in parts if part.op in FUNCTIONS]
    if _narrows(maker, graph):
        return False  # a quantization belongs to the producer of its floats
    if not _fits(maker, node, loads):
        return False
    if any(part.op == "reduce" for part in parts):
        return single and _elementwise(loads, node, graph, maker.outputs[0]) and len(loads) == 1
    cheap = len(functions) <= CHEAP and not any(part.op in SLOW or part.op == "div" for part in functions)
    inside_reduce = any(part.op == "reduce" for part in Loop.of(node).expr.walk())
    if cheap and (single or _shrinks(maker, graph)):
        return True
    return single and len(set(loads)) == 1 and not inside_reduce


def _shrinks(maker: Node, graph: Editor) -> bool:
    """Whether its input is not larger than its output, so that readers better read that (a dequantization)."""
    read = [value for value in maker.inputs if value not in graph.constants]
    return len(read) == 1 and graph.types[read[0]].bytes < graph.types[maker.outputs[0]].bytes


def _narrows(maker: Node, graph: Editor) -> bool:
    """Whether its output elements are smaller than its input's."""
    read = [graph.types[value].dtype.size for value in maker.inputs if value not in graph.constants]
    return graph.types[maker.outputs[0]].dtype.size < max(read, default=0)


def _merged_inputs(base: Node, more: Node, dropped: str) -> tuple[list[str], dict[int, int]]:
    """Return base's inputs followed by more's, and the new numbers of more's inputs."""
    inputs = list(base.inputs)
    numbers: dict[int, int] = {}
    fixed = len(SPECIFICATIONS[base.op].fixed_operands(base))  # a kernel's own are not shared with its epilogue's
    for number, value in enumerate(more.inputs):
        if value == dropped:
            continue
        later = [i for i, name in enumerate(inputs) if name == value and i >= fixed]
        if not later:
            inputs.append(value)
        numbers[number] = later[0] if later else len(inputs) - 1
    return inputs, numbers


def _of_both(node: Node, first: Node, second: Node) -> Node:
    """Return a node named after two nodes."""
    words = [word for part in (first, second) for word in Computation.of(part).label.split("+") if word]
    attrs = replace(Computation.of(node), label="+".join(dict.fromkeys(words)))
    return replace(node, attrs=attrs, origins=tuple(dict.fromkeys([*first.origins, *second.origins])))


def _inline(editor: Editor, maker: Node, node: Node) -> Node:
    """Substitute one loop's expression for the loads of its value in another loop."""
    value = maker.outputs[0]
    base = replace(node, inputs=tuple("" if name == value else name for name in node.inputs))
    inputs, numbers = _merged_inputs(base, maker, "")
    body = Loop.of(maker).expr.with_operands(numbers)

    def substitute(part: Expr) -> Expr:
        if part.op == "load" and part.value < len(node.inputs) and node.inputs[part.value] == value:
            return body.with_axes(dict(enumerate(part.args))) if part.args else body
        return part

    expr = Loop.of(node).expr.rewrite(substitute)
    merged = with_expression(_of_both(node, maker, node), expr, inputs)
    editor.put(node, merged)
    return merged


def _into_epilogue(editor: Editor, kernel: Node, node: Node) -> None:
    """Append a loop's expression to the epilogue of the kernel whose output it reads."""
    value = kernel.outputs[0]
    inputs, numbers = _merged_inputs(kernel, node, value)
    epilogue = WithEpilogue.of(kernel).epilogue
    body = Loop.of(node).expr.with_operands({old: -1 - new for old, new in numbers.items()})

    def substitute(part: Expr) -> Expr:
        if part.op != "load":
            return part
        if part.value < 0:
            return replace(part, value=-1 - part.value)
        return epilogue

    attrs = replace(WithEpilogue.of(kernel), expr=body.rewrite(substitute))
    merged = replace(kernel, inputs=tuple(inputs), outputs=node.outputs, attrs=attrs)
    editor.put(kernel, _of_both(merged, kernel, node), without=node)


MAX_DROPPED = 2  # a move that drops more than this factor of the elements is not exchanged with a quantization


def quantize_before_moves(graph: Graph) -> Graph:
    """Move loops with smaller output elements before the concatenation, slice or repetition that they read.

    Each step brings a loop nearer to the inputs; a move that only the loop reads is passed once.
    """
    editor = Editor(graph)
    waiting = editor.in_order()[::-1]
    while waiting:
        node = waiting.pop()
        move = _move_before(node, editor)
        if move is not None:
            nodes = editor.change(move, partial(_exchanged, loop=node), without=node)
            waiting += reversed(nodes[:-1])
    return editor.finish()


def _move_before(node: Node, editor: Editor) -> Node | None:
    """Return the move of elements that a loop can be exchanged with; None: none."""
    maker = editor.makers.get(node.inputs[0]) if node.inputs else None
    if maker is None or not _moves(maker, editor) or not _is_narrowing(node, editor):
        return None
    return maker if editor.only_reader(maker.outputs[0]) is node else None


def _moves(node: Node, graph: Editor) -> bool:
    """Whether a node only moves elements, and most of them."""
    if isinstance(node.attrs, Loop) and node.attrs.expr.op == "load":
        read = graph.types[node.inputs[node.attrs.expr.value]]
        return read.count <= MAX_DROPPED * graph.types[node.outputs[0]].count
    return isinstance(node.attrs, Concat)


def _is_narrowing(node: Node, graph: Editor) -> bool:
    """Whether a loop converts each element of its one operand to a smaller type."""
    if not isinstance(node.attrs, Loop) or len(node.inputs) != 1:
        return False
    source, result = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    plain = all(
        part.op not in ("axis", "reduce") and (part.op != "load" or part.args == identity(len(result.shape)))
        for part in node.attrs.expr.walk(indices=False)
    )
    return plain and source.shape == result.shape and result.dtype.size < source.dtype.size


def _exchanged(editor: Editor, move: Node, loop: Node) -> None:
    """Append the loop at each input of the move, then the move."""
    dtype = editor.types[loop.outputs[0]].dtype
    attrs, sources = move.attrs, move.inputs
    if isinstance(attrs, Loop):
        attrs = replace(attrs, expr=replace(attrs.expr, dtype=dtype))
        sources = (move.inputs[attrs.expr.value],)
    outputs = {}
    for value in dict.fromkeys(sources):
        outputs[value] = editor.value(f"{value}.q", dtype, editor.types[value].shape)
        rank = len(editor.types[value].shape)  # a move may leave out a dimension
        expr = Loop.of(loop).expr.rewrite(partial(_at_rank, rank=rank))
        editor.node("loop", [value], [outputs[value]], replace(Loop.of(loop), expr=expr), like=loop)
    inputs = [outputs.get(value, value) for value in move.inputs]
    editor.node(move.op, inputs, loop.outputs, attrs, like=move, origins=loop.origins)


def _at_rank(part: Expr, rank: int) -> Expr:
    """Return a load of the element itself from a tensor of `rank` dimensions; other parts unchanged."""
    return load(part.value, part.dtype, identity(rank)) if part.op == "load" else part
