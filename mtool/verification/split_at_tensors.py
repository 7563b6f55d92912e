"""A network cut at tensors that are known: they become inputs, and what computes each of them becomes an output.

So each part is given what the reference has there, and nothing of one part's rounding reaches the next. mtool's own
operators, which onnxruntime does not have, are taken out: what they make is known.
"""

import onnx
from onnx import helper

from mtool.compiler.frontend.problems import OWN
from mtool.stages.samples import Sample


def computed_name(name: str) -> str:
    """Return the name of the output that is computed for a tensor."""
    return f"{name}/computed"


def operator_of(node: onnx.NodeProto) -> str:
    """Return the name that the nodes of one operator share, without the number of each."""
    return str(node.name.rpartition(" ")[0])


def cut(graph: onnx.GraphProto, known: Sample) -> dict[str, str]:
    """Cut a graph at every tensor that is known; return the operator that computes each, but for mtool's own."""
    kept = [node for node in graph.node if node.domain != OWN]
    own = {name for node in graph.node if node.domain == OWN for name in node.output}
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)
    makers = {}
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name in known:
                node.output[index] = computed_name(name)
                makers[name] = operator_of(node)
    present = {value.name for value in graph.input}
    graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(known[name].dtype), known[name].shape)
        for name in (*makers, *sorted(own & known.keys()))
        if name not in present
    )
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=computed_name(name)) for name in makers)
    return makers
