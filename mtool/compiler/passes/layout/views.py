"""Views: what becomes one, what goes, and how they sink through loops."""

from dataclasses import replace

from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.expr import axis, const
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.passes.layout.rule import Change, Shape, own_element, reads_own_element, whole_operands


def compose(graph: Editor, node: Node) -> Change | None:
    """Two views or two transpositions become one; one that changes nothing goes."""
    if not isinstance(node.attrs, View | Transpose):
        return None
    source, out = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    idle = (
        source.shape == out.shape if isinstance(node.attrs, View) else node.attrs.perm == tuple(range(len(out.shape)))
    )
    if idle and (not graph.is_output(node.outputs[0]) or node.inputs[0] in graph.makers):
        return lambda r, n: r.rename(n.outputs[0], n.inputs[0])
    before = graph.maker(node.inputs[0], node.op)
    if before is None:
        return None
    origin = before.inputs[0]
    attrs = node.attrs
    if isinstance(attrs, Transpose):
        perm = Transpose.of(before).perm
        attrs = Transpose(perm=tuple(perm[dim] for dim in attrs.perm))
    return lambda r, n: r.node(n.op, [origin], n.outputs, attrs, like=n)


def view_of_units(graph: Editor, node: Node) -> Change | None:
    """A transposition that moves only dimensions of size 1 is a view."""
    if not isinstance(node.attrs, Transpose):
        return None
    shape = graph.types[node.inputs[0]].shape
    moved = [dim for dim in node.attrs.perm if shape[dim] != 1]
    if moved != sorted(moved):
        return None
    return lambda r, n: r.node("view", n.inputs, n.outputs, View(), like=n)


def sink_view(graph: Editor, node: Node) -> Change | None:
    """loop(view(a)) = view(loop(a)), where the loop is elementwise or the view only adds or drops 1s."""
    whole = whole_operands(node, graph) if isinstance(node.attrs, Loop) else []
    out = graph.types[node.outputs[0]].shape
    # A view of the same shape, which an output of the model is of an input, has nothing to sink.
    views = [view for value in whole if (view := graph.maker(value, "view")) and _shape_before(view, graph) != out]
    if not views or not reads_own_element(node, graph, whole):
        return None
    shape = _shape_before(views[0], graph)
    axes = _unit_axes(shape, out)
    if axes is None and not _is_elementwise(node, whole):
        return None
    # Views that go must outnumber those that come; where they don't, the shape of higher rank stays.
    come = sum(1 for value in whole if _source_shape(graph, value) != shape)
    if come and (come > len(views) or (len(shape), shape) <= (len(out), out)):
        return None

    def sunk(r: Editor, n: Node) -> None:
        sources = {value: _viewed(r, n, value, shape) for value in whole}
        attrs = Loop.of(n)
        expr = attrs.expr.with_axes(axes) if axes else attrs.expr
        expr = own_element(expr, n, sources, len(shape))
        made = r.value(f"{n.outputs[0]}.s", r.types[n.outputs[0]].dtype, shape)
        inputs = [sources.get(value, value) for value in n.inputs]
        r.node("loop", inputs, [made], replace(attrs, expr=expr), like=n)
        r.node("view", [made], n.outputs, View(), like=n)

    return sunk


def _viewed(rewriter: Editor, node: Node, value: str, shape: Shape) -> str:
    """Return a value in a shape: itself, or a view of it that is made for the node."""
    kind = rewriter.types[value]
    if kind.shape == shape:
        return value
    viewed = rewriter.value(f"{value}.v", kind.dtype, shape)
    rewriter.node("view", [value], [viewed], View(), like=node)
    return viewed


def _source_shape(graph: Editor, value: str) -> Shape:
    """Return the shape of what a value is a view of, or its own."""
    view = graph.maker(value, "view")
    return _shape_before(view, graph) if view else graph.types[value].shape


def _shape_before(view: Node, graph: Editor) -> Shape:
    return graph.types[view.inputs[0]].shape


def _is_elementwise(node: Node, whole: list[str]) -> bool:
    """Whether a loop's axes serve for nothing but to read the operands `whole`."""
    expr = Loop.of(node).expr
    return not any(part.op == "axis" for part in expr.walk(indices=False)) and not any(
        part.op == "axis"
        for load in expr.walk()
        if load.op == "load" and node.inputs[load.value] not in whole
        for index in load.args
        for part in index.walk()
    )


def _unit_axes(shape: Shape, viewed: Shape) -> dict[int, Expr] | None:
    """Return the axes of `viewed` in terms of those of `shape`, if the two differ only by 1s."""
    real = [dim for dim, size in enumerate(shape) if size != 1]
    shown = [dim for dim, size in enumerate(viewed) if size != 1]
    if [shape[dim] for dim in real] != [viewed[dim] for dim in shown]:
        return None
    axes = {dim: const(0, DType.INT32) for dim in range(len(viewed))}
    return axes | {there: axis(here) for here, there in zip(real, shown, strict=True)}
