"""The common part of the schedules of convolutions."""

from typing import Any, ClassVar, TypeVar

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.conv2d.geometry import (
    Conv,
    Tile,
    pointwise_in_place,
    reads_ahead,
    shrinks_by_rows,
    spares_input,
)
from mtool.compiler.kernels.epilogues import EpilogueText, FloatEpilogue, Int8Epilogue, TileEpilogue
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Target, residual_operands
from mtool.compiler.kernels.sum_schedule import E, SumSchedule

T = TypeVar("T", bound=TileEpilogue)


class ConvSchedule(SumSchedule[Conv, E]):
    """A schedule that is defined by the numbers of a convolution and its epilogue.

    over_operands: whether the output may take the storage of the epilogue's operands, element by element.
    has_ring: whether rows of the input are copied into a ring and may then be overwritten.
    """

    sizes_name = "conv"
    over_operands: ClassVar[bool] = True
    has_ring: ClassVar[bool] = False

    def sizes(self, node: Node, graph: Graph) -> Conv:
        """The numbers."""
        return Conv.of(node, graph)

    def over_input(self, conv: Conv, epilogue: E) -> bool:
        """Return whether the output may take the input's storage, if its elements are of the same size."""
        return self.has_ring and reads_ahead(conv, conv.ring.rows)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """The input if `over_input` says so and the epilogue spares it; the epilogue's operands."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        alone = x.dtype.size == y.dtype.size and spares_input(node, graph, by_element=self.over_operands)
        first = (0,) if alone and self.over_input(*self.layer(node, graph)) else ()
        return (*first, *residual_operands(node, graph)) if self.over_operands else first


class PortableSchedule(ConvSchedule[EpilogueText]):
    """A schedule that writes the epilogue out around each result."""

    forms = (EpilogueText,)


class PatchSchedule(PortableSchedule):
    """One that gathers each pixel before it writes it."""

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)


class TileSchedule(ConvSchedule[T]):
    """The family of register tiles: a schedule states its tile, its products and their packing.

    The patches of a tile's pixels are gathered as columns and multiplied by all channels, a tile's at a time. The
    loops, the last pixels, staged results and the epilogue are common: conv2d/tiles.c.j2, which the schedule's template
    extends with the code that builds a column.

    Attributes:
        tiles: the available tiles, pixels x channels; the usual one first.
        saving: the share of the cost that another tile has to save.
        element: the type of a column's elements.
        pointwise: whether it is only for 1x1 layers, pixel by pixel; the output may take the input's storage then.
        apart: whether the runtime's function has a destination argument for each pixel's results.
        holds_rows: whether a row of results can be held back, so that the output may take the input's storage.
    """

    tiles: ClassVar[tuple[str, ...]]
    saving: ClassVar[float] = 0.2
    element: ClassVar[DType]
    pointwise: ClassVar[bool] = False
    apart: ClassVar[bool] = False
    holds_rows: ClassVar[bool] = False

    tile: str = ""

    def shape(self, conv: Conv) -> Tile:
        """Return the tile: the selected one, or the usual one unless another saves enough."""
        usual, other = self.tiles[0], self.tiles[-1]
        if self.tile or usual == other:
            return Tile.named(self.tile or usual)
        return Tile.chosen(usual, other, lambda tile: self.cost_of(conv, tile), self.saving)

    def cost_of(self, conv: Conv, tile: Tile) -> float:
        """Return the instructions with a tile, by which it is chosen."""
        raise NotImplementedError

    def depth(self, conv: Conv) -> int:
        """Return the elements of a column, padded."""
        raise NotImplementedError

    def gathered(self, conv: Conv) -> int:
        """Return the elements of a patch that is gathered before it becomes a column; 0: it becomes one directly."""
        return 0

    def fits(self, conv: Conv, epilogue: T) -> bool:
        """Return whether the convolution is of one image: 1x1 without groups, or any that is not depthwise."""
        shape = conv.is_pointwise and conv.group == 1 if self.pointwise else not conv.is_depthwise
        return conv.batch == 1 and shape

    def is_pixelwise(self, conv: Conv) -> bool:
        """Return whether there are no patches: a tile's pixels are read before their results are written."""
        return self.pointwise

    def by_rows(self, conv: Conv, epilogue: T) -> bool:
        """Return whether a row of results is held back until its input is no longer needed."""
        plain = self.holds_rows and not self.pointwise and conv.group == 1 and epilogue.rest is None
        return plain and shrinks_by_rows(conv, self.shape(conv).pixels)

    def staged(self, conv: Conv, epilogue: T) -> int:
        """Return the number of results that are not stored directly: a tile's, or those of unused pixels."""
        tile, channels = self.shape(conv), conv.out_channels // conv.group
        filled = round_up(channels, tile.channels)
        if epilogue.rest is not None or filled > channels:
            return tile.pixels * filled
        return (1 if self.apart else tile.pixels) * filled if conv.pixels % tile.pixels else 0

    def columns_bytes(self, conv: Conv) -> int:
        """Return the bytes of a tile's columns."""
        return self.shape(conv).pixels * self.depth(conv) * self.element.size

    def scratch(self, conv: Conv, epilogue: T) -> int:
        """A tile's columns, a row of results that is held back, a patch or results that are not stored directly."""
        row = conv.out_size[1] * conv.out_channels if self.by_rows(conv, epilogue) else 0
        gathered = self.gathered(conv) * epilogue.x.size
        return self.columns_bytes(conv) + row + max(self.staged(conv, epilogue) * epilogue.kind.size, gathered)

    def over_input(self, conv: Conv, epilogue: T) -> bool:
        """If it is computed pixel by pixel or row by row."""
        return self.is_pixelwise(conv) or self.by_rows(conv, epilogue)

    def values(self, conv: Conv, epilogue: T, target: Target) -> dict[str, Any]:
        """The variables of conv2d/tiles.c.j2."""
        tile = self.shape(conv)
        left_over = conv.pixels % tile.pixels
        return {
            "tile": tile,
            "depth": self.depth(conv),
            "pixelwise": self.is_pixelwise(conv),
            "left_over": left_over,
            "whole": conv.pixels - left_over,
            "by_rows": self.by_rows(conv, epilogue),
            "staged": self.staged(conv, epilogue),
        }


class FloatTiles(TileSchedule[FloatEpilogue]):
    """Register tiles of float32; a 1x1 layer runs in place: forwards, or backwards if it grows."""

    element = DType.FLOAT32

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """Return whether the convolution is of one image and one group, without a dilation of columns."""
        return conv.group == 1 and conv.batch == 1 and conv.dilation[1] == 1

    def is_pixelwise(self, conv: Conv) -> bool:
        """If 1x1."""
        return conv.is_pointwise

    def depth(self, conv: Conv) -> int:
        """Whole steps."""
        return round_up(conv.depth, 4)


class TapsSchedule(ConvSchedule[Int8Epilogue]):
    """Depthwise: pixel by pixel, `together` channels at a time, taps from where the input lies."""

    forms = (Int8Epilogue,)
    over_operands = False
    together: ClassVar[int]

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Whole vectors of channels, no padding, taps at equal distances; int8 to 8 bits."""
        int8 = epilogue.weights.dtype == np.int8 and epilogue.stores_kind
        return conv.is_channelwise and int8 and conv.channels % self.together == 0 and conv.tap_step > 0

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """No pixel of results lies behind the first that it reads."""
        return True
