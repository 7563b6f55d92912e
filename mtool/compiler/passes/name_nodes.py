"""Short, stable names for the nodes, in the order of the graph: conv_0, dw_1, pw_2, dense_3."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from mtool.compiler.ir import Control, Graph, Node, View
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.template import TemplateKernel


def name_nodes(graph: Graph) -> Graph:
    """Name nodes by kind and number; nodes of inner graphs are numbered after the node that contains them.

    Views keep their names, as they have no code, and so do backends' regions, which use theirs.
    """
    return _named(graph, itertools.count())


def _named(graph: Graph, numbers: Iterator[int]) -> Graph:
    nodes: list[Node] = []
    external_names = {node.name for node in graph.nodes if isinstance(node.attrs, External)}
    for node in graph.nodes:
        if isinstance(node.attrs, View):
            nodes.append(replace(node, name=f"view {len(nodes)}"))
            continue
        if isinstance(node.attrs, External):
            nodes.append(node)
            continue
        stem = _stem(node, graph)
        name = next(name for number in numbers if (name := f"{stem}_{number}") not in external_names)
        named = replace(node, name=name)
        if isinstance(node.attrs, Control):
            bodies = [_named(body, numbers) for body in node.attrs.bodies]
            named = replace(named, attrs=node.attrs.with_bodies(bodies))
        nodes.append(named)
    return replace(graph, nodes=tuple(nodes))


def _stem(node: Node, graph: Graph) -> str:
    if isinstance(node.attrs, Conv2d):
        conv = Conv.of(node, graph)
        return "dw" if conv.is_depthwise else "pw" if conv.kernel == (1, 1) else "conv"
    if isinstance(node.attrs, Loop):
        words = (node.attrs.label or "loop").split("+")
        label = next((word for word in words if not word.endswith("quantizelinear")), words[0])
        label = label.rpartition(".")[2]  # of an operator in a custom domain: com.acme.swishy
        return {"quantizelinear": "quantize", "dequantizelinear": "dequantize"}.get(label, label)
    if isinstance(node.attrs, TemplateKernel):
        return node.attrs.label
    return {"pool2d": "pool"}.get(node.op, node.op)
