"""Concatenation in portable C: copies."""

import math

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.concat.node import Concat
from mtool.compiler.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


class Copies(BaseSchedule):
    """A memcpy for each input and each slice before the axis; none for a first input that is in its place already."""

    name = "c99_copies"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """One instruction a byte."""
        return float(graph.types[node.outputs[0]].bytes)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        out, attrs = graph.types[node.outputs[0]], Concat.of(node)
        axis = attrs.axis
        outer = math.prod(out.shape[:axis])
        total = math.prod(out.shape[axis:])
        arguments, lines, constants, start = [], [], {}, 0
        indent = "        " if outer > 1 else "    "
        for number, value in enumerate(node.inputs):
            count = math.prod(graph.types[value].shape[axis:])
            if number == 0 and attrs.appends:
                start = count
                continue
            name = f"input{number}"
            constant = value in graph.constants
            arguments.append(Argument(name, out.dtype.c, ("constant", name) if constant else ("input", number)))
            if constant:
                constants[name] = graph.constants[value]
            to = " + ".join(["output", *([f"i * {total}"] if outer > 1 else []), *([str(start)] if start else [])])
            source = f"{name} + i * {count}" if outer > 1 else name
            copy = "MT_FLASH_COPY" if constant else "memcpy"
            lines.append(f"{indent}{copy}({to}, {source}, {out.dtype.c_bytes(count)});")
            start += count
        if outer > 1:
            lines = [f"    for (int32_t i = 0; i < {outer}; ++i) {{", *lines, "    }"]
        arguments.append(Argument("output", out.dtype.c, "output"))
        return Kernel(tuple(arguments), "\n".join(lines), constants)


SCHEDULE = Copies()
