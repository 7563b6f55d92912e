"""Give the nodes short, stable names in the order of the graph: conv_0, dw_1, pw_2, dense_3."""

from dataclasses import replace

from mtool.ir import Graph, Node
from mtool.ops.conv2d.geometry import Conv


def name_nodes(graph: Graph) -> Graph:
    """Name nodes by their kind and number; views, which make no code, keep theirs."""
    nodes: list[Node] = []
    number = 0
    for node in graph.nodes:
        if node.op == "view":
            nodes.append(replace(node, name=f"view {len(nodes)}"))
            continue
        nodes.append(replace(node, name=f"{_stem(node, graph)}_{number}"))
        number += 1
    return replace(graph, nodes=tuple(nodes))


def _stem(node: Node, graph: Graph) -> str:
    if node.op == "conv2d":
        conv = Conv.of(node, graph)
        return "dw" if conv.is_depthwise else "pw" if conv.kernel == (1, 1) else "conv"
    if node.op == "loop":
        words = [
            word for word in str(node.attrs.get("label", "loop")).split("+") if not word.endswith("quantizelinear")
        ]
        label = words[0] if words else str(node.attrs.get("label", "loop")).split("+")[0]
        return {"quantizelinear": "quantise", "dequantizelinear": "dequantise"}.get(label, label)
    return {"pool2d": "pool", "template": "direct"}.get(node.op, node.op)  # a name that projects have is kept
