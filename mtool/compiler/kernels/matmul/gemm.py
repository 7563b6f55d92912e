"""Batched products of two activations.

The inner loops for SIMD32 and the layout of the packed columns: crt/include/mt_dsp_gemm_int8.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dsp import LIMITS, UNROLLS
from mtool.compiler.kernels.epilogues import EpilogueText, Int8Epilogue
from mtool.compiler.kernels.expressions import kernel_of
from mtool.compiler.kernels.matmul.node import Product
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.sum_schedule import E, SumSchedule
from mtool.compiler.kernels.target import Target

INPUTS = {0: "a", 1: "b"}


class ProductSchedule(SumSchedule[Product, E]):
    """A schedule that answers for the numbers of a product and its epilogue."""

    def sizes(self, node: Node, graph: Graph) -> Product:
        """The numbers."""
        return Product.of(node, graph)


class Gemm(ProductSchedule[EpilogueText]):
    """One output at a time."""

    name = "c99_product"
    forms = (EpilogueText,)

    def instructions(self, product: Product, epilogue: EpilogueText, target: Target) -> float:
        """7 instructions a multiply-accumulate, 20 an output."""
        return float(product.batches * product.rows * product.columns * (7 * product.depth + 20))

    def kernel(self, product: Product, epilogue: EpilogueText, target: Target) -> Kernel:
        """Write the function."""
        node, graph = epilogue.node, epilogue.graph
        body = template(
            "kernels/matmul/c99/gemm.c.j2",
            product=product,
            types=tuple(graph.types[value].dtype.c for value in node.inputs[:2]),
            flash=tuple("MT_FLASH " if value in graph.constants else "" for value in node.inputs[:2]),
            epilogue=epilogue,
            indices=product.indices,
        )
        return kernel_of(node, graph, body, epilogue.expr, inputs=INPUTS)


def dot_cost(depth: int, unroll: int) -> int:
    """Return instructions of 3 x 2 dot products: 16 for four steps of k, 3 an iteration."""
    return round_up(depth, unroll) // unroll * (unroll * 4 + 3)


@dataclass(frozen=True)
class GemmInt8(ProductSchedule[Int8Epilogue]):
    """Both operands are widened to int16, less their zero points: columns a block at a time, then three rows."""

    name = "dsp_product"
    core = "has_dsp"
    forms = (Int8Epilogue,)

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")
    block_bytes: int = knob(4096, 1024, 16384, meaning="of the arena for widened columns, if more than two fit")

    def fits(self, product: Product, epilogue: Int8Epilogue) -> bool:
        """int8 and int8 to int8, with one scale."""
        return epilogue.graph.types[epilogue.node.inputs[1]].dtype is DType.INT8 and epilogue.scale is not None

    def _unroll(self, depth: int) -> int:
        return self.unroll or min(UNROLLS, key=lambda unroll: dot_cost(depth, unroll))

    def _padded(self, product: Product) -> int:
        return round_up(product.depth, self._unroll(product.depth))

    def _block(self, product: Product) -> int:
        """Columns that are widened at a time: an even number, as equal as can be."""
        most = max(self.block_bytes // (2 * self._padded(product)) // 2 * 2, 2)
        blocks = -(-product.columns // most)
        return round_up(-(-product.columns // blocks), 2)

    def _staged(self, product: Product, epilogue: Int8Epilogue) -> int:
        """Results that are not stored directly: all three rows', or those of the unwanted ones."""
        stored_directly = epilogue.rest is None and product.columns % 2 == 0
        return self._block(product) * (3 if not stored_directly else 1 if product.rows % 3 else 0)

    def scratch(self, product: Product, epilogue: Int8Epilogue) -> int:
        """Three rows, a block of columns with two words more a pair, and staged results."""
        depth, block = self._padded(product), self._block(product)
        return 6 * depth + block // 2 * (4 * depth + 8) + self._staged(product, epilogue)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None: every row is multiplied with every column."""
        return ()

    def instructions(self, product: Product, epilogue: Int8Epilogue, target: Target) -> float:
        """The dot products, 50 for two columns of three rows, 2 a widened element (4 of a stride)."""
        depth = self._padded(product)
        tiles = -(-product.rows // 3) * (round_up(product.columns, 2) // 2)
        blocks = -(-product.columns // self._block(product))
        after = 6 * product.rows * product.columns if epilogue.rest is not None else 0
        each = [2 if step == 1 else 4 for step in (product.a_steps[1], product.b_steps[0])]
        widening = depth * (product.columns * each[1] + blocks * product.rows * each[0])
        return product.batches * (tiles * (dot_cost(product.depth, self._unroll(depth)) + 50) + widening + after)

    def kernel(self, product: Product, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        assert epilogue.scale is not None
        body = template(
            "kernels/matmul/dsp/gemm_int8.c.j2",
            product=product,
            epilogue=epilogue,
            scale=epilogue.scale[0].item(),
            unroll=self._unroll(product.depth),
            depth=self._padded(product),
            block=self._block(product),
            staged=self._staged(product, epilogue) > 0,
            full=(epilogue.how.low, epilogue.how.high) == LIMITS,
            rest=epilogue.rest_text,
        )
        headers = ("mt_dsp_gemm_int8.h",)
        return kernel_of(
            epilogue.node, epilogue.graph, body, epilogue.rest, scratch="int32_t", inputs=INPUTS, headers=headers
        )


SCHEDULES = (Gemm(), GemmInt8())
