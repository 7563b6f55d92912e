"""Convert int8 weights of float activations to float32: they take four times the flash, and use the float kernels."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.epilogue import real_numbers
from mtool.compiler.operators.quantize import DEQUANTIZE, stored_constant
from mtool.compiler.operators.window import CONV

PRODUCTS = (CONV, "ConvTranspose", "Gemm", "MatMul")


def with_float32_weights(graph: Graph) -> Graph:
    """Replace the dequantization of constant weights by its result, where only float products read it."""
    makers = {value: node for node in graph.nodes for value in node.outputs}
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for index, value in enumerate(node.inputs):
            readers.setdefault(value, []).append((node, index))
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        found = readers.get(node.outputs[0], [])
        made = None
        inner = node.op == DEQUANTIZE and node.outputs[0] not in graph.outputs
        if inner and found and all(_is_of_floats(reader, index, makers) for reader, index in found):
            made = _dequantized(node, graph)
        if made is None:
            rewriter.keep(node)
        else:
            rewriter.rename(node.outputs[0], rewriter.constant(f"{node.name}/float32", made))
    return rewriter.finish()


def _is_of_floats(node: Node, index: int, makers: dict[str, Node]) -> bool:
    """Whether an operand is the weights of a product whose activations are real floats, not dequantized integers."""
    maker = makers.get(node.inputs[0])
    return node.op in PRODUCTS and index == 1 and (maker is None or maker.op != DEQUANTIZE)


def _dequantized(node: Node, graph: Graph) -> Array | None:
    """Return the real numbers of an 8-bit constant with per-tensor or per-axis scales; None for anything else."""
    found = stored_constant(node, graph.constants)
    return real_numbers(*found) if found is not None and found[0].dtype.itemsize == 1 else None
