"""Convolutions by register tiles: the columns of some pixels stand in scratch and are multiplied with all channels."""

from typing import Any, ClassVar

from mtool.compiler.ir import DType
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile, shrinks_by_rows
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, T
from mtool.compiler.kernels.epilogues import Products
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target


class TileSchedule(ConvSchedule[T]):
    """The family of register tiles: a schedule states its tile, its products and their packing.

    The patches of a tile's pixels are gathered as columns and multiplied with all channels, a tile's at a time. The
    loops, the last pixels, staged results and what follows them are common: conv2d/tiles.c.j2, which the schedule's
    template extends by what makes a column.

    Attributes:
        tiles: the tiles that it has, pixels x channels; the usual one first.
        saving: the part of the cost that another tile has to save.
        template: the path of the schedule's own part of it.
        element: the type of a column's elements.
        scratch_type: that of the scratch, in C.
        pointwise: whether it is for 1x1 layers alone, pixel by pixel; the output may take the input's storage then.
        apart: whether the function of the runtime is told where to store each pixel's results.
        holds_rows: whether a row of results can be held back, so that the output may take the input's storage.
    """

    tiles: ClassVar[tuple[str, ...]]
    saving: ClassVar[float] = 0.2
    template: ClassVar[str]
    element: ClassVar[DType]
    scratch_type: ClassVar[str]
    pointwise: ClassVar[bool] = False
    apart: ClassVar[bool] = False
    holds_rows: ClassVar[bool] = False

    tile: str = ""

    def shape(self, conv: Conv) -> Tile:
        """Return the tile: the one asked for, or the usual one unless another saves enough."""
        usual, other = self.tiles[0], self.tiles[-1]
        if self.tile or usual == other:
            return Tile.named(self.tile or usual)
        return Tile.chosen(usual, other, lambda tile: self.cost_of(conv, tile), self.saving)

    def cost_of(self, conv: Conv, tile: Tile) -> float:
        """Return the instructions with a tile, by which it is chosen."""
        raise NotImplementedError

    def depth(self, conv: Conv) -> int:
        """Return the elements of a column, filled up."""
        raise NotImplementedError

    def gathered(self, conv: Conv) -> int:
        """Return the elements of a patch that is put together before it becomes a column; 0: it becomes one at once."""
        return 0

    def products(self, conv: Conv, epilogue: T, target: Target) -> Products:
        """Return the packed weights and the function of the runtime."""
        raise NotImplementedError

    def values(self, conv: Conv, epilogue: T) -> dict[str, Any]:
        """Return what the schedule's template reads besides."""
        return {}

    def fits(self, conv: Conv, epilogue: T) -> bool:
        """Return whether the convolution is of one image: 1x1 without groups, or any that is not depthwise."""
        shape = conv.is_pointwise and conv.group == 1 if self.pointwise else not conv.is_depthwise
        return conv.batch == 1 and shape

    def is_pixelwise(self, conv: Conv) -> bool:
        """Return whether there are no patches: a tile's pixels are read before their results are written."""
        return self.pointwise

    def by_rows(self, conv: Conv, epilogue: T) -> bool:
        """Return whether a row of results is held back until its input is no longer wanted."""
        plain = self.holds_rows and not self.pointwise and conv.group == 1 and epilogue.rest is None
        return plain and shrinks_by_rows(conv, self.shape(conv).pixels)

    def staged(self, conv: Conv, epilogue: T) -> int:
        """Return how many results are not stored directly: a tile's, or those of pixels that nobody wants."""
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
        gathered = self.gathered(conv) * epilogue.graph.types[epilogue.node.inputs[0]].dtype.size
        return self.columns_bytes(conv) + row + max(self.staged(conv, epilogue) * epilogue.kind.size, gathered)

    def over_input(self, conv: Conv, epilogue: T) -> bool:
        """If it is computed pixel by pixel or row by row."""
        return self.is_pixelwise(conv) or self.by_rows(conv, epilogue)

    def kernel(self, conv: Conv, epilogue: T, target: Target) -> Kernel:
        """Write the function."""
        tile, products = self.shape(conv), self.products(conv, epilogue, target)
        left_over = conv.pixels % tile.pixels
        return epilogue.kernel(
            self.template,
            products,
            self.scratch_type,
            conv=conv,
            tile=tile,
            depth=self.depth(conv),
            stream=products.weights.size // conv.group,
            pixelwise=self.is_pixelwise(conv),
            backward=conv.out_channels > conv.channels,
            left_over=left_over,
            whole=conv.pixels - left_over,
            by_rows=self.by_rows(conv, epilogue),
            staged=self.staged(conv, epilogue),
            **self.values(conv, epilogue),
        )
