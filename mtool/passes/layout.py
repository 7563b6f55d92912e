"""Settle layouts: transpositions and views sink through loops and cancel against each other.

Kernels want NHWC, ONNX says NCHW, so lowering puts a transposition on either side of each kernel.
The rules below are applied until none fits; what is left really has to be done.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np

from mtool.ir import DType, Expr, Graph, Node, TensorType
from mtool.ir.expr import axis, const, identity
from mtool.ir.graph import Rewriter
from mtool.ir.types import Array
from mtool.ops.lowering import NCHW_OF_NHWC

Shape = tuple[int, ...]


def settle_layout(graph: Graph) -> Graph:
    """Apply the layout rules until none fits."""
    rules: list[Callable[[_State], Graph | None]] = [
        _compose,
        _transposed_units,
        _permuted_weights,
        _sink_transpose,
        _sink_view,
        _store_transposed,
        _sink_concat,
    ]
    while True:
        state = _State(graph, graph.producers(), graph.consumers())
        changed = next((result for rule in rules if (result := rule(state)) is not None), None)
        if changed is None:
            break
        graph = changed
    return _absorb_transposes(graph)


@dataclass(frozen=True, slots=True)
class _State:
    graph: Graph
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]

    def maker(self, value: str, op: str) -> Node | None:
        node = self.producers.get(value)
        return node if node is not None and node.op == op else None


def _rebuild(graph: Graph, changes: dict[str, Callable[[Rewriter, Node], None]]) -> Graph:
    """Rebuild the graph, handing the named nodes to their functions."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.name in changes:
            resolved = replace(node, inputs=tuple(rewriter.resolve(value) for value in node.inputs))
            changes[node.name](rewriter, resolved)
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _compose(state: _State) -> Graph | None:
    """Two of a kind become one; one that changes nothing goes."""
    graph = state.graph
    for node in graph.nodes:
        if node.op not in ("view", "transpose"):
            continue
        source, out = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        idle = source.shape == out.shape if node.op == "view" else node.attrs["perm"] == tuple(range(len(out.shape)))
        if idle and (node.outputs[0] not in graph.outputs or node.inputs[0] in state.producers):
            return _rebuild(graph, {node.name: lambda r, n: r.rename(n.outputs[0], n.inputs[0])})
        before = state.maker(node.inputs[0], node.op)
        if before is None:
            continue
        attrs = {}
        if node.op == "transpose":
            attrs = {"perm": tuple(before.attrs["perm"][place] for place in node.attrs["perm"])}
        origin, inner = before.inputs[0], attrs

        def joined(r: Rewriter, n: Node, origin: str = origin, attrs: dict[str, Shape] = inner) -> None:
            r.node(n.op, [r.resolve(origin)], n.outputs, attrs, like=n)

        return _rebuild(graph, {node.name: joined})
    return None


def _transposed_units(state: _State) -> Graph | None:
    """A transposition that moves only dimensions of size 1 is a view."""
    for node in state.graph.nodes:
        if node.op != "transpose":
            continue
        shape = state.graph.types[node.inputs[0]].shape
        moved = [place for place in node.attrs["perm"] if shape[place] != 1]
        if moved == sorted(moved):
            return _rebuild(state.graph, {node.name: lambda r, n: _keep_as(r, n, "view")})
    return None


def _keep_as(rewriter: Rewriter, node: Node, op: str) -> None:
    rewriter.node(op, node.inputs, node.outputs, like=node)


