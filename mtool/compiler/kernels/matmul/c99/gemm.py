"""Batched products in portable C."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.epilogues.expression import EpilogueText
from mtool.compiler.kernels.matmul.node import Matmul
from mtool.compiler.kernels.matmul.operands import Product, kernel
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


class Gemm(BaseSchedule):
    """One output at a time."""

    name = "c99_product"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """7 instructions a multiply-accumulate, 20 an output."""
        return float(graph.types[node.outputs[0]].count * (7 * Matmul.of(node).depth + 20))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        product, epilogue = Product.of(node, graph), EpilogueText(node, graph)
        body = template(
            "kernels/matmul/c99/gemm.c.j2",
            product=product,
            types=tuple(graph.types[value].dtype.c for value in node.inputs[:2]),
            flash=tuple("MT_FLASH " if value in graph.constants else "" for value in node.inputs[:2]),
            epilogue=epilogue,
            indices=product.indices,
        )
        return kernel(node, graph, body, epilogue.expr)


SCHEDULE = Gemm()
