"""Pooling (ai.onnx MaxPool, AveragePool and their Global forms), one and two dimensions.

Internal form `pool2d`: input x[N,H,W,C]; acc is the maximum, the mean (float) or the sum (integer).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mtool.compiler.ir import Attributes, DType, Graph, Node, WithEpilogue
from mtool.compiler.ir.scalar import literal
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.expressions import kernel_of
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel, KernelOp, Schedule, Target
from mtool.compiler.kernels.specification import Channels, Operand, RowReads, RowWise, Specification, always

Pair = tuple[int, int]


class Pool2d(WithEpilogue):
    """A pool; pairs are (vertical, horizontal), in elements.

    kind: acc is the maximum, or the average: the mean of floats, the sum of integers.
    kernel: height and width of the window.
    strides, dilations: at least 1.
    pads: top, left, bottom, right; at least 0.
    count_pads: the mean counts the padding as zeros, up to `limits`.
    limits: the row and column from which on nothing is counted.
    """

    kind: Literal["max", "average"]
    kernel: Pair
    strides: Pair
    pads: tuple[int, int, int, int]
    dilations: Pair
    count_pads: bool
    limits: Pair

    def counts_all(self, sizes: Sequence[int]) -> bool:
        """Whether each window of an output of these `sizes` counts the same number of elements, padding included."""
        return self.count_pads and all(
            (sizes[n] - 1) * self.strides[n] + (self.kernel[n] - 1) * self.dilations[n] - self.pads[n] < self.limits[n]
            for n in (0, 1)
        )


def _window(node: Node, graph: Graph) -> RowReads:
    """Return the rows read: padding is the smallest value for a maximum, and 0 for a sum."""
    attrs, dtype = Pool2d.of(node), graph.types[node.inputs[0]].dtype
    lowest = -math.inf if dtype.is_float else dtype.limits[0]
    reach = (attrs.kernel[0] - 1) * attrs.dilations[0] + 1
    fill = lowest if attrs.kind == "max" else 0
    return RowReads.of_window(node, graph, reach, attrs.strides[0], attrs.pads[0], fill)


def _reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """Return None for a mean that does not count the padding: any padding value would change it."""
    attrs, reads = Pool2d.of(node), _window(node, graph)
    is_sum = not graph.types[node.inputs[0]].dtype.is_float or attrs.counts_all(graph.types[node.outputs[0]].shape[1:3])
    return (reads,) if reads.fill is None or attrs.kind == "max" or is_sum else None


def _of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    attrs = Pool2d.of(node)
    start, end = _window(node, graph).rows(0, count)
    pads, limits = (0, attrs.pads[1], 0, attrs.pads[3]), (end - start, attrs.limits[1])
    return replace(attrs, pads=pads, limits=limits)


def _agree(node: Node, graph: Graph) -> None:
    """Check that each window begins in the input or its padding."""
    attrs, where = Pool2d.of(node), f"{node.op} {node.name}"
    assert min(*attrs.strides, *attrs.dilations) > 0, (
        f"{where} has strides {attrs.strides}, dilations {attrs.dilations}"
    )
    before, after = (graph.types[value].shape for value in (node.inputs[0], node.outputs[0]))
    for n in range(2):
        padded = before[1 + n] + attrs.pads[n] + attrs.pads[2 + n]
        begins = (after[1 + n] - 1) * attrs.strides[n] < padded
        assert begins, f"{where} is {list(after)}; fewer windows begin in {list(before)}"


SPECIFICATION = Specification(
    Pool2d,
    (Operand("input", "NHWC", is_in_arena=True),),
    layout="NPQC",
    agree=_agree,
    channels=always(Channels.EACH),
    row_wise=RowWise(_reads, _of_rows),
)


MOST_COLUMNS = 255  # the most columns whose sum stays within 16 bits


@dataclass(frozen=True)
class WindowSchedule(Schedule):
    """One output pixel at a time, all of its channels, over the part of its window that lies inside the input."""

    name: str
    core: str  # the feature or property of a target that it needs
    stem: str  # the prefix of the runtime's functions, after mt_
    header: str
    lanes: int = 4  # channels of a vector; at most four for a sum
    dtype: DType = DType.INT8

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image of its type, no window entirely outside; a float average of as many everywhere."""
        x, out_size, attrs = graph.types[node.inputs[0]], graph.types[node.outputs[0]].shape[1:3], Pool2d.of(node)
        if not target.has(self.core) or x.dtype is not self.dtype or x.shape[0] != 1:
            return False
        whole = not any(attrs.pads[:2])
        for i, size in enumerate(out_size):
            begin, reach = (size - 1) * attrs.strides[i], (attrs.kernel[i] - 1) * attrs.dilations[i]
            outside = attrs.pads[i] > reach or begin - attrs.pads[i] >= x.shape[1 + i]
            if outside or (attrs.dilations[i] != 1 and attrs.dilations[i] > x.shape[1 + i]):
                return False
            whole = whole and begin + reach < x.shape[1 + i]
        even = attrs.kind == "max" or not self.dtype.is_float or whole or attrs.counts_all(out_size)
        return attrs.kernel[1] <= MOST_COLUMNS and even

    def _stores_directly(self, node: Node) -> bool:
        """Whether the maxima are the outputs."""
        return Pool2d.of(node).kind == "max" and Pool2d.of(node).epilogue.op == "acc"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A pixel's maxima or sums, if an epilogue follows."""
        size = self.dtype.size if Pool2d.of(node).kind == "max" else 4
        return 0 if self._stores_directly(node) else size * graph.types[node.inputs[0]].shape[3]

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """6 instructions a tap (4 of floats) and 12 more for a vector of channels, 32 (6) an output of an epilogue."""
        attrs, out = Pool2d.of(node), graph.types[node.outputs[0]]
        vectors = -(-out.shape[3] // (self.lanes if attrs.kind == "max" else min(self.lanes, 4)))
        tap, output = (4, 6) if self.dtype.is_float else (6, 32)
        after = 0 if self._stores_directly(node) else output * out.count
        return float(out.shape[1] * out.shape[2] * (vectors * (tap * math.prod(attrs.kernel) + 12) + 20) + after)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        attrs, stored_directly = Pool2d.of(node), self._stores_directly(node)
        x, epilogue, of_max = graph.types[node.inputs[0]], EpilogueText(node, graph), attrs.kind == "max"
        mean = self.dtype.is_float and not of_max
        body = template(
            "kernels/pool2d/window.c.j2",
            attrs=attrs,
            size=x.shape[1:3],
            out_size=graph.types[node.outputs[0]].shape[1:3],
            channels=x.shape[3],
            function=f"mt_{self.stem}_{'max' if of_max else 'sum'}",
            stored_directly=stored_directly,
            result=f"scratch[c] / {math.prod(attrs.kernel)}.0f" if mean else "scratch[c]",
            epilogue=epilogue,
        )
        acc = x.dtype if self.dtype.is_float or of_max else DType.INT32
        scratch = "" if stored_directly else acc.c
        return kernel_of(node, graph, body, epilogue.expr, scratch=scratch, headers=(self.header,))


class PortableWindow(Schedule):
    """One output at a time, over the part of its window that lies inside the input."""

    name = "c99_window"

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """5 instructions an input element of a window, 20 an output."""
        return float(graph.types[node.outputs[0]].count * (5 * math.prod(Pool2d.of(node).kernel) + 20))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        attrs, x, epilogue = Pool2d.of(node), graph.types[node.inputs[0]], EpilogueText(node, graph)
        average, dtype = attrs.kind == "average", x.dtype
        lowest = literal(float("-inf") if dtype.is_float else dtype.limits[0], dtype).c
        body = template(
            "kernels/pool2d/c99/window.c.j2",
            attrs=attrs,
            size=x.shape[1:3],
            out_size=graph.types[node.outputs[0]].shape[1:3],
            batch=x.shape[0],
            channels=x.shape[3],
            average=average,
            joined=graph.is_sample,
            mean=average and dtype.is_float,
            acc=dtype.c if dtype.is_float or not average else "int32_t",
            start="0" if average else lowest,
            kind=dtype.kind[0] + str(dtype.size * 8),
            epilogue=epilogue,
        )
        return kernel_of(node, graph, body, epilogue.expr)


def _label(node: Node, graph: Graph) -> str:
    attrs = Pool2d.of(node)
    height, width = attrs.kernel
    return f"{attrs.kind} pool {height}x{width}"


SCHEDULES = (
    PortableWindow(),
    WindowSchedule("f32_window", "has_float_tiles", "f32", "mt_f32_window.h", 1, DType.FLOAT32),
    WindowSchedule("dsp_window", "has_dsp", "dsp", "mt_dsp_window_int8.h"),
    WindowSchedule("mve_window", "has_mve", "mve", "mt_mve_window_int8.h", 16),
    WindowSchedule("mve_f32_window", "has_mve", "mve_f32", "mt_mve_window_f32.h", 4, DType.FLOAT32),
    WindowSchedule("rvv_window", "has_rvv", "rvv", "mt_rvv_window_int8.h", 32),
)
KERNEL = KernelOp(SPECIFICATION, _label, SCHEDULES)