def _permuted_weights(state: _State) -> Graph | None:
    """Dense after flattening a transposed tensor: permute the columns of its weights instead."""
    graph = state.graph
    for node in graph.nodes:
        if node.op != "dense":
            continue
        view = state.maker(node.inputs[0], "view")
        transpose = state.maker(view.inputs[0], "transpose") if view else None
        if view is None or transpose is None:
            continue
        rows, depth = graph.types[node.inputs[0]].shape
        shape, perm = graph.types[transpose.outputs[0]].shape, transpose.attrs["perm"]
        if shape[0] != rows or perm[0] != 0:
            continue
        order = np.arange(depth).reshape(shape[1:]).transpose(np.argsort(perm[1:]) if len(perm) > 1 else ())
        source, columns = transpose.inputs[0], order.reshape(-1)

        def permuted(
            r: Rewriter, n: Node, source: str = source, columns: Array = columns, flat: Shape = (rows, depth)
        ) -> None:
            weights = r.constant(f"{n.name}/weights", np.ascontiguousarray(r.constants[n.inputs[1]][:, columns]))
            viewed = r.value(f"{source}.flat", r.types[r.resolve(source)].dtype, flat)
            r.node("view", [r.resolve(source)], [viewed], like=n)
            r.node(n.op, [viewed, weights, *n.inputs[2:]], n.outputs, n.attrs, like=n)

        return _rebuild(graph, {node.name: permuted})
    return None


def _whole_operands(node: Node, graph: Graph) -> list[str]:
    """Return the values of the output's shape that a loop reads."""
    shape = graph.types[node.outputs[0]].shape
    values = dict.fromkeys(node.inputs)
    return [value for value in values if graph.types[value].shape == shape and value not in graph.constants]


def _own_element(expr: Expr, node: Node, values: Collection[str], rank: int) -> Expr:
    """Let loads of `values` read the loop's own element, in a loop of `rank` axes."""

    def fix(part: Expr) -> Expr:
        if part.op == "load" and node.inputs[part.value] in values:
            return replace(part, args=identity(rank))
        return part

    return expr.rewrite(fix)


def _sink_transpose(state: _State) -> Graph | None:
    """loop(transpose(a), transpose(b), parameters) = transpose(loop(a, b, parameters))."""
    graph = state.graph
    for node in graph.nodes:
        if node.op != "loop" or any(part.op == "reduce" for part in node.attrs["expr"].walk()):
            continue
        out = graph.types[node.outputs[0]]
        whole = _whole_operands(node, graph)
        makers = [state.maker(value, "transpose") for value in whole]
        if not whole or not all(makers) or not _reads_own_element(node, graph, whole):
            continue
        perms = {maker.attrs["perm"] for maker in makers if maker}
        if len(perms) != 1:
            continue
        perm = perms.pop()
        sources = {value: maker.inputs[0] for value, maker in zip(whole, makers, strict=True) if maker}

        def sunk(
            r: Rewriter, n: Node, perm: Shape = perm, sources: dict[str, str] = sources, out: TensorType = out
        ) -> None:
            inverse = tuple(perm.index(place) for place in range(len(perm)))
            shape = tuple(out.shape[place] for place in inverse)
            renamed = n.attrs["expr"].with_axes({number: axis(place) for number, place in enumerate(perm)})
            expr = _own_element(renamed, n, sources, len(perm))
            made = r.value(f"{n.outputs[0]}.s", out.dtype, shape)
            inputs = [r.resolve(sources.get(value, value)) for value in n.inputs]
            r.node("loop", inputs, [made], {**n.attrs, "expr": expr}, like=n)
            r.node("transpose", [made], n.outputs, {"perm": perm}, like=n)

        return _rebuild(graph, {node.name: sunk})
    return None


def _reads_own_element(node: Node, graph: Graph, values: list[str]) -> bool:
    return all(
        index == axis(place) or (index.op == "const" and graph.types[node.inputs[part.value]].shape[place] == 1)
        for part in node.attrs["expr"].walk()
        if part.op == "load" and node.inputs[part.value] in values
        for place, index in enumerate(part.args)
    )


