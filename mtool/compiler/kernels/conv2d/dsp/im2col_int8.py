"""Convolutions of int8 for SIMD32: patches become columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.dsp.tiles_int8 import HEADERS, SUFFIXES, Tiles, staged_results
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place, shrinks_by_rows
from mtool.compiler.kernels.conv2d.tile import Tile
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The layout of a convolution's patches in the columns.

    `rows` bytes of a patch row are copied by words; with `lasts` the one byte that a row has more goes into a word
    for all rows. `by_taps`: a tap's channels at a time, since they do not stand side by side. `order`: the index into
    the kernel of each byte of the column, -1 for filling.
    """

    row_words: int
    lasts: bool
    order: tuple[int, ...]
    by_taps: bool = False

    @classmethod
    def of(cls, conv: Conv) -> "ColumnLayout":
        """Choose: whole rows, rows and last bytes, rows filled up to words, or taps."""
        height, row = conv.kernel[0], conv.kernel[1] * conv.channels
        if conv.group > 1 or (conv.channels % 4 and conv.dilation != (1, 1)):
            order = (*range(conv.depth), *[-1] * (-conv.depth % 4))
            return cls(len(order) // 4, False, order, True)
        if row % 4 == 0:
            return cls(row // 4, False, tuple(range(height * row)))
        if row % 4 == 1 and row > 4 and height <= 4:
            body = [y * row + i for y in range(height) for i in range(row - 1)]
            lasts = [y * row + row - 1 for y in range(height)]
            return cls(row // 4, True, (*body, *lasts, *[-1] * (4 - height)))
        filled = round_up(row, 4)
        taps = (y * row + i if i < row else -1 for y in range(height) for i in range(filled))
        return cls(filled // 4, False, tuple(taps))

    def last_left(self, conv: Conv) -> int:
        """Return the image's last column from which a patch's row, filled up, is copied by words; negative: none."""
        copied = conv.kernel[1] * conv.channels if self.lasts else self.row_words * 4
        return (conv.size[1] * conv.channels - copied) // conv.channels

    def borders(self, conv: Conv) -> list[str]:
        """Return the C conditions under which a patch's rows are gathered byte by byte; "1": those of all patches."""
        last = self.last_left(conv)
        if last < 0 or conv.size[0] < conv.kernel[0]:
            return ["1"]
        farthest = (conv.out_size[1] - 1) * conv.stride[1] - conv.pad[1]
        before = ["left < 0"] if conv.pad[1] > 0 else []
        behind = [f"left > {last}"] if farthest > last else []
        return before + behind + conv.outside(0, "top", conv.kernel[0])

    def gathered(self, conv: Conv) -> int:
        """Return the bytes of a patch that is put together before it becomes a column; 0: all are copied by words."""
        bytewise = conv.channels % 4 != 0 and (self.lasts or self.borders(conv) != [])
        return len(self.order) if self.by_taps or bytewise else 0


class Im2col(Tiles):
    """k x k: the patches of a tile's pixels become columns of int16, multiplied with all channels, two at a time.

    Rows of a patch are copied by words inside the image; byte by byte on its border, unless a pixel is whole words.
    """

    name = "dsp_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int8 to int8, more than one input of a group."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_dsp and shape and self.takes(node, graph)

    def order(self, conv: Conv) -> Sequence[int]:
        """A patch, with what fills up its rows."""
        return ColumnLayout.of(conv).order

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """8 for four elements, 20 a row; 12 a tap that stands alone."""
        columns = ColumnLayout.of(conv)
        gather = 12 * math.prod(conv.kernel) if columns.by_taps else 20 * conv.kernel[0]
        return conv.pixels * (8 * len(columns.order) / 4 + gather)

    def _staged(self, conv: Conv, epilogue: Int8Epilogue | None, columns: ColumnLayout) -> int:
        """Bytes for one patch that is put together, or for results that are not stored directly."""
        return max(staged_results(conv, epilogue, self._tile(conv)), columns.gathered(conv))

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's columns, a row of results if they are stored a row at a time, what is staged."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        row = conv.out_size[1] * conv.out_channels if self._by_rows(node, graph) else 0
        return self._columns_bytes(conv) + row + self._staged(conv, epilogue, ColumnLayout.of(conv))

    def _by_rows(self, node: Node, graph: Graph) -> bool:
        """Whether the output may take the input's storage, if a row of it is held back until it is whole."""
        epilogue, conv = Int8Epilogue.of(node, graph), Conv.of(node, graph)
        stored_directly = epilogue is not None and epilogue.rest is None
        return stored_directly and conv.group == 1 and shrinks_by_rows(conv, self._tile(conv).pixels)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if it shrinks fast enough; a residual operand that is not its input."""
        return own_in_place(node, graph, possible=self._by_rows(node, graph))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self.packed(node, graph)
        epilogue = packed.epilogue
        columns, tile = ColumnLayout.of(conv), self._tile(conv)
        function = packed.function(self.loop(node, graph), SUFFIXES[tile.name])
        body = template(
            "kernels/conv2d/dsp/im2col_int8.c.j2",
            conv=conv,
            columns=columns,
            borders=columns.borders(conv),
            tile=tile,
            function=function,
            suffix=SUFFIXES[tile.name],
            depth=self._padded(conv),
            summed=round_up(len(self.order(conv)), 4) if conv.offset else 0,
            stream=packed.stream.size // conv.group,
            epilogue=epilogue,
            staged=self._staged(conv, epilogue, columns) > 0,
            by_rows=self._by_rows(node, graph),
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(
            node, graph, body, packed.stream, packed.layout, HEADERS[tile.name], "int32_t", function.shared
        )


SCHEDULE = Im2col()
