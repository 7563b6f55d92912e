"""Schedules that pool by windows: one pixel at a time, all of its channels."""

import math
from typing import ClassVar

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.scalar import literal
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.expressions import kernel_of
from mtool.compiler.kernels.pool2d.node import Pool2d
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel, Schedule
from mtool.compiler.kernels.target import Target

MOST_COLUMNS = 255  # whose sum stays within 16 bits


class WindowSchedule(Schedule):
    """One output pixel at a time, all of its channels, over the part of its window that lies inside the input.

    Attributes:
        core: the feature or property of a target that it needs.
        stem: what the names of the runtime's functions begin with, behind mt_.
        header: the runtime's.
        lanes: channels of a vector.
        dtype: the type of the input's elements.
    """

    core: ClassVar[str]
    stem: ClassVar[str]
    header: ClassVar[str]
    lanes: ClassVar[int] = 4
    dtype: ClassVar[DType] = DType.INT8

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image of its type, no window that lies outside altogether; a float average of as many everywhere."""
        x, made, attrs = graph.types[node.inputs[0]], graph.types[node.outputs[0]].shape[1:3], Pool2d.of(node)
        if not target.has(self.core) or x.dtype is not self.dtype or x.shape[0] != 1:
            return False
        whole = not any(attrs.pads[:2])
        for i, size in enumerate(made):
            begin, reach = (size - 1) * attrs.strides[i], (attrs.kernel[i] - 1) * attrs.dilations[i]
            outside = attrs.pads[i] > reach or begin - attrs.pads[i] >= x.shape[1 + i]
            if outside or (attrs.dilations[i] != 1 and attrs.dilations[i] > x.shape[1 + i]):
                return False
            whole = whole and begin + reach < x.shape[1 + i]
        even = attrs.kind == "max" or not self.dtype.is_float or whole or attrs.counts_all(made)
        return attrs.kernel[1] <= MOST_COLUMNS and even

    def _stores_directly(self, node: Node) -> bool:
        """Whether the maxima are the outputs."""
        return Pool2d.of(node).kind == "max" and Pool2d.of(node).epilogue.op == "acc"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A pixel's maxima or sums, if an epilogue follows."""
        each = self.dtype.size if Pool2d.of(node).kind == "max" else 4
        return 0 if self._stores_directly(node) else each * graph.types[node.inputs[0]].shape[3]

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """6 instructions a tap (4 of floats) and 12 more for a vector of channels, 32 (6) an output of an epilogue."""
        attrs, out = Pool2d.of(node), graph.types[node.outputs[0]]
        vectors = -(-out.shape[3] // (self.lanes if attrs.kind == "max" else min(self.lanes, 4)))
        tap, each = (4, 6) if self.dtype.is_float else (6, 32)
        after = 0 if self._stores_directly(node) else each * out.count
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


class F32Window(WindowSchedule):
    """One channel at a time."""

    name, core, stem, header = "f32_window", "has_float_tiles", "f32", "mt_f32_window.h"
    lanes = 1
    dtype = DType.FLOAT32


class DspWindow(WindowSchedule):
    """Four channels at a time."""

    name, core, stem, header = "dsp_window", "has_dsp", "dsp", "mt_dsp_window_int8.h"


class MveWindow(WindowSchedule):
    """16 channels at a time, 4 of a sum."""

    name, core, stem, header = "mve_window", "has_mve", "mve", "mt_mve_window_int8.h"
    lanes = 16


class MveF32Window(WindowSchedule):
    """Four channels at a time."""

    name, core, stem, header = "mve_f32_window", "has_mve", "mve_f32", "mt_mve_window_f32.h"
    dtype = DType.FLOAT32


class RvvWindow(WindowSchedule):
    """As many channels at a time as a vector has."""

    name, core, stem, header = "rvv_window", "has_rvv", "rvv", "mt_rvv_window_int8.h"
    lanes = 32


SCHEDULES = (PortableWindow(), F32Window(), DspWindow(), MveWindow(), MveF32Window(), RvvWindow())
