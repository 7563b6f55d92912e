"""Concatenation: internal form `concat`, of inputs of one type."""

import math

from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.expressions import kernel_of
from mtool.compiler.kernels.schedule import Kernel, KernelOp, Schedule, Target
from mtool.compiler.kernels.specification import RowReads, RowWise, Specification, always

# The nodes of concatenations: `concat`.


class Concat(Attributes):
    """A concatenation of values of one type.

    axis: the dimension along which they are joined, counted from 0.
    appends: the output overlaps the first input, which is not copied then; set by the planner.
    """

    axis: int
    appends: bool = False


def _reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """Of channels, row by row."""
    if Concat.of(node).axis != 3 or any(value in graph.constants for value in node.inputs):
        return None
    return tuple(RowReads(number) for number in range(len(node.inputs)))


def _agree(node: Node, graph: Graph) -> None:
    """Check that inputs differ only in the size along the axis, which adds up to the output's."""
    axis, out = Concat.of(node).axis, graph.types[node.outputs[0]]
    kinds = [graph.types[value] for value in node.inputs]
    where = f"{node.op} {node.name} of {', '.join(map(str, kinds))} along {axis} -> {out}"
    assert 0 <= axis < len(out.shape), where
    assert sum(kind.shape[axis] for kind in kinds if len(kind.shape) > axis) == out.shape[axis], where
    for kind in kinds:
        like = (*out.shape[:axis], *kind.shape[axis : axis + 1], *out.shape[axis + 1 :])
        assert (kind.dtype, kind.shape) == (out.dtype, like), where


SPECIFICATION = Specification(Concat, takes_more=True, agree=_agree, row_wise=RowWise(_reads))


# Concatenation in portable C: copies.


class Copies(Schedule):
    """A memcpy for each input and each slice before the axis; none for a first input that is already in place."""

    name = "c99_copies"

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """The first input, which is not copied, if the output is appended to it."""
        return (0,) if Concat.of(node).appends else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """One instruction a byte."""
        return float(graph.types[node.outputs[0]].bytes)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        out, attrs = graph.types[node.outputs[0]], Concat.of(node)
        axis = attrs.axis
        outer = math.prod(out.shape[:axis])
        total = math.prod(out.shape[axis:])
        lines, names, start = [], dict[int, str](), 0
        indent = "        " if outer > 1 else "    "
        for number, value in enumerate(node.inputs):
            count = math.prod(graph.types[value].shape[axis:])
            if number == 0 and attrs.appends:
                start = count
                continue
            name = names[number] = f"input{number}"
            to = " + ".join(["output", *([f"i * {total}"] if outer > 1 else []), *([str(start)] if start else [])])
            source = f"{name} + i * {count}" if outer > 1 else name
            copy = "MT_FLASH_COPY" if value in graph.constants else "memcpy"
            lines.append(f"{indent}{copy}({to}, {source}, {out.dtype.c_bytes(count)});")
            start += count
        if outer > 1:
            lines = [f"    for (int32_t i = 0; i < {outer}; ++i) {{", *lines, "    }"]
        return kernel_of(node, graph, "\n".join(lines), None, inputs=names)


KERNEL = KernelOp(SPECIFICATION, always("concat"), (Copies(),))
