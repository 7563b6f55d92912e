"""Depthwise convolutions of float32 for Helium: a vector of channels, a few outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise_f32.h.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import reads_ahead
from mtool.compiler.kernels.conv2d.ring import Ring
from mtool.compiler.kernels.epilogues.float32 import FloatEpilogue
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.mve.vectors import F32_LANES
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

HEADER = "mt_mve_depthwise_f32.h"

OUTPUTS = (4, 3, 2, 1, 5, 6)  # at a time
REGISTERS = 8
REACH = 508 // 16  # vectors from a pointer that a load reaches
MOST_CODE = 320  # instructions: the taps are all written out
MOST_ROWS = 16  # that a ring may have


@dataclass(frozen=True, slots=True)
class Segment:
    """Taps of a row of the kernel whose weights are held in registers while the inputs pass by.

    `passing`: for each vector of input, how many columns from the first output's first tap it stands, what it is
    multiplied with: pairs of an output and a tap, the taps counted from the segment's first.
    """

    first: int
    taps: int
    passing: Mapping[int, tuple[tuple[int, int], ...]]

    @property
    def instructions(self) -> int:
        """Loads of weights and inputs, products."""
        return self.taps + len(self.passing) + sum(len(products) for products in self.passing.values())


def segments(conv: Conv, outputs: int) -> tuple[Segment, ...]:
    """Cut a row of the kernel into as few segments as the registers allow beside the sums and an input."""
    most = REGISTERS - 1 - outputs
    made = []
    for first in range(0, conv.kernel[1], most):
        taps = min(most, conv.kernel[1] - first)
        passing: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for output in range(outputs):
            for tap in range(taps):
                column = output * conv.stride[1] + (first + tap) * conv.dilation[1]
                passing[column].append((output, tap))
        made.append(Segment(first, taps, {column: tuple(passing[column]) for column in sorted(passing)}))
    return tuple(made)


def block_cost(conv: Conv, outputs: int) -> int:
    """Return the instructions of so many outputs side by side; 0 for none."""
    row = sum(segment.instructions for segment in segments(conv, outputs))
    return conv.kernel[0] * row + 3 * outputs + 3 if outputs else 0


def pack(taps: Array, bias: Array) -> Array:
    """Return the stream of vectors, float32 [C/4, 1 + taps, 4]: biases, then a vector a tap; C is filled up.

    Args:
        taps: float32 [C, taps].
        bias: float32 [C].
    """
    columns = np.concatenate([bias[:, None], taps], axis=1)
    columns = np.pad(columns, ((0, -len(columns) % F32_LANES), (0, 0)))
    return np.ascontiguousarray(columns.reshape(-1, F32_LANES, columns.shape[1]).transpose(0, 2, 1), dtype=np.float32)


@dataclass(frozen=True)
class Depthwise(BaseSchedule):
    """Depthwise: four channels at a time, each row of input is copied once into a ring of as many as the kernel spans.

    Products are added in the order of the portable loops. The last lanes may be fewer than four.
    """

    name = "mve_f32_taps"

    outputs: int = knob(
        0, *OUTPUTS, meaning="side by side, that share inputs and weights; auto: as many as take fewest instructions"
    )

    def _outputs(self, conv: Conv) -> int:
        """Outputs at a time; 0: a load does not reach all of their inputs."""
        wide = conv.out_size[1]

        def cost(outputs: int) -> int:
            return wide // outputs * block_cost(conv, outputs) + block_cost(conv, wide % outputs)

        def reaches(outputs: int) -> bool:
            return (outputs - 1) * conv.stride[1] + (conv.kernel[1] - 1) * conv.dilation[1] <= REACH

        tried = (self.outputs,) if self.outputs else OUTPUTS
        return min((n for one in tried if reaches(n := min(one, wide))), key=cost, default=0)

    def _code(self, conv: Conv, outputs: int) -> int:
        return block_cost(conv, outputs) + block_cost(conv, conv.out_size[1] % outputs)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, one image, one output a channel, float32, not too many taps, nothing read afterwards."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        alone = epilogue is not None and not WithEpilogue.of(node).epilogue.operands()
        same = graph.types[node.outputs[0]].dtype is graph.types[node.inputs[0]].dtype
        if not (target.has_mve and shape and alone and same and Ring.of(conv).rows <= MOST_ROWS):
            return False
        outputs = self._outputs(conv)
        return outputs > 0 and self._code(conv, outputs) <= MOST_CODE

    def _pitch(self, conv: Conv) -> int:
        """Elements of a row of the ring."""
        return F32_LANES * Ring.of(conv).columns

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The ring."""
        conv = Conv.of(node, graph)
        return 4 * Ring.of(conv).rows * self._pitch(conv)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if rows are read before they are written."""
        conv = Conv.of(node, graph)
        return (0,) if reads_ahead(conv, Ring.of(conv).rows) else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The blocks; 4 for a copied vector, 20 for its row, 24 for one of outputs; 6 for an element of an epilogue."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        outputs = self._outputs(conv)
        whole, rest = divmod(conv.out_size[1], outputs)
        row = whole * block_cost(conv, outputs) + block_cost(conv, rest) + 24
        after = 6 * conv.pixels * conv.channels if epilogue is not None and epilogue.rest is not None else 0
        copying = conv.plane[0] * (4 * Ring.of(conv).copied + 20)
        return math.ceil(conv.channels / F32_LANES) * float(conv.out_size[0] * row + copying) + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        assert epilogue is not None
        outputs = self._outputs(conv)
        body = template(
            "kernels/conv2d/mve/depthwise_f32.c.j2",
            conv=conv,
            epilogue=epilogue,
            outputs=outputs,
            segments=lambda outputs: segments(conv, outputs),
            most_taps=max(one.taps for n in (outputs, conv.out_size[1] % outputs) if n for one in segments(conv, n)),
            reach=REACH,
            copied=Ring.of(conv).copied,
            pitch=self._pitch(conv),
            span=Ring.of(conv).rows,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        taps = graph.constants[node.inputs[1]].reshape(conv.channels, -1)
        weights = pack(taps, graph.constants[node.inputs[2]])
        layout = "of four channels together their biases, then each tap"
        return epilogue.kernel(node, graph, body, weights, layout, HEADER, "float")


SCHEDULE = Depthwise()
