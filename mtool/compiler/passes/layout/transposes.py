"""Transpositions: they sink through loops and into weights, or loops store and read through them."""

import math
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.expr import axis
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.kernels.dense.node import Dense
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.matmul.node import Matmul
from mtool.compiler.passes.layout.rule import Change, Shape, inverse, own_element, reads_own_element, whole_operands


def permute_weights(graph: Editor, node: Node) -> Change | None:
    """Dense after flattening a transposed tensor: permute the columns of its weights instead."""
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
        kind = r.types[n.outputs[0]]
        renamed = Loop.of(n).expr.with_axes({number: axis(dim) for number, dim in enumerate(perm)})
        expr = own_element(renamed, n, sources, len(perm))
        made = r.value(f"{n.outputs[0]}.s", kind.dtype, [kind.shape[dim] for dim in inverse(perm)])
        inputs = [sources.get(value, value) for value in n.inputs]
        r.node("loop", inputs, [made], replace(Loop.of(n), expr=expr), like=n)
        r.node("transpose", [made], n.outputs, Transpose(perm=perm), like=n)

    return sunk


def store_transposed(graph: Editor, node: Node) -> Change | None:
    """A loop that is read through a transposition is stored transposed; other readers turn it back."""
    if not isinstance(node.attrs, Loop) or graph.is_output(node.outputs[0]):
        return None
    ops = graph.reader_ops(node.outputs[0])
    readers = graph.readers(node.outputs[0], "transpose")
    perms = {Transpose.of(reader).perm for reader in readers}
    if len(perms) != 1 or not {*ops} <= {"transpose", "loop"}:
        return None
    if any(value in graph.makers for value in whole_operands(node, graph)):
        return None  # better fused into what makes it, in its layout
    perm = perms.pop()
    if "loop" in ops and all({*graph.reader_ops(r.outputs[0])} <= {"loop", "transpose"} for r in readers):
        return None  # loops read through transpositions anyway; they would turn it to and fro

    def stored(r: Editor, n: Node) -> None:
        kind = r.types[n.outputs[0]]
        made = r.value(f"{n.outputs[0]}.s", kind.dtype, [kind.shape[dim] for dim in perm])
        expr = Loop.of(n).expr.with_axes({dim: axis(number) for number, dim in enumerate(perm)})
        r.node("loop", n.inputs, [made], replace(Loop.of(n), expr=expr), like=n)
        r.node("transpose", [made], n.outputs, Transpose(perm=inverse(perm)), like=n)

    return stored


def absorb_transposes(graph: Graph) -> Graph:
    """Make loops and products read through the transpositions before them."""
    producers = graph.producers()
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if isinstance(node.attrs, Matmul):
            rewriter.keep(_read_through(node, graph, producers))
            continue
        if not isinstance(node.attrs, Loop):
            rewriter.keep(node)
            continue
        inputs, expr = list(node.inputs), node.attrs.expr
        for number, value in enumerate(node.inputs):
            maker = producers.get(value)
            if maker is None or not isinstance(maker.attrs, Transpose):
                continue
            inputs[number] = maker.inputs[0]
            expr = _through(expr, number, inverse(Transpose.of(maker).perm))
        rewriter.keep(replace(node, inputs=tuple(inputs), attrs=replace(node.attrs, expr=expr)))
    return rewriter.finish()


def _through(expr: Expr, number: int, turned: Shape) -> Expr:
    """Replace the loads of a transposed operand by loads of the original."""

    def through(part: Expr) -> Expr:
        if part.op == "load" and part.value == number:
            return replace(part, args=tuple(part.args[dim] for dim in turned))
        return part

    return expr.rewrite(through)


def _read_through(node: Node, graph: Graph, producers: dict[str, Node]) -> Node:
    """Make a product read its operands' elements before their transposition."""
    inputs, attrs = list(node.inputs), Matmul.of(node)
    strides = [attrs.a, attrs.b]
    for number, own in enumerate(strides):
        maker = producers.get(node.inputs[number])
        if maker is None or not isinstance(maker.attrs, Transpose):
            continue
        shape = graph.types[maker.inputs[0]].shape
        before = [math.prod(shape[dim + 1 :]) for dim in Transpose.of(maker).perm]
        after = own[len(own) - len(before) :]
        moved = (step and whole for step, whole in zip(after, before, strict=True))  # 0: it is broadcast
        strides[number] = (*own[: len(own) - len(before)], *moved)
        inputs[number] = maker.inputs[0]
    return replace(node, inputs=tuple(inputs), attrs=replace(attrs, a=strides[0], b=strides[1]))