def _sink_view(state: _State) -> Graph | None:
    """loop(view(a)) = view(loop(a)), where the loop is elementwise or the view only adds or drops 1s."""
    graph = state.graph
    for node in graph.nodes:
        if node.op != "loop" or any(part.op == "reduce" for part in node.attrs["expr"].walk()):
            continue
        out = graph.types[node.outputs[0]]
        whole = _whole_operands(node, graph)
        views = [view for value in whole if (view := state.maker(value, "view"))]
        if not views or not _reads_own_element(node, graph, whole):
            continue
        shape = graph.types[views[0].inputs[0]].shape
        axes = _unit_axes(shape, out.shape)
        others = [
            part
            for part in node.attrs["expr"].walk()
            if part.op == "load"
            and node.inputs[part.value] not in whole
            and any(a.op == "axis" for arg in part.args for a in arg.walk())
        ]
        bare = any(part.op == "axis" for part in _outside_loads(node.attrs["expr"]))
        if axes is None and (others or bare):
            continue
        # Views that go must outnumber those that come; where they don't, the shape of higher rank stays.
        come = sum(1 for value in whole if _source_shape(state, value) != shape)
        if come and (come > len(views) or (len(shape), shape) <= (len(out.shape), out.shape)):
            continue

        def sunk(
            r: Rewriter, n: Node, whole: list[str] = whole, shape: Shape = shape, axes: dict[int, Expr] | None = axes
        ) -> None:
            sources = {}
            for value in whole:
                resolved = r.resolve(value)
                sources[value] = (
                    resolved
                    if r.types[resolved].shape == shape
                    else r.value(f"{value}.v", r.types[resolved].dtype, shape)
                )
                if sources[value] != resolved:
                    r.node("view", [resolved], [sources[value]], like=n)
            expr: Expr = n.attrs["expr"].with_axes(axes) if axes else n.attrs["expr"]

            expr = _own_element(expr, n, sources, len(shape))
            kind = r.types[n.outputs[0]]
            made = r.value(f"{n.outputs[0]}.s", kind.dtype, shape)
            inputs = [sources.get(value, value) for value in n.inputs]
            r.node("loop", inputs, [made], {**n.attrs, "expr": expr}, like=n)
            r.node("view", [made], n.outputs, like=n)

        return _rebuild(graph, {node.name: sunk})
    return None


def _source_shape(state: _State, value: str) -> Shape:
    """Return the shape of what a value is a view of, or its own."""
    view = state.maker(value, "view")
    return state.graph.types[view.inputs[0] if view else value].shape


def _outside_loads(expr: Expr) -> list[Expr]:
    return [] if expr.op == "load" else [expr, *(part for arg in expr.args for part in _outside_loads(arg))]


def _unit_axes(shape: Shape, viewed: Shape) -> dict[int, Expr] | None:
    """Return the axes of `viewed` in terms of those of `shape`, if the two differ only by 1s."""
    real = [place for place, size in enumerate(shape) if size != 1]
    shown = [place for place, size in enumerate(viewed) if size != 1]
    if [shape[place] for place in real] != [viewed[place] for place in shown]:
        return None
    axes = {place: const(0, DType.INT32) for place in range(len(viewed))}
    return axes | {there: axis(here) for here, there in zip(real, shown, strict=True)}


