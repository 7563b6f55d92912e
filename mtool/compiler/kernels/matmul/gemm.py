"""Batched products of int8 for SIMD32: three rows by two columns.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemm_int8.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dsp import UNROLLS
from mtool.compiler.kernels.epilogues import EpilogueText, Int8Epilogue
from mtool.compiler.kernels.matmul.node import Matmul, Product, kernel
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel, Schedule, knob
from mtool.compiler.kernels.target import Target

# Batched products in portable C.


class Gemm(Schedule):
    """One output at a time."""

    name = "c99_product"

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


HEADER = "mt_dsp_gemm_int8.h"


def dot_cost(depth: int, unroll: int) -> int:
    """Return instructions of 3 x 2 dot products: 16 for four steps of k, 3 an iteration."""
    return round_up(depth, unroll) // unroll * (unroll * 4 + 3)


@dataclass(frozen=True)
class GemmInt8(Schedule):
    """Both operands are widened to int16, less their zero points: columns a block at a time, then three rows."""

    name = "dsp_product"

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")
    block_bytes: int = knob(4096, 1024, 16384, meaning="of the arena for widened columns, if more than two fit")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 and int8 to int8, with one scale."""
        epilogue, kinds = Int8Epilogue.of(node, graph), [graph.types[value].dtype for value in node.inputs[:2]]
        return (
            target.has_dsp and kinds == [DType.INT8, DType.INT8] and epilogue is not None and epilogue.scale is not None
        )

    def _unroll(self, depth: int) -> int:
        return self.unroll or min(UNROLLS, key=lambda unroll: dot_cost(depth, unroll))

    def _padded(self, product: Product) -> int:
        return round_up(product.depth, self._unroll(product.depth))

    def _block(self, product: Product) -> int:
        """Columns that are widened at a time: an even number, as equal as can be."""
        most = max(self.block_bytes // (2 * self._padded(product)) // 2 * 2, 2)
        blocks = -(-product.columns // most)
        return round_up(-(-product.columns // blocks), 2)

    def _staged(self, product: Product, epilogue: Int8Epilogue | None) -> int:
        """Results that are not stored directly: all three rows', or those of the unwanted ones."""
        block = self._block(product)
        stored_directly = (epilogue is None or epilogue.rest is None) and product.columns % 2 == 0
        return block * (3 if not stored_directly else 1 if product.rows % 3 else 0)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three rows, a block of columns with two words more a pair, and staged results."""
        product = Product.of(node, graph)
        depth, block = self._padded(product), self._block(product)
        return 6 * depth + block // 2 * (4 * depth + 8) + self._staged(product, Int8Epilogue.of(node, graph))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None: every row is multiplied with every column."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The dot products, 50 for two columns of three rows, 2 a widened element (4 of a stride)."""
        product, epilogue = Product.of(node, graph), Int8Epilogue.of(node, graph)
        depth = self._padded(product)
        tiles = -(-product.rows // 3) * (round_up(product.columns, 2) // 2)
        blocks = -(-product.columns // self._block(product))
        after = 6 * product.rows * product.columns if epilogue is not None and epilogue.rest is not None else 0
        each = [2 if step == 1 else 4 for step in (product.a_steps[1], product.b_steps[0])]
        widening = depth * (product.columns * each[1] + blocks * product.rows * each[0])
        return product.batches * (tiles * (dot_cost(product.depth, self._unroll(depth)) + 50) + widening + after)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        product, epilogue = Product.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None and epilogue.scale is not None
        body = template(
            "kernels/matmul/dsp/gemm_int8.c.j2",
            product=product,
            epilogue=epilogue,
            scale=epilogue.scale[0].item(),
            unroll=self._unroll(product.depth),
            depth=self._padded(product),
            block=self._block(product),
            staged=self._staged(product, epilogue) > 0,
            full=(epilogue.how.low, epilogue.how.high) == (-128, 127),
            rest=epilogue.rest_text,
        )
        return kernel(node, graph, body, epilogue.rest, "int32_t", (HEADER,))


SCHEDULES = (Gemm(), GemmInt8())
