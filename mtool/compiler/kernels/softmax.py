"""Softmax and LogSoftmax (ai.onnx 1, 11, 13), float and integer.

Internal form `softmax`: input x[M,N] along the last axis; acc is the float32 result. For integers,
exp(scale * (q - max)) has only 256 values, which are in a table: input 1, a constant.
"""

from mtool.compiler.ir import Attributes, DType, Graph, Node, WithEpilogue
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
        """80 instructions an element."""
        return 80.0 * graph.types[node.outputs[0]].count

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
        own = {"exponential": graph.constants[node.inputs[1]]} if integer else {}
        layouts, math = {"exponential": f"exp(scale * d) for {DISTANCES}"}, not integer or needs_math(epilogue.expr)
        return kernel_of(node, graph, body, epilogue.expr, own, layouts=layouts, needs_math=math)


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
            parts=[one for one in ((0, whole, 4), (whole, rows, rows - whole)) if one[0] < one[1]],
            length=length, x=x.dtype.c, kind=x.dtype.code, block=BLOCK, value=value, store=store[0], closed=store[1],
        )  # fmt: skip
        own = {"exponential": graph.constants[node.inputs[1]]}
        layouts = {"exponential": f"exp(scale * d) for {DISTANCES}"}
        return kernel_of(node, graph, body, None, own, layouts=layouts, headers=("mt_mve_loop.h",))

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
        own = {"exponential": graph.constants[node.inputs[1]]}
        return kernel_of(node, graph, body, epilogue.expr, own, headers=("mt_fixed.h",), layouts=layouts)


KERNEL = KernelOp(SPECIFICATION, _label, (Softmax(), SoftmaxFixed(), HeliumSoftmax()))
