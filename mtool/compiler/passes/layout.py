"""Simplify layouts: transpositions and views sink through loops and cancel each other.

Kernels want NHWC, ONNX says NCHW, so lowering puts a transposition on either side of each kernel.
The rules below are applied until none fits; the transpositions that remain are necessary.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Attributes, DType, Expr, Graph, Node, Rewriter, Transpose, View, rewritten
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.expr import axis, const, identity, load
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.matmul import Matmul
from mtool.compiler.operators.lowering import NCHW_OF_NHWC

Shape = tuple[int, ...]
Change = Callable[[Editor, Node], object]
"""Appends the nodes that replace a node."""
Rule = Callable[[Editor, Node], Change | None]
"""The change that a rule makes at a node; None: the rule does not apply."""


def inverse(perm: Shape) -> Shape:
    """Return the inverse of a permutation."""
    return tuple(perm.index(dim) for dim in range(len(perm)))


def whole_operands(node: Node, graph: Editor) -> list[str]:
    """Return the values that a loop reads and that have its output's shape."""
    shape = graph.types[node.outputs[0]].shape
    values = dict.fromkeys(node.inputs)
    return [value for value in values if graph.types[value].shape == shape and value not in graph.constants]


def reads_own_element(node: Node, graph: Editor, values: list[str]) -> bool:
    """Whether a loop without reductions reads `values` only at the element that it writes."""
    expr = Loop.of(node).expr
    return not any(part.op == "reduce" for part in expr.walk()) and all(
        index == axis(dim) or (index.op == "const" and graph.types[node.inputs[part.value]].shape[dim] == 1)
        for part in expr.walk()
        if part.op == "load" and node.inputs[part.value] in values
        for dim, index in enumerate(part.args)
    )


def own_element(expr: Expr, node: Node, values: Collection[str], rank: int) -> Expr:
    """Make loads of `values` read the loop's own element, in a loop of `rank` axes."""

    def fix(part: Expr) -> Expr:
        if part.op == "load" and node.inputs[part.value] in values:
            return replace(part, args=identity(rank))
        return part

    return expr.rewrite(fix)


class Worklist:
    """The nodes that each rule has yet to be tried at.

    The first rule that applies is used, at the first node where it does. A rule examines at most two nodes up and down
    from its own, so after a change only the nodes around it are tried again.
    """

    def __init__(self, graph: Editor, rules: Sequence[Rule]) -> None:
        self._graph = graph
        entries = [(graph.position(node), node.name) for node in graph.in_order()]
        self._open = [(rule, [*entries], {*entries}) for rule in rules]

    def next(self) -> tuple[Node, Change] | None:
        """Return a node and its change; None: no rule applies any more."""
        for rule, heap, queued in self._open:
            while heap:
                entry = heapq.heappop(heap)
                queued.discard(entry)
                node = self._graph.named(entry[1])
                if node is None or self._graph.position(node) != entry[0]:
                    continue
                change = rule(self._graph, node)
                if change is not None:
                    return node, change
        return None

    def note_change(self) -> None:
        """Try all rules again around the last change."""
        for entry in {(self._graph.position(node), node.name) for node in self._near()}:
            for _, heap, queued in self._open:
                if entry not in queued:
                    queued.add(entry)
                    heapq.heappush(heap, entry)

    def _near(self) -> Iterator[Node]:
        graph = self._graph
        changed = [*graph.removed, *graph.added]
        yield from (node for node in graph.added if graph.has(node))
        for value in dict.fromkeys(value for node in changed for value in node.outputs):
            for reader in graph.readers(value):
                yield reader
                if isinstance(reader.attrs, View):
                    yield from graph.readers(reader.outputs[0], "dense")
        for value in dict.fromkeys(value for node in changed for value in node.inputs):
            if (alone := graph.only_reader(value)) is not None:
                yield alone
            if (maker := graph.makers.get(value)) is not None:
                yield maker
                if isinstance(maker.attrs, Transpose) and (above := graph.maker(maker.inputs[0], "loop")) is not None:
                    yield above


