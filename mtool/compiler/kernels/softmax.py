"""Softmax and LogSoftmax (ai.onnx 1, 11, 13), float and integer.

Internal form `softmax`: input x[M,N] along the last axis; acc is the float32 result. For integers,
exp(scale * (q - max)) has only 256 values, which are in a table: input 1, a constant.
"""

import math

import numpy as np

from mtool.compiler.ir import Attributes, DType, Graph, Node, WithEpilogue
from mtool.compiler.ir.scalar import Requantize, literal
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.expressions import kernel_of, needs_math
from mtool.compiler.kernels.mve.loops import NotVectorsError, vectors_of
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel, KernelOp, Schedule, Target
from mtool.compiler.kernels.specification import Operand, Specification

# The nodes of softmaxes: `softmax`.


class SoftmaxOfRows(WithEpilogue):
    """A softmax along the last of two dimensions.

    log: its logarithm, for floats.
    has_table: the input is an 8-bit integer, and the second operand is a table of the exponentials of all differences
        from the largest: exp(scale * d) for d = -255 … 0.
    fixed: in fixed point, with a table of int32; acc is an integer in steps of 2^-bits.
    """

    log: bool = False
    has_table: bool = False
    fixed: bool = False
    bits: int = 8


def _has_table(attrs: Attributes) -> bool:
    return isinstance(attrs, SoftmaxOfRows) and attrs.has_table


def _agree(node: Node, graph: Graph) -> None:
    """Check that a table is for 8-bit integers, and is int32 in fixed point."""
    attrs, kind = SoftmaxOfRows.of(node), graph.types[node.inputs[0]]
    if attrs.has_table:
        table = graph.types[node.inputs[1]]
        right = kind.dtype.is_integer and kind.dtype.bits == 8 and (table.dtype is DType.INT32) == attrs.fixed
        assert right, f"{node.op} {node.name} has a table {table} of {kind}, fixed={attrs.fixed}"


SPECIFICATION = Specification(
    SoftmaxOfRows,
    (
        Operand("input", "MN", is_in_arena=True),
        Operand("exponentials", "T", (DType.FLOAT32, DType.INT32), is_constant=True, is_given=_has_table),
    ),
    layout="MN",
    agree=_agree,
)


def _label(node: Node, graph: Graph) -> str:
    return "log softmax" if SoftmaxOfRows.of(node).log else "softmax"


# Softmax in fixed point, in portable C.


# Softmax in portable C.
BLOCK = 16  # terms of a block of the sum, of looked-up exponentials
LONGEST = 128  # elements of a row in integers
MOST_BITS = 26  # of a power: more make shares less exact on cores without 64-bit products
TABLE_BYTES = 1024
DISTANCES = "d = -255 to 0, how far an element is below the largest of its row"