def _store_transposed(state: _State) -> Graph | None:
    """A loop that is read through a transposition is stored transposed; other readers turn it back."""
    graph = state.graph
    for node in graph.nodes:
        if node.op != "loop" or node.outputs[0] in graph.outputs:
            continue
        readers = state.consumers.get(node.outputs[0], [])
        perms = {reader.attrs["perm"] for reader in readers if reader.op == "transpose"}
        if len(perms) != 1 or not all(reader.op in ("transpose", "loop") for reader in readers):
            continue
        if any(value in state.producers for value in _whole_operands(node, graph)):
            continue  # better fused into what makes it, in its layout
        perm = perms.pop()
        turned = [user.op for r in readers if r.op == "transpose" for user in state.consumers.get(r.outputs[0], [])]
        if any(reader.op == "loop" for reader in readers) and not set(turned) - {"loop", "transpose"}:
            continue  # loops read through transpositions anyway; they would turn it to and fro

        def stored(r: Rewriter, n: Node, perm: Shape = perm) -> None:
            kind = r.types[n.outputs[0]]
            made = r.value(f"{n.outputs[0]}.s", kind.dtype, [kind.shape[place] for place in perm])
            expr = n.attrs["expr"].with_axes({place: axis(number) for number, place in enumerate(perm)})
            r.node("loop", n.inputs, [made], {**n.attrs, "expr": expr}, like=n)
            inverse = tuple(perm.index(place) for place in range(len(perm)))
            r.node("transpose", [made], n.outputs, {"perm": inverse}, like=n)

        return _rebuild(graph, {node.name: stored})
    return None


def _sink_concat(state: _State) -> Graph | None:
    """concat(transpose(a), transpose(b)) = transpose(concat(a, b)); loops and constants beside them are turned."""
    graph = state.graph
    for node in graph.nodes:
        if node.op != "concat":
            continue
        makers = {value: state.maker(value, "transpose") for value in node.inputs}
        perms = {maker.attrs["perm"] for maker in makers.values() if maker}
        if len(perms) != 1:
            continue
        perm = perms.pop()
        # Towards the kernels' layout only: the other way would undo it.
        others = [value for value, maker in makers.items() if maker is None]
        if others and (perm != NCHW_OF_NHWC or not all(_turns(value, state) for value in others)):
            continue
        sources = {value: maker.inputs[0] for value, maker in makers.items() if maker}

        def sunk(r: Rewriter, n: Node, perm: Shape = perm, sources: dict[str, str] = sources) -> None:
            inverse = tuple(perm.index(place) for place in range(len(perm)))

            def turned(value: str) -> str:
                kind = r.types[r.resolve(value)]
                other = r.value(f"{value}.s", kind.dtype, [kind.shape[place] for place in inverse])
                r.node("transpose", [r.resolve(value)], [other], {"perm": inverse}, like=n)
                return other

            parts = {value: r.resolve(sources[value]) if value in sources else turned(value) for value in n.inputs}
            kind = r.types[n.outputs[0]]
            made = r.value(f"{n.outputs[0]}.s", kind.dtype, [kind.shape[place] for place in inverse])
            attrs = {**n.attrs, "axis": perm[n.attrs["axis"]]}
            r.node("concat", [parts[value] for value in n.inputs], [made], attrs, like=n)
            r.node("transpose", [made], n.outputs, {"perm": perm}, like=n)

        return _rebuild(graph, {node.name: sunk})
    return None


def _turns(value: str, state: _State) -> bool:
    """Whether a value may as well be made transposed: by a loop that nothing else reads, or once for all."""
    if value in state.graph.constants:
        return True
    readers = {reader.name for reader in state.consumers[value]}
    return state.maker(value, "loop") is not None and len(readers) == 1 and value not in state.graph.outputs


def _absorb_transposes(graph: Graph) -> Graph:
    """Let loops read through the transpositions before them."""
    producers = graph.producers()
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node.op != "loop":
            rewriter.keep(node)
            continue
        inputs, expr = list(node.inputs), node.attrs["expr"]
        for number, value in enumerate(node.inputs):
            maker = producers.get(value)
            if maker is None or maker.op != "transpose":
                continue
            perm = maker.attrs["perm"]
            inputs[number] = maker.inputs[0]

            def through(part: Expr, number: int = number, perm: Shape = perm) -> Expr:
                if part.op == "load" and part.value == number:
                    return replace(part, args=tuple(part.args[perm.index(place)] for place in range(len(perm))))
                return part

            expr = expr.rewrite(through)
        rewriter.keep(replace(node, inputs=tuple(inputs), attrs={**node.attrs, "expr": expr}))
    return rewriter.finish()