def compose(graph: Editor, node: Node) -> Change | None:
    """Merge two views or two transpositions; remove one that changes nothing."""
    if not isinstance(node.attrs, View | Transpose):
        return None
    source, out = graph.types[node.inputs[0]].shape, graph.types[node.outputs[0]].shape
    idle = source == out if isinstance(node.attrs, View) else node.attrs.perm == tuple(range(len(out)))
    if idle and (not graph.is_output(node.outputs[0]) or node.inputs[0] in graph.makers):
        return lambda r, n: r.rename(n.outputs[0], n.inputs[0])
    before = graph.maker(node.inputs[0], node.op)
    if before is None:
        return None
    origin, attrs = before.inputs[0], node.attrs
    if isinstance(attrs, Transpose):
        attrs = Transpose(perm=tuple(Transpose.of(before).perm[dim] for dim in attrs.perm))
    return lambda r, n: r.node(n.op, [origin], n.outputs, attrs, like=n)


def view_of_units(graph: Editor, node: Node) -> Change | None:
    """Replace a transposition that moves only dimensions of size 1 by a view."""
    if not isinstance(node.attrs, Transpose):
        return None
    shape = graph.types[node.inputs[0]].shape
    moved = [dim for dim in node.attrs.perm if shape[dim] != 1]
    if moved != sorted(moved):
        return None
    return lambda r, n: r.node("view", n.inputs, n.outputs, View(), like=n)


def sink_view(graph: Editor, node: Node) -> Change | None:
    """loop(view(a)) = view(loop(a)), if the loop is elementwise or the view only adds or drops 1s."""
    whole = whole_operands(node, graph) if isinstance(node.attrs, Loop) else []
    out = graph.types[node.outputs[0]].shape
    # A view of the same shape, from an input to an output of the model, has nothing to sink.
    shapes = [shape for value in whole if (shape := _shape_of(value, graph)) != out]
    if not shapes or not reads_own_element(node, graph, whole):
        return None
    shape = shapes[0]
    axes = _unit_axes(shape, out)
    if axes is None and not _is_elementwise(node, whole):
        return None
    # More views must be removed than added; otherwise the shape of higher rank stays.
    more = sum(1 for value in whole if _shape_of(value, graph) != shape)
    if more and (more > len(shapes) or (len(shape), shape) <= (len(out), out)):
        return None

    def sunk(r: Editor, n: Node) -> None:
        sources = {value: _viewed(r, n, value, shape) for value in whole}
        attrs = Loop.of(n)
        expr = attrs.expr.with_axes(axes) if axes else attrs.expr
        expr = own_element(expr, n, sources, len(shape))
        output = r.value(f"{n.outputs[0]}.s", r.types[n.outputs[0]].dtype, shape)
        inputs = [sources.get(value, value) for value in n.inputs]
        r.node("loop", inputs, [output], replace(attrs, expr=expr), like=n)
        r.node("view", [output], n.outputs, View(), like=n)

    return sunk


def _viewed(rewriter: Editor, node: Node, value: str, shape: Shape) -> str:
    """Return a value in a shape: itself, or a new view of it."""
    kind = rewriter.types[value]
    if kind.shape == shape:
        return value
    viewed = rewriter.value(f"{value}.v", kind.dtype, shape)
    rewriter.node("view", [value], [viewed], View(), like=node)
    return viewed


def _shape_of(value: str, graph: Editor) -> Shape:
    """Return the shape of the value's source if it is a view, or its own."""
    view = graph.maker(value, "view")
    return graph.types[view.inputs[0] if view else value].shape


def _is_elementwise(node: Node, whole: list[str]) -> bool:
    """Whether a loop uses its axes only to read the operands `whole`."""
    expr = Loop.of(node).expr
    loads = (load for load in expr.walk() if load.op == "load" and node.inputs[load.value] not in whole)
    indices = (part for load in loads for index in load.args for part in index.walk())
    return not any(part.op == "axis" for part in itertools.chain(expr.walk(indices=False), indices))


def _unit_axes(shape: Shape, viewed: Shape) -> dict[int, Expr] | None:
    """Return the axes of `viewed` in terms of those of `shape`, if the two differ only by 1s."""
    real = [dim for dim, size in enumerate(shape) if size != 1]
    shown = [dim for dim, size in enumerate(viewed) if size != 1]
    if [shape[dim] for dim in real] != [viewed[dim] for dim in shown]:
        return None
    axes = {dim: const(0, DType.INT32) for dim in range(len(viewed))}
    return axes | {new: axis(old) for old, new in zip(real, shown, strict=True)}


