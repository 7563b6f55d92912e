"""Schedules of pool2d for SIMD32 and Helium: a window's channels side by side, int8. See crt/include/mt_*_pool.h."""

from mtool.ir import DType, Graph, Node
from mtool.ops.conv2d.schedules import EpilogueText
from mtool.ops.ctext import needs_math, operand_arguments
from mtool.ops.schedule import Argument, BaseSchedule, Kernel, Target, template

MOST_COLUMNS = 255  # whose sum stays within 16 bits


class _Window(BaseSchedule):
    """One output pixel at a time, all of its channels, over the part of its window that lies inside the input."""

    name = ""
    stem = ""
    lanes = 4

    def fits(self, target: Target) -> bool:
        """Whether the target has the instructions."""
        raise NotImplementedError

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int8, no window that lies outside altogether."""
        x = graph.types[node.inputs[0]]
        attrs = node.attrs
        reached = all(
            attrs["pads"][i] <= (attrs["kernel"][i] - 1) * attrs["dilations"][i]
            and (size - 1) * attrs["strides"][i] - attrs["pads"][i] < x.shape[1 + i]
            and (attrs["dilations"][i] == 1 or attrs["dilations"][i] <= x.shape[1 + i])
            for i, size in enumerate(graph.types[node.outputs[0]].shape[1:3])
        )
        narrow = attrs["kernel"][1] <= MOST_COLUMNS
        return self.fits(target) and x.dtype is DType.INT8 and x.shape[0] == 1 and reached and narrow

    def _is_direct(self, node: Node) -> bool:
        """Whether the maxima are the outputs."""
        return bool(node.attrs["kind"] == "max" and node.attrs["epilogue"].op == "acc")

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A pixel's maxima or sums, if an epilogue follows."""
        each = 1 if node.attrs["kind"] == "max" else 4
        return 0 if self._is_direct(node) else each * graph.types[node.inputs[0]].shape[3]

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """6 instructions a tap and 20 more for a vector of channels, 30 an output of an epilogue."""
        height, width = node.attrs["kernel"]
        out = graph.types[node.outputs[0]]
        vectors = -(-out.shape[3] // (self.lanes if node.attrs["kind"] == "max" else 4))
        after = 0 if self._is_direct(node) else 30 * out.count
        return float(out.shape[1] * out.shape[2] * (vectors * (6 * height * width + 20) + 20) + after)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        attrs = node.attrs
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        epilogue, direct = EpilogueText(node, graph), self._is_direct(node)
        body = template(
            "pool2d/simd_window.c.j2",
            attrs=attrs,
            size=x.shape[1:3],
            out_size=y.shape[1:3],
            channels=x.shape[3],
            function=f"mt_{self.stem}_{'max' if attrs['kind'] == 'max' else 'sum'}",
            direct=direct,
            epilogue=epilogue,
        )
        names = epilogue.names
        arguments = [
            Argument("input", x.dtype.c, ("input", 0)),
            Argument("output", y.dtype.c, "output"),
            *operand_arguments(node, graph, names),
        ]
        if not direct:
            arguments.append(Argument("scratch", "int8_t" if attrs["kind"] == "max" else "int32_t", "scratch"))
        constants = {names[n]: graph.constants[node.inputs[n]] for n in names if node.inputs[n] in graph.constants}
        return Kernel(tuple(arguments), body, constants, needs_math(epilogue.expr), (f"mt_{self.stem}_pool.h",))


class Dsp(_Window):
    """Four channels at a time."""

    name = "dsp_window"
    stem = "dsp"

    def fits(self, target: Target) -> bool:
        """SIMD32."""
        return target.has_dsp


class Mve(_Window):
    """16 channels at a time, 4 of a sum."""

    name = "mve_window"
    stem = "mve"
    lanes = 16

    def fits(self, target: Target) -> bool:
        """Helium."""
        return target.has_mve
