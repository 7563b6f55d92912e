"""Averages over a whole image as averages of bands of rows, which row-wise execution can make one after the other.

A global average reads all rows at once, so that what it reads would be whole. The sums of a few rows each are far
smaller, and integers can be added in any order.
"""

from dataclasses import replace

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import Reduction, axis, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.pool2d.node import Pool2d


def with_split_pools(graph: Graph) -> Graph:
    """Return a graph in which averages over whole images of integers are made of sums over bands of their rows."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rows = _band(node, graph) if isinstance(node.attrs, Pool2d) else 0
        if rows:
            _split(rewriter, node, rows)
        else:
            rewriter.nodes.append(node)
    return rewriter.finish()


def _band(node: Node, graph: Graph) -> int:
    """Return how many rows a band has, for the fewest bytes of a band's rows and of all sums; 0: not to be split."""
    attrs, kind = Pool2d.of(node), graph.types[node.inputs[0]]
    if attrs.kind != "average" or attrs.expr is None or kind.dtype.is_float or kind.shape[0] != 1:
        return 0
    height, width = kind.shape[1:3]
    is_whole = (attrs.kernel, attrs.dilations, attrs.pads) == ((height, width), (1, 1), (0, 0, 0, 0))
    reads = any(part.op == "load" and part.value == 0 for part in attrs.expr.walk())
    if not is_whole or reads or graph.types[node.outputs[0]].shape[1:3] != (1, 1):
        return 0
    size = {
        rows: rows * width * kind.dtype.size + 4 * (height // rows) for rows in range(1, height) if not height % rows
    }
    best = min(size, key=lambda rows: size[rows], default=0)
    return best if best and height // best > 1 and size[best] < height * width * kind.dtype.size else 0


def _split(rewriter: Rewriter, node: Node, rows: int) -> None:
    attrs, graph = Pool2d.of(node), rewriter.graph
    _, height, width, channels = graph.types[node.inputs[0]].shape
    bands = height // rows
    sums = rewriter.value(f"{node.outputs[0]} sums", DType.INT32, (1, bands, 1, channels))
    own = replace(
        attrs,
        kernel=(rows, width),
        strides=(rows, width),
        limits=(height, width),
        expr=Expr("acc", DType.INT32),
        label="",
    )
    rewriter.nodes.append(replace(node, inputs=node.inputs[:1], outputs=(sums,), attrs=own))
    each = load(0, DType.INT32, (axis(0), axis(4), axis(2), axis(3)))
    total = Expr("reduce", DType.INT32, (each,), Reduction("add", ((4, bands),)))
    assert attrs.expr is not None
    expr = attrs.expr.rewrite(lambda part: total if part.op == "acc" else part)
    name = rewriter.unique(f"{node.name}_mean")
    rest = Loop(expr=expr, label="+".join(filter(None, ["mean", attrs.label])))
    rewriter.nodes.append(Node("loop", name, (sums, *node.inputs[1:]), node.outputs, rest, node.origins))
