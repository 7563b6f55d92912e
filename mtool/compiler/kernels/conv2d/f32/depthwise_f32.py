"""Depthwise convolutions of float32 for a Cortex-M's FPU: several outputs of a plane at a time."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.traversal import DIRECTION_MEANING, DIRECTIONS, Traversal
from mtool.compiler.kernels.epilogues.float32 import FloatEpilogue
from mtool.compiler.kernels.f32.products import PRODUCT_MEANING, PRODUCTS, best_product
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

HEADER = "mt_f32.h"
BLOCK = 5  # outputs at most: more take longer code and hardly fewer loads
REGISTERS = 29  # of the FPU's 32; the others hold products on their way to a sum


def registers(traversal: Traversal) -> int:
    """Return the registers that taps, bias, sums and inputs take."""
    return math.prod(traversal.kernel) + 1 + traversal.block + len(traversal.block_inputs)


def cost(traversal: Traversal) -> float:
    """Return the instructions a channel: two a product, the loads, four an output; three a copied element."""
    each = (
        traversal.block * (2 * math.prod(traversal.kernel) + 4) + traversal.kernel[0] * len(traversal.block_inputs) + 6
    )
    return traversal.out_size[0] * (traversal.blocks * each + 8) + 3 * math.prod(traversal.copied)


def best_traversal(conv: Conv, direction: str = "") -> Traversal | None:
    """Return the traversal with the fewest instructions; None: the taps do not fit in the registers."""
    fitting = [traversal for traversal in Traversal.all(conv, direction, BLOCK) if registers(traversal) <= REGISTERS]
    return min(fitting, key=cost, default=None)


@dataclass(frozen=True)
class Depthwise(BaseSchedule):
    """Depthwise: a channel is copied with its padding into a plane; several outputs at a time slide over it.

    Products are added in the order of the portable loops. A channel has been read whole before any of it is written,
    and writes only its own elements: the output may take the input's storage.
    """

    name = "f32_plane"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)
    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, one image, one output a channel, float32, taps that fit in registers, nothing read afterwards."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        alone = epilogue is not None and not WithEpilogue.of(node).epilogue.operands()
        same = graph.types[node.outputs[0]].dtype is graph.types[node.inputs[0]].dtype
        return target.has_float_tiles and shape and alone and same and best_traversal(conv, self.direction) is not None

    def _traversal(self, node: Node, graph: Graph) -> Traversal:
        traversal = best_traversal(Conv.of(node, graph), self.direction)
        assert traversal is not None
        return traversal

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane."""
        return 4 * math.prod(Conv.of(node, graph).plane)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if the output is no larger."""
        return (0,) if graph.types[node.inputs[0]].bytes >= graph.types[node.outputs[0]].bytes else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See above."""
        return Conv.of(node, graph).channels * cost(self._traversal(node, graph))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue, traversal = Conv.of(node, graph), FloatEpilogue.of(node, graph), self._traversal(node, graph)
        assert epilogue is not None

        def result(acc: str, offset: str) -> str:
            if epilogue.rest is not None:
                return epilogue.rest_text(node, graph, acc, offset)
            return f"mt_f32_relu({acc})" if epilogue.relu else acc

        body = template(
            "kernels/conv2d/f32/depthwise_f32.c.j2",
            conv=conv,
            traversal=traversal,
            fused=(self.product or best_product(target)) == "fma",
            result=result,
        )
        taps = graph.constants[node.inputs[1]].reshape(conv.channels, *conv.kernel)
        weights = pack(taps.swapaxes(1, 2) if traversal.transposed else taps, graph.constants[node.inputs[2]])
        return epilogue.kernel(node, graph, body, weights, "a channel a row: bias, taps", HEADER, "float")


def pack(taps: Array, bias: Array) -> Array:
    """Return float32 [C, 1 + taps]: a channel's bias, then its taps.

    Args:
        taps: float32 [C, slow, fast].
        bias: float32 [C].
    """
    return np.concatenate([bias[:, None], taps.reshape(taps.shape[0], -1)], axis=1).astype(np.float32)


SCHEDULE = Depthwise()