class Softmax(Schedule):
    """Row by row: the maximum, the sum of the exponentials, the quotients.

    Float exponentials are stored in place of the quotients; those of integers are looked up twice.
    """

    name = "c99_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Results of float32."""
        return not SoftmaxOfRows.of(node).fixed

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input: each element is read for the last time when its quotient is written."""
        same = graph.types[node.inputs[0]].dtype.size == graph.types[node.outputs[0]].dtype.size
        return (0,) if same else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """80 instructions an element; of floats without an FPU 800."""
        per_element = 80.0 if target.has_float or SoftmaxOfRows.of(node).fixed else 800.0
        return per_element * graph.types[node.outputs[0]].count

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue, log, integer = EpilogueText(node, graph), SoftmaxOfRows.of(node).log, x.dtype.is_integer
        # an operand may share the output's storage, and would be read after the exponentials are stored there
        residuals = any(node.inputs[number] not in graph.constants for number in epilogue.names)
        body = template(
            "kernels/c99/softmax.c.j2",
            rows=x.shape[0],
            length=x.shape[1],
            x=x.dtype.c,
            kind=x.dtype.kind[0] + str(x.dtype.size * 8),
            integer=integer,
            block=BLOCK if integer else 8,
            joined=graph.is_sample,
            log=log,
            stores=not (integer or log or residuals) and y.dtype is DType.FLOAT32,
            epilogue=epilogue,
        )
        data = {"exponential": graph.constants[node.inputs[1]]} if integer else {}
        layouts, math = {"exponential": f"exp(scale * d) for {DISTANCES}"}, not integer or needs_math(epilogue.expr)
        return kernel_of(node, graph, body, epilogue.expr, data, layouts=layouts, needs_math=math)


class HeliumSoftmax(Softmax):
    """The largest elements and the sums of four rows at once, then the quotients of each row, four at once."""

    name = "mve_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8-bit integers with a table of float exponentials, and results that take nothing but their quotients."""
        attrs = SoftmaxOfRows.of(node)
        return target.has_mve and attrs.has_table and not attrs.fixed and self._value(node, graph) is not None

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """8 instructions an element, and 60 for four rows."""
        rows, length = graph.types[node.inputs[0]].shape
        return (8.0 * length + 15.0) * -(-rows // 4) * 4

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        x, y, value = graph.types[node.inputs[0]], graph.types[node.outputs[0]], self._value(node, graph)
        (rows, length), whole = x.shape, x.shape[0] // 4 * 4
        store = (
            ("mt_mve_store_i8((int8_t *)(", ")") if y.dtype is DType.UINT8 else (f"mt_mve_store_{y.dtype.code}(", "")
        )
        body = template(
            "kernels/mve/softmax.c.j2",
            parts=[part for part in ((0, whole, 4), (whole, rows, rows - whole)) if part[0] < part[1]],
            length=length, x=x.dtype.c, kind=x.dtype.code, block=BLOCK, value=value, store=store[0], closed=store[1],
        )  # fmt: skip
        data = {"exponential": graph.constants[node.inputs[1]]}
        layouts = {"exponential": f"exp(scale * d) for {DISTANCES}"}
        return kernel_of(node, graph, body, None, data, layouts=layouts, headers=("mt_mve_loop.h",))

    @staticmethod
    def _value(node: Node, graph: Graph) -> str | None:
        """Return the C of the results of quotients `acc`."""
        try:
            return vectors_of(node, graph)
        except NotVectorsError:
            return None


class SoftmaxFixed(Softmax):
    """Row by row in fixed point: gemmlowp's, the quotients in steps of 1/256 or 1/65536."""

    name = "c99_fixed_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8-bit integers with a table of exponentials of int32."""
        return SoftmaxOfRows.of(node).fixed

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        x, epilogue = graph.types[node.inputs[0]], EpilogueText(node, graph)
        kind, bits, (rows, length) = x.dtype.kind[0] + str(x.dtype.size * 8), SoftmaxOfRows.of(node).bits, x.shape
        body = template(
            "kernels/c99/softmax_fixed.c.j2",
            rows=rows, length=length, x=x.dtype.c, kind=kind, bits=bits, epilogue=epilogue,
        )  # fmt: skip
        layouts = {"exponential": f"exp(scale * d) in steps of 2^-31 for {DISTANCES}"}
        data = {"exponential": graph.constants[node.inputs[1]]}
        return kernel_of(node, graph, body, epilogue.expr, data, headers=("mt_fixed.h",), layouts=layouts)


class SoftmaxInt8(Softmax):
    """Row by row in integers, of int8 to 8 bits; near a half the row's float sum decides."""

    name = "c99_integer_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Rows of 2 to 128 int8 with a table of floats, whose results are only quantized, in steps of up to 1/512."""
        attrs, x = SoftmaxOfRows.of(node), graph.types[node.inputs[0]]
        if attrs.log or attrs.fixed or x.dtype is not DType.INT8 or not 2 <= x.shape[1] <= LONGEST:
            return False
        if graph.is_sample or target.is_8_bit:
            return False
        part = attrs.epilogue
        plain = part.op == "quantize" and part.args[0].op == "acc" and all(arg.op == "const" for arg in part.args[1:])
        return plain and graph.types[node.outputs[0]].dtype.size == 1 and 2.0**-9 <= part.args[1].value <= 1

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Count 25 instructions an element, a division a row, and the second table."""
        rows, length = graph.types[node.inputs[0]].shape
        return rows * (25.0 * length + 80) + TABLE_BYTES * price_of_code(node, graph)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        (rows, length), y = graph.types[node.inputs[0]].shape, graph.types[node.outputs[0]].dtype
        part, exponential = SoftmaxOfRows.of(node).epilogue, graph.constants[node.inputs[1]]
        scale, zero_point = float(part.args[1].value), int(part.args[2].value)
        low, high = part.value or part.dtype.limits
        bits = min(MOST_BITS, 31 - math.ceil(math.log2(length)))
        places = min(16, bits - 2 + math.floor(math.log2(scale)))
        # of sums: integers' rounding, float32's of 16 terms and of a few operations
        exact = math.floor(-math.log2(length * 2.0 ** -(bits + 1) + 24 * 2.0**-24))
        apart = 4 + (math.ceil(2**places / scale) >> exact) + math.ceil(2.0 ** (places - bits) / scale)
        body = template(
            "kernels/c99/softmax_int8.c.j2",
            rows=rows, length=length, y=y.c, how=Requantize(zero_point, low, high, bounded=True), bits=bits,
            places=places, exact=exact, apart=apart, scale=literal(scale, DType.FLOAT32).c,
            offset=(2 * zero_point + 1) << places >> 1, one=round(2.0 ** (32 + places) / scale),
        )  # fmt: skip
        power = np.rint(exponential.astype(np.float64) * 2.0**bits).astype(np.uint32)
        layouts = {
            "exponential": f"exp(scale * d) for {DISTANCES}",
            "power": f"the same in steps of 2^-{bits}",
        }
        data = {"exponential": exponential, "power": power}
        return kernel_of(node, graph, body, part, data, headers=("mt_softmax_int8.h",), layouts=layouts)


KERNEL = KernelOp(SPECIFICATION, _label, (Softmax(), SoftmaxFixed(), SoftmaxInt8(), HeliumSoftmax()))
