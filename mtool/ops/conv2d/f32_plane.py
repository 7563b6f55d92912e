"""Schedule of depthwise convolutions for Cortex-M with a float32 FPU: several outputs of a plane at a time."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.ops.conv2d.direction import DIRECTION_MEANING, DIRECTIONS
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.float_epilogue import PRODUCT_MEANING, PRODUCTS, FloatEpilogue, best_product, has_tiles
from mtool.ops.schedule import BaseSchedule, Kernel, Target, knob, template

BLOCK = 5  # outputs at most: more take longer code and hardly fewer loads
REGISTERS = 29  # of the FPU's 32; the others hold products on their way to a sum


@dataclass(frozen=True, slots=True)
class Walk:
    """The plane of a channel as it is walked: all pairs are (slow, fast); steps are elements of the tensors.

    `block` outputs side by side on the fast axis share the inputs that they load. The last block of a row ends with it:
    it computes some outputs again if the row is not whole blocks.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    plane: tuple[int, int]
    copied: tuple[int, int]
    pad: tuple[int, int]
    out_size: tuple[int, int]
    in_step: tuple[int, int]
    out_step: tuple[int, int]
    turned: bool
    block: int

    @classmethod
    def of(cls, conv: Conv, direction: str = "") -> "Walk | None":
        """Choose direction and block with the fewest instructions; None: the taps do not fit in the registers."""
        fitting = [
            walk
            for turned in (False, True)
            if direction in ("", "turned" if turned else "straight")
            for block in range(1, min(BLOCK, conv.out_size[not turned]) + 1)
            for walk in [cls._along(conv, turned, block)]
            if walk._registers() <= REGISTERS
        ]
        return min(fitting, key=lambda walk: walk.cost(), default=None)

    @classmethod
    def _along(cls, conv: Conv, turned: bool, block: int) -> "Walk":
        def pair(of: tuple[int, int]) -> tuple[int, int]:
            return of[::-1] if turned else of

        return cls(
            kernel=pair(conv.kernel),
            stride=pair(conv.stride),
            dilation=pair(conv.dilation),
            plane=pair(conv.plane),
            copied=pair(
                (min(conv.size[0], conv.plane[0] - conv.pad[0]), min(conv.size[1], conv.plane[1] - conv.pad[1]))
            ),
            pad=pair(conv.pad),
            out_size=pair(conv.out_size),
            in_step=pair((conv.size[1] * conv.channels, conv.channels)),
            out_step=pair((conv.out_size[1] * conv.channels, conv.channels)),
            turned=turned,
            block=block,
        )

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return -(-self.out_size[1] // self.block)

    def _loaded(self) -> int:
        """Inputs that a block meets in one row of taps."""
        return len(
            {t * self.stride[1] + k * self.dilation[1] for t in range(self.block) for k in range(self.kernel[1])}
        )

    def _registers(self) -> int:
        return math.prod(self.kernel) + 1 + self.block + self._loaded()

    def cost(self) -> float:
        """Instructions a channel: two a product, the loads, four an output; three a copied element."""
        each = self.block * (2 * math.prod(self.kernel) + 4) + self.kernel[0] * self._loaded() + 6
        return self.out_size[0] * (self.blocks * each + 8) + 3 * math.prod(self.copied)


@dataclass(frozen=True)
class Plane(BaseSchedule):
    """Depthwise: a channel is copied with its padding into a plane; several outputs at a time slide over it.

    Products are added in the order of the portable loops. A channel has been read whole before any of it is written,
    and writes only its own places: the output may take the input's storage.
    """

    name = "f32_plane"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)
    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, one image, one output a channel, float32, taps that fit in registers, nothing read afterwards."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        alone = epilogue is not None and not node.attrs["epilogue"].operands()
        same = graph.types[node.outputs[0]].dtype is graph.types[node.inputs[0]].dtype
        return has_tiles(target) and shape and alone and same and Walk.of(conv, self.direction) is not None

    def _walk(self, node: Node, graph: Graph) -> Walk:
        walk = Walk.of(Conv.of(node, graph), self.direction)
        assert walk is not None
        return walk

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane."""
        return 4 * math.prod(Conv.of(node, graph).plane)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if the output is no larger."""
        return (0,) if graph.types[node.inputs[0]].bytes >= graph.types[node.outputs[0]].bytes else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See Walk."""
        return Conv.of(node, graph).channels * self._walk(node, graph).cost()

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue, walk = Conv.of(node, graph), FloatEpilogue.of(node, graph), self._walk(node, graph)
        assert epilogue is not None

        def result(acc: str, offset: str) -> str:
            if epilogue.rest is not None:
                return epilogue.text(node, graph, acc, offset)
            return f"mt_f32_relu({acc})" if epilogue.relu else acc

        body = template(
            "conv2d/f32_plane.c.j2",
            conv=conv,
            walk=walk,
            fused=(self.product or best_product(target)) == "fma",
            result=result,
        )
        taps = graph.constants[node.inputs[1]].reshape(conv.channels, *conv.kernel)
        weights = pack(taps.swapaxes(1, 2) if walk.turned else taps, graph.constants[node.inputs[2]])
        return epilogue.kernel(node, graph, body, weights, scratch=True)


def pack(taps: Array, bias: Array) -> Array:
    """Return float32 [C, 1 + taps]: a channel's bias, then its taps.

    Args:
        taps: float32 [C, slow, fast].
        bias: float32 [C].
    """
    return np.concatenate([bias[:, None], taps.reshape(taps.shape[0], -1)], axis=1).astype(np.float32)
