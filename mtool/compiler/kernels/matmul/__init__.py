"""Batched products of two 8-bit activations (ai.onnx MatMul between quantizations, QLinearMatMul): attention.

Internal form `matmul`: inputs a and b, whose elements are found by strides, then what the epilogue reads. acc is the
int32 sum of (a - its zero point) * (b - its zero point). The output is [..., M, N].
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Graph, Node, WithEpilogue
from mtool.compiler.kernels.dsp import LIMITS, UNROLLS
from mtool.compiler.kernels.epilogues import EpilogueText, Int8Epilogue
from mtool.compiler.kernels.expressions import kernel_of
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel, KernelOp, Target, knob
from mtool.compiler.kernels.specification import Operand, Specification, always
from mtool.compiler.kernels.sum_schedule import E, SumSchedule


class Matmul(WithEpilogue):
    """A batched product of 8-bit integers, whose elements are found by strides.

    depth: products of one output.
    a, b: the operands' strides in elements: along the outer dimensions of the output (0: the operand is broadcast),
        then along (rows, depth) of a, (depth, columns) of b.
    points: the zero points of a and b.
    """

    depth: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    points: tuple[int, int]


def _agree(node: Node, graph: Graph) -> None:
    """Check that strides stay inside the operands."""
    attrs, shape = Matmul.of(node), graph.types[node.outputs[0]].shape
    *outer, rows, columns = shape
    for value, strides, sizes in (
        (node.inputs[0], attrs.a, (*outer, rows, attrs.depth)),
        (node.inputs[1], attrs.b, (*outer, attrs.depth, columns)),
    ):
        kind, where = graph.types[value], f"{node.op} {node.name} of {list(shape)}"
        assert len(strides) == len(sizes), f"{where} has {len(strides)} strides of {value}"
        last = sum(stride * (size - 1) for stride, size in zip(strides, sizes, strict=True))
        assert last < kind.count, f"{where} reads element {last} of {value}, which is {kind}"


_FACTORS = (DType.INT8, DType.UINT8)
SPECIFICATION = Specification(Matmul, (Operand("a", dtypes=_FACTORS), Operand("b", dtypes=_FACTORS)), agree=_agree)


# The numbers of one batched product.


@frozen
class Product:
    """Sizes, the zero points of both operands, and their strides in elements.

    `batch` has the sizes of the outer dimensions, `a_batch` and `b_batch` the strides along them. `a_steps` are those
    along (rows, depth), `b_steps` along (depth, columns).
    """

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    points: tuple[int, int]
    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    a_steps: tuple[int, int]
    b_steps: tuple[int, int]

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self:
        """Return the numbers of a matmul node."""
        *batch, rows, columns = graph.types[node.outputs[0]].shape
        attrs = Matmul.of(node)
        a, b = attrs.a, attrs.b
        return cls(
            tuple(batch), rows, attrs.depth, columns, attrs.points,
            a[:-2], b[:-2], (a[-2], a[-1]), (b[-2], b[-1]),
        )  # fmt: skip

    @property
    def batches(self) -> int:
        """The number of products."""
        return math.prod(self.batch)

    @property
    def indices(self) -> dict[int, str]:
        """The C of the output's axes in the loops of the templates."""
        outer = {dim: f"n{dim}" if size > 1 else "0" for dim, size in enumerate(self.batch)}
        return {**outer, len(self.batch): "m", len(self.batch) + 1: "n"}


INPUTS = {0: "a", 1: "b"}


class ProductSchedule(SumSchedule[Product, E]):
    """A schedule that depends on a product's numbers and its epilogue."""

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


