"""The common part of schedules that pool by windows: one pixel at a time, all of its channels."""

import math

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.scalar import literal
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.expressions import needs_math, operand_arguments, operand_constants
from mtool.compiler.kernels.pool2d.node import Pool2d
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

MOST_COLUMNS = 255  # whose sum stays within 16 bits


class WindowSchedule(BaseSchedule):
    """One output pixel at a time, all of its channels, over the part of its window that lies inside the input."""

    name = ""
    stem = ""
    header = ""
    lanes = 4
    dtype = DType.INT8

    def fits(self, target: Target) -> bool:
        """Whether the target has the instructions."""
        raise NotImplementedError

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image of its type, no window that lies outside altogether; a float average of as many everywhere."""
        x = graph.types[node.inputs[0]]
        attrs = Pool2d.of(node)
        reached = all(
            attrs.pads[i] <= (attrs.kernel[i] - 1) * attrs.dilations[i]
            and (size - 1) * attrs.strides[i] - attrs.pads[i] < x.shape[1 + i]
            and (attrs.dilations[i] == 1 or attrs.dilations[i] <= x.shape[1 + i])
            for i, size in enumerate(graph.types[node.outputs[0]].shape[1:3])
        )
        narrow = attrs.kernel[1] <= MOST_COLUMNS
        return (
            self.fits(target)
            and x.dtype is self.dtype
            and x.shape[0] == 1
            and reached
            and narrow
            and self._has_mean(node, graph)
        )

    def _has_mean(self, node: Node, graph: Graph) -> bool:
        """Whether a float average divides by the same count everywhere."""
        attrs, (h, w) = Pool2d.of(node), graph.types[node.inputs[0]].shape[1:3]
        reach = (
            (size - 1) * attrs.strides[i] + (attrs.kernel[i] - 1) * attrs.dilations[i]
            for i, size in enumerate(graph.types[node.outputs[0]].shape[1:3])
        )
        whole = not any(attrs.pads[:2]) and all(last < size for last, size in zip(reach, (h, w), strict=True))
        even = whole or attrs.counts_all(graph.types[node.outputs[0]].shape[1:3])
        return attrs.kind == "max" or not self.dtype.is_float or even

    def _stores_directly(self, node: Node) -> bool:
        """Whether the maxima are the outputs."""
        return Pool2d.of(node).kind == "max" and Pool2d.of(node).epilogue.op == "acc"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A pixel's maxima or sums, if an epilogue follows."""
        each = self.dtype.size if Pool2d.of(node).kind == "max" else 4
        return 0 if self._stores_directly(node) else each * graph.types[node.inputs[0]].shape[3]

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """6 instructions a tap (4 of floats) and 12 more for a vector of channels, 32 (6) an output of an epilogue."""
        height, width = Pool2d.of(node).kernel
        out = graph.types[node.outputs[0]]
        vectors = -(-out.shape[3] // (self.lanes if Pool2d.of(node).kind == "max" else min(self.lanes, 4)))
        after = 0 if self._stores_directly(node) else (6 if self.dtype.is_float else 32) * out.count
        tap = 4 if self.dtype.is_float else 6
        return float(out.shape[1] * out.shape[2] * (vectors * (tap * height * width + 12) + 20) + after)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        attrs = Pool2d.of(node)
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue, stored_directly = EpilogueText(node, graph), self._stores_directly(node)
        mean = self.dtype.is_float and attrs.kind == "average"
        acc = x.dtype if self.dtype.is_float or attrs.kind == "max" else DType.INT32
        body = template(
            "kernels/pool2d/window.c.j2",
            attrs=attrs,
            size=x.shape[1:3],
            out_size=y.shape[1:3],
            channels=x.shape[3],
            function=f"mt_{self.stem}_{'max' if attrs.kind == 'max' else 'sum'}",
            stored_directly=stored_directly,
            result=f"scratch[c] / {math.prod(attrs.kernel)}.0f" if mean else "scratch[c]",
            epilogue=epilogue,
        )
        names = epilogue.names
        arguments = [
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            *operand_arguments(node, graph, names),
        ]
        if not stored_directly:
            arguments.append(Argument("scratch", acc.c, "scratch"))
        constants = operand_constants(node, graph, names)
        return Kernel(tuple(arguments), body, constants, needs_math(epilogue.expr), (self.header,))


# Pools in portable C.


class PortableWindow(BaseSchedule):
    """One output at a time, over the part of its window that lies inside the input."""

    name = "c99_window"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """5 instructions an input element of a window, 20 an output."""
        height, width = Pool2d.of(node).kernel
        return float(graph.types[node.outputs[0]].count * (5 * height * width + 20))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        attrs = Pool2d.of(node)
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue = EpilogueText(node, graph)
        average = attrs.kind == "average"
        acc = x.dtype if x.dtype.is_float or not average else DType.INT32
        low = literal(float("-inf") if x.dtype.is_float else x.dtype.limits[0], x.dtype).c if not average else "0"
        body = template(
            "kernels/pool2d/c99/window.c.j2",
            attrs=attrs,
            size=x.shape[1:3],
            out_size=y.shape[1:3],
            batch=x.shape[0],
            channels=x.shape[3],
            average=average,
            joined=graph.is_sample,
            mean=average and x.dtype.is_float,
            acc=acc.c,
            start="0" if average else low,
            kind=x.dtype.kind[0] + str(x.dtype.size * 8),
            epilogue=epilogue,
        )
        names = epilogue.names
        arguments = [
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            *operand_arguments(node, graph, names),
        ]
        constants = operand_constants(node, graph, names)
        return Kernel(tuple(arguments), body, constants, needs_math(epilogue.expr))


# Pools of float32 for a Cortex-M's FPU. See crt/include/mt_f32_window.h.


class F32Window(WindowSchedule):
    """One channel at a time."""

    name = "f32_window"
    stem = "f32"
    header = "mt_f32_window.h"
    lanes = 1
    dtype = DType.FLOAT32

    def fits(self, target: Target) -> bool:
        """A Cortex-M with a float32 FPU."""
        return target.has_float_tiles


# Pools of int8 for SIMD32. See crt/include/mt_dsp_window_int8.h.


class DspWindow(WindowSchedule):
    """Four channels at a time."""

    name = "dsp_window"
    stem = "dsp"
    header = "mt_dsp_window_int8.h"

    def fits(self, target: Target) -> bool:
        """SIMD32."""
        return target.has_dsp


# Pools of int8 for Helium. See crt/include/mt_mve_window_int8.h.


class MveWindow(WindowSchedule):
    """16 channels at a time, 4 of a sum."""

    name = "mve_window"
    stem = "mve"
    header = "mt_mve_window_int8.h"
    lanes = 16

    def fits(self, target: Target) -> bool:
        """Helium."""
        return target.has_mve


# Pools of float32 for Helium. See crt/include/mt_mve_window_f32.h.


class MveF32Window(WindowSchedule):
    """Four channels at a time."""

    name = "mve_f32_window"
    stem = "mve_f32"
    header = "mt_mve_window_f32.h"
    dtype = DType.FLOAT32

    def fits(self, target: Target) -> bool:
        """Helium."""
        return target.has_mve


# Pools of int8 for RISC-V vectors. See crt/include/mt_rvv_window_int8.h.


class RvvWindow(WindowSchedule):
    """As many channels at a time as a vector has."""

    name = "rvv_window"
    stem = "rvv"
    header = "mt_rvv_window_int8.h"
    lanes = 32

    def fits(self, target: Target) -> bool:
        """Vectors."""
        return target.has_rvv


SCHEDULES = (PortableWindow(), F32Window(), DspWindow(), MveWindow(), MveF32Window(), RvvWindow())