def sink_concat(graph: Editor, node: Node) -> Change | None:
    """concat(transpose(a), transpose(b)) = transpose(concat(a, b)); loops and constants beside them are transposed."""
    if not isinstance(node.attrs, Concat):
        return None
    makers = {value: graph.maker(value, "transpose") for value in node.inputs}
    sources = {value: maker.inputs[0] for value, maker in makers.items() if maker}
    perms = {Transpose.of(maker).perm for maker in makers.values() if maker}
    if len(perms) != 1:
        return None
    perm = perms.pop()
    # Towards the kernels' layout only: the other way would undo it.
    others = [value for value in makers if value not in sources]
    if others and (perm != NCHW_OF_NHWC or not all(_turns(value, graph) for value in others)):
        return None

    def sunk(r: Editor, n: Node) -> None:
        back = inverse(perm)
        parts = dict(sources)
        for value in others:
            kind = r.types[value]
            parts[value] = r.value(f"{value}.s", kind.dtype, [kind.shape[dim] for dim in back])
            r.node("transpose", [value], [parts[value]], Transpose(perm=back), like=n)
        attrs = replace(Concat.of(n), axis=perm[Concat.of(n).axis])
        _make_transposed(r, n, perm, [parts[value] for value in n.inputs], attrs)

    return sunk


def _make_transposed(r: Editor, node: Node, perm: Shape, inputs: Sequence[str], attrs: Attributes) -> None:
    """Append a node and a transposition of its result with `perm`."""
    kind = r.types[node.outputs[0]]
    output = r.value(f"{node.outputs[0]}.s", kind.dtype, [kind.shape[dim] for dim in inverse(perm)])
    r.node(node.op, inputs, [output], attrs, like=node)
    r.node("transpose", [output], node.outputs, Transpose(perm=perm), like=node)


def _turns(value: str, graph: Editor) -> bool:
    """Whether a value can be produced transposed: a constant, or the result of a loop that nothing else reads."""
    return value in graph.constants or (graph.maker(value, "loop") is not None and bool(graph.only_reader(value)))


def permute_weights(graph: Editor, node: Node) -> Change | None:
    """Permute the columns of a dense layer's weights instead of the tensor that is flattened before it."""
    view = graph.maker(node.inputs[0], "view") if isinstance(node.attrs, Dense) else None
    transpose = graph.maker(view.inputs[0], "transpose") if view else None
    if transpose is None:
        return None
    rows, depth = graph.types[node.inputs[0]].shape
    shape, perm = graph.types[transpose.outputs[0]].shape, Transpose.of(transpose).perm
    if shape[0] != rows or perm[0] != 0:
        return None
    order = np.arange(depth).reshape(shape[1:]).transpose(np.argsort(perm[1:]) if len(perm) > 1 else ())
    source, columns = transpose.inputs[0], order.reshape(-1)

    def permuted(r: Editor, n: Node) -> None:
        weights = r.constant(f"{n.name}/weights", np.ascontiguousarray(r.constants[n.inputs[1]][:, columns]))
        viewed = r.value(f"{source}.flat", r.types[source].dtype, (rows, depth))
        r.node("view", [source], [viewed], View(), like=n)
        r.node(n.op, [viewed, weights, *n.inputs[2:]], n.outputs, n.attrs, like=n)

    return permuted


def sink_transpose(graph: Editor, node: Node) -> Change | None:
    """loop(transpose(a), transpose(b), parameters) = transpose(loop(a, b, parameters))."""
    whole = whole_operands(node, graph) if isinstance(node.attrs, Loop) else []
    makers = [maker for value in whole if (maker := graph.maker(value, "transpose"))]
    perms = {Transpose.of(maker).perm for maker in makers}
    if len(perms) != 1 or len(makers) != len(whole) or not reads_own_element(node, graph, whole):
        return None
    perm = perms.pop()
    sources = {value: maker.inputs[0] for value, maker in zip(whole, makers, strict=True)}

    def sunk(r: Editor, n: Node) -> None:
        renamed = Loop.of(n).expr.with_axes({number: axis(dim) for number, dim in enumerate(perm)})
        expr = own_element(renamed, n, sources, len(perm))
        inputs = [sources.get(value, value) for value in n.inputs]
        _make_transposed(r, n, perm, inputs, replace(Loop.of(n), expr=expr))

    return sunk