class Int8Product(ProductSchedule[Int8Epilogue]):
    """A product of int8 by int8, scaled to int8 by one float."""

    forms = (Int8Epilogue,)
    header: ClassVar[str]

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None: every row is multiplied with every column."""
        return ()

    def values(self, product: Product, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """Return what the template reads besides the product, its epilogue and its scale."""
        raise NotImplementedError

    def kernel(self, product: Product, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        assert epilogue.scale is not None
        body = template(
            self.template,
            product=product,
            epilogue=epilogue,
            scale=epilogue.scale[0].item(),
            rest=epilogue.rest_text,
            **self.values(product, epilogue, target),
        )
        return kernel_of(
            epilogue.node,
            epilogue.graph,
            body,
            epilogue.rest,
            scratch="int32_t",
            inputs=INPUTS,
            headers=(self.header,),
        )


@dataclass(frozen=True)
class GemmInt8(Int8Product):
    """Both operands are widened to int16, less their zero points: columns a block at a time, then three rows."""

    name = "dsp_product"
    core = "has_dsp_and_fpu"
    template = "kernels/matmul/dsp/gemm_int8.c.j2"
    header = "mt_dsp_gemm_int8.h"

    unroll: int = knob(0, *UNROLLS, meaning="steps of k per iteration; auto: the number with the fewest instructions")
    block_bytes: int = knob(4096, 1024, 16384, meaning="bytes of the arena for widened columns, if more than two fit")

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

    def instructions(self, product: Product, epilogue: Int8Epilogue, target: Target) -> float:
        """The dot products, 50 for two columns of three rows, 2 a widened element (4 of a stride)."""
        depth = self._padded(product)
        tiles = -(-product.rows // 3) * (round_up(product.columns, 2) // 2)
        blocks = -(-product.columns // self._block(product))
        after = 6 * product.rows * product.columns if epilogue.rest is not None else 0
        costs = [2 if step == 1 else 4 for step in (product.a_steps[1], product.b_steps[0])]
        widening = depth * (product.columns * costs[1] + blocks * product.rows * costs[0])
        return product.batches * (tiles * (dot_cost(product.depth, self._unroll(depth)) + 50) + widening + after)

    def values(self, product: Product, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The sizes, and whether results are staged or clamped."""
        return {
            "unroll": self._unroll(product.depth),
            "depth": self._padded(product),
            "block": self._block(product),
            "staged": self._staged(product, epilogue) > 0,
            "full": (epilogue.how.low, epilogue.how.high) == LIMITS,
        }


@dataclass(frozen=True)
class MveProduct(Int8Product):
    """Columns are packed, a block at a time; two rows are multiplied with two of them."""

    name = "mve_product"
    core = "has_mve"
    template = "kernels/matmul/mve/product_int8.c.j2"
    header = "mt_mve_product_int8.h"

    block_bytes: int = knob(4096, 1024, 16384, meaning="bytes of the arena for packed columns, if more than two fit")

    def fits(self, product: Product, epilogue: Int8Epilogue) -> bool:
        """int8 and int8 to int8, with one scale; offsets of eight elements fit 16 bits."""
        types, inputs = epilogue.graph.types, epilogue.node.inputs
        near = 7 * max(product.a_steps[1], product.b_steps[0]) < 2**16
        return near and all(types[name].dtype is DType.INT8 for name in inputs[:2]) and epilogue.scale is not None

    def _block(self, product: Product) -> int:
        """Columns that are packed at a time: an even number."""
        most = max(self.block_bytes // product.depth // 2 * 2, 2)
        return min(most, round_up(product.columns, 2))

    def scratch(self, product: Product, epilogue: Int8Epilogue) -> int:
        """A block of columns with their starts and two rows of sums, two rows that are not contiguous, results."""
        block, depth = self._block(product), product.depth
        lines = 0 if product.a_steps[1] == 1 else 2 * depth
        return 12 * block + block * depth + lines + (block if epilogue.rest is not None else 0)

    def instructions(self, product: Product, epilogue: Int8Epilogue, target: Target) -> float:
        """9 for 16 steps of k of two rows by two columns, 22 for each of those, and 3.5 an output; the packing."""
        vectors, eights = -(-product.depth // 16), -(-product.depth // 8)
        blocks, pairs = -(-product.columns // self._block(product)), -(-product.rows // 2)
        products = pairs * -(-product.columns // 2) * (9 * vectors + 22)
        rows = 0 if product.a_steps[1] == 1 and not product.points[1] else blocks * (10 + 7 * eights)
        after = 3.5 + (6 if epilogue.rest is not None else 0)
        packing = product.columns * (15 + 7 * eights)
        return product.batches * (products + packing + product.rows * (rows + 12 * blocks + after * product.columns))

    def values(self, product: Product, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The columns of a block."""
        return {"block": self._block(product)}


def _macs(node: Node, graph: Graph) -> int:
    return graph.types[node.outputs[0]].count * Matmul.of(node).depth


KERNEL = KernelOp(SPECIFICATION, always("matmul"), (Gemm(), GemmInt8(), MveProduct()), _macs)
