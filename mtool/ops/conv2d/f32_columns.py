"""Schedule of conv2d for Cortex-M with a float32 FPU: four pixels by four channels. See crt/include/mt_f32.h."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.ops.conv2d.dsp_weights import round_up
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.float_epilogue import PRODUCT_MEANING, PRODUCTS, FloatEpilogue, best_product, has_tiles
from mtool.ops.schedule import BaseSchedule, Kernel, Target, knob, residual_operands, template


def pack(weights: Array, bias: Array) -> Array:
    """Return the stream of mt_f32_columns, float32 [N/4, 4 + 4 * K]; both are filled up to multiples of 4.

    Args:
        weights: float32 [N, K].
        bias: float32 [N].
    """
    count = round_up(weights.shape[0], 4)
    filled = np.zeros((count, round_up(weights.shape[1], 4)), np.float32)
    filled[: weights.shape[0], : weights.shape[1]] = weights
    bias = np.pad(bias, (0, count - bias.size))
    steps = filled.reshape(count // 4, 4, -1).transpose(0, 2, 1).reshape(count // 4, -1)
    return np.concatenate([bias.reshape(count // 4, 4), steps], axis=1).astype(np.float32)


@dataclass(frozen=True)
class Columns(BaseSchedule):
    """The patches of four pixels are gathered side by side and meet all channels, four at a time.

    A 1x1 layer runs in place: forwards, or backwards if it grows.
    """

    name = "f32_columns"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, no groups, no dilation of columns, float32."""
        conv = Conv.of(node, graph)
        shape = conv.group == 1 and conv.batch == 1 and conv.dilation[1] == 1
        return has_tiles(target) and shape and FloatEpilogue.of(node, graph) is not None

    def _is_direct(self, node: Node, graph: Graph) -> bool:
        epilogue = FloatEpilogue.of(node, graph)
        return epilogue is None or epilogue.rest is None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Four columns, and results that are not stored directly."""
        conv = Conv.of(node, graph)
        direct = self._is_direct(node, graph) and conv.out_channels % 4 == 0
        aside = 4 if not direct else 1 if conv.pixels % 4 else 0
        return 16 * round_up(conv.depth, 4) + 4 * aside * round_up(conv.out_channels, 4)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pixel by pixel; a residual operand that is not its input."""
        residuals = residual_operands(node, graph)
        alone = not node.attrs["epilogue"].operands() & {0} and graph.types[node.outputs[0]].dtype.size == 4
        return (0, *residuals) if Conv.of(node, graph).is_pointwise and alone else residuals

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 3 a gathered element, 3 an output."""
        conv = Conv.of(node, graph)
        each = 2.2 if (self.product or best_product(target)) == "muladd" else 1.2
        padded = math.ceil(conv.pixels / 4) * 4
        return padded * (round_up(conv.out_channels, 4) * (each * conv.depth + 3) + 3 * conv.depth)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        assert epilogue is not None
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        body = template(
            "conv2d/f32_columns.c.j2",
            conv=conv,
            depth=round_up(conv.depth, 4),
            function=epilogue.function("mt_f32_columns", self.product or best_product(target)),
            epilogue=epilogue,
            backward=conv.is_pointwise and conv.out_channels > conv.channels,
            rest=lambda acc, offset: epilogue.text(node, graph, acc, offset),
        )
        weights = pack(filters, graph.constants[node.inputs[2]])
        return epilogue.kernel(node, graph, body, weights, scratch=True)