def store_transposed(graph: Editor, node: Node) -> Change | None:
    """Store a loop's result transposed if it is read through a transposition; other readers transpose it back."""
    if not isinstance(node.attrs, Loop) or graph.is_output(node.outputs[0]):
        return None
    ops = graph.reader_ops(node.outputs[0])
    readers = graph.readers(node.outputs[0], "transpose")
    perms = {Transpose.of(reader).perm for reader in readers}
    if len(perms) != 1 or not {*ops} <= {"transpose", "loop"}:
        return None
    if any(value in graph.makers for value in whole_operands(node, graph)):
        return None  # better fused into its producer, in its layout
    perm = perms.pop()
    if "loop" in ops and all({*graph.reader_ops(r.outputs[0])} <= {"loop", "transpose"} for r in readers):
        return None  # loops read through transpositions anyway; this would not end

    def stored(r: Editor, n: Node) -> None:
        expr = Loop.of(n).expr.with_axes({dim: axis(number) for number, dim in enumerate(perm)})
        _make_transposed(r, n, inverse(perm), n.inputs, replace(Loop.of(n), expr=expr))

    return stored


def absorb_transposes(graph: Graph) -> Graph:
    """Fold transpositions into the loops and products that read them."""
    producers = graph.producers()

    def absorbed(_: Rewriter, node: Node) -> Node:
        if isinstance(node.attrs, Matmul):
            return _read_through(node, graph, producers)
        inputs, turned = list(node.inputs), dict[int, Shape]()
        for number, value in enumerate(node.inputs):
            maker = producers.get(value)
            if maker is not None and isinstance(maker.attrs, Transpose):
                inputs[number] = maker.inputs[0]
                turned[number] = inverse(maker.attrs.perm)

        def through(part: Expr) -> Expr:
            if part.op == "load" and part.value in turned:
                return replace(part, args=tuple(part.args[dim] for dim in turned[part.value]))
            return part

        attrs = replace(Loop.of(node), expr=Loop.of(node).expr.rewrite(through)) if turned else node.attrs
        return replace(node, inputs=tuple(inputs), attrs=attrs)

    return rewritten(graph, absorbed, Loop | Matmul)


def _read_through(node: Node, graph: Graph, producers: dict[str, Node]) -> Node:
    """Read the operands of a product as they are before their transposition."""
    inputs, attrs = list(node.inputs), Matmul.of(node)
    strides = [attrs.a, attrs.b]
    for number, old in enumerate(strides):
        maker = producers.get(node.inputs[number])
        if maker is None or not isinstance(maker.attrs, Transpose):
            continue
        shape = graph.types[maker.inputs[0]].shape
        before = [math.prod(shape[dim + 1 :]) for dim in Transpose.of(maker).perm]
        after = old[len(old) - len(before) :]
        moved = (step and whole for step, whole in zip(after, before, strict=True))  # 0: it is broadcast
        strides[number] = (*old[: len(old) - len(before)], *moved)
        inputs[number] = maker.inputs[0]
    return replace(node, inputs=tuple(inputs), attrs=replace(attrs, a=strides[0], b=strides[1]))


_RULES: Sequence[Rule] = (
    compose,
    view_of_units,
    permute_weights,
    sink_transpose,
    sink_view,
    store_transposed,
    sink_concat,
)


def simplify_layout(graph: Graph) -> Graph:
    """Apply the layout rules until none applies."""
    editor = Editor(graph)
    worklist = Worklist(editor, _RULES)
    while (change := worklist.next()) is not None:
        editor.change(*change)
        worklist.note_change()
    return absorb_transposes(editor.finish())


def transposes_to_loops(graph: Graph) -> Graph:
    """Replace each transposition by a loop over its output."""

    def looped(rewriter: Rewriter, node: Node) -> None:
        source, perm = rewriter.resolve(node.inputs[0]), Transpose.of(node).perm
        index = tuple(map(axis, inverse(perm)))
        attrs = Loop(expr=load(0, rewriter.types[source].dtype, index), label="transpose")
        rewriter.node("loop", [source], node.outputs, attrs, like=node)

    return rewritten(graph, looped, Transpose)
