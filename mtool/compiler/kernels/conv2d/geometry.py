"""The numbers of a convolution."""

import math
from collections.abc import Callable
from dataclasses import field, replace
from typing import Self

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, Graph, Node, WithEpilogue
from mtool.compiler.kernels.conv2d.node import Conv2d, Pair
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import identity_loads, residual_operands
from mtool.compiler.kernels.weighted_sum import weight_offset


@frozen
class Conv:
    """The numbers of one convolution: sizes in elements, pads as (top, left), the offset of its stored weights."""

    batch: int
    size: tuple[int, int]
    channels: int
    out_size: tuple[int, int]
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    group: int
    pad_value: int
    offset: int = 0

    @staticmethod
    def of(node: Node, graph: Graph) -> "Conv":
        """Return the numbers of a conv2d node."""

        def build() -> "Conv":
            n, h, w, c = graph.types[node.inputs[0]].shape
            _, out_h, out_w, out_c = graph.types[node.outputs[0]].shape
            attrs = Conv2d.of(node)
            return Conv(
                n, (h, w), c, (out_h, out_w), out_c, attrs.kernel, attrs.strides,
                attrs.pads[:2], attrs.dilations, attrs.group, attrs.pad_value, weight_offset(node, graph),
            )  # fmt: skip

        return graph.of_node(node, "conv", build)

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel depends on one input channel."""
        return self.group == self.channels and self.group > 1

    @property
    def is_channelwise(self) -> bool:
        """Whether it is depthwise, of one image, with one output channel for each of the input."""
        return self.is_depthwise and self.batch == 1 and self.out_channels == self.channels

    @property
    def is_depthwise_3x3(self) -> bool:
        """Whether it is channelwise, 3x3, with the stride 1 or 2 both ways."""
        plain = self.kernel == (3, 3) and self.dilation == (1, 1) and self.stride in ((1, 1), (2, 2))
        return self.is_channelwise and plain

    @property
    def keeps_shape(self) -> bool:
        """Whether the output has the input's shape."""
        return (self.size, self.channels) == (self.out_size, self.out_channels)

    @property
    def shrinks(self) -> bool:
        """Whether the output has no more elements than the input."""
        return self.pixels * self.out_channels <= math.prod(self.size) * self.channels

    @property
    def pixels(self) -> int:
        """Output pixels of one image."""
        return self.out_size[0] * self.out_size[1]

    @property
    def depth(self) -> int:
        """Multiply-accumulates of one output: the length of its patch."""
        return math.prod(self.kernel) * self.channels // self.group

    @property
    def is_pointwise(self) -> bool:
        """Whether it is 1x1, stride 1, without padding: pixel by pixel."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.pad == (0, 0) and self.out_size == self.size

    @property
    def tap_step(self) -> int:
        """Elements from each tap of a window to the next; 0: they are not the same, or taps lie in the padding."""
        (rows, columns), (down, right) = self.kernel, self.dilation
        if self.pad != (0, 0) or any(n > size for n, size in zip(self.plane, self.size, strict=True)):
            return 0
        if rows == 1 or (columns == self.size[1] and self.dilation == (1, 1)):
            return right * self.channels
        return down * self.size[1] * self.channels if columns == 1 else 0

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of one channel with as much padding as the outputs reach."""
        return tuple(  # type: ignore[return-value]
            (self.out_size[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i] + 1 for i in (0, 1)
        )

    @property
    def ring(self) -> "Ring":
        """The ring of input rows that its outputs read."""
        return Ring.of(self)

    @property
    def meets_the_image(self) -> bool:
        """Whether every patch has a row and a column of the image."""
        reach = [(self.kernel[i] - 1) * self.dilation[i] + 1 for i in (0, 1)]
        return all(
            self.pad[i] < reach[i] and (self.out_size[i] - 1) * self.stride[i] - self.pad[i] < self.size[i]
            for i in (0, 1)
        )

    def outside(self, axis: int, name: str, count: int = 1, unit: int = 1) -> list[str]:
        """Return the C conditions under which some of `count` rows or columns from `name` on lie outside the image.

        Rows that no window of this convolution reads are left out. axis: 0: rows, 1: columns. `unit`: what a row or
        column counts in `name`.
        """
        before = [f"{name} < 0"] if self.pad[axis] > 0 else []
        last = self.plane[axis] - 1 - self.pad[axis]
        size = self.size[axis] * unit
        limit = f"{name} >= {size}" if count == 1 else f"{name} > {size - count}"
        return before + ([limit] if last >= self.size[axis] else [])

    def inside(self, axis: int, name: str, count: int = 1, unit: int = 1) -> list[str]:
        """Return the C conditions under which all of them lie inside; see `outside`."""
        negated = {"<": ">=", ">=": "<", ">": "<="}
        tests = (test.split() for test in self.outside(axis, name, count, unit))
        return [f"{left} {negated[sign]} {right}" for left, sign, right in tests]


# Register tiles: how many pixels by how many output channels a schedule's inner loop computes together.


@frozen
class Tile:
    """Pixels by output channels."""

    pixels: int
    channels: int

    @classmethod
    def named(cls, name: str) -> "Tile":
        """Return the tile of a name: 4x2."""
        pixels, channels = map(int, name.split("x"))
        return cls(pixels, channels)

    @property
    def name(self) -> str:
        """Its name in knobs."""
        return f"{self.pixels}x{self.channels}"

    @classmethod
    def chosen(cls, usual: str, other: str, cost: Callable[["Tile"], float], saving: float = 0.2) -> "Tile":
        """Return the usual tile, or another that reads the weights more often if that saves `saving` of the cost."""
        first, second = cls.named(usual), cls.named(other)
        return second if cost(second) < (1 - saving) * cost(first) else first

    def columns(self, conv: Conv) -> int:
        """Return the number of pixel steps for one group; the last may have fewer pixels than the tile."""
        return math.ceil(conv.pixels / self.pixels)

    def channel_steps(self, conv: Conv) -> int:
        """Return the number of channel steps of a group; the last may be partial too."""
        return math.ceil(conv.out_channels / conv.group / self.channels)


# Traversal of a channel in a depthwise convolution: along its rows or columns, several outputs at a time.


# The direction in which a depthwise schedule goes over a channel's plane: a knob of each of them.
DIRECTIONS = ("straight", "turned")
DIRECTION_MEANING = "inner loop along rows, or along columns of a transposed plane; auto: by instructions"


@frozen
class Traversal:
    """The plane of a channel as it is traversed: all pairs are (slow, fast); steps are elements of the tensors.

    transposed: the slow axis is that of the columns.
    """

    size: Pair
    out_size: Pair
    pad: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    in_step: Pair
    out_step: Pair
    transposed: bool = field(kw_only=True)

    @classmethod
    def ways(cls, conv: Conv, direction: str = "") -> list[Self]:
        """Return the ways to traverse it: "straight", "turned" or "" for both."""
        in_step = (conv.size[1] * conv.channels, conv.channels)
        out_step = (conv.out_size[1] * conv.out_channels, conv.out_channels)
        numbers = (conv.size, conv.out_size, conv.pad, conv.kernel, conv.stride, conv.dilation, in_step, out_step)
        turned = ((fast, slow) for slow, fast in numbers)
        traversals = {"straight": cls(*numbers, transposed=False), "turned": cls(*turned, transposed=True)}
        return [way for name, way in traversals.items() if direction in ("", name)]

    @property
    def plane(self) -> Pair:
        """Rows and columns with as much padding as the outputs reach."""
        slow, fast = (
            (out - 1) * stride + (kernel - 1) * dilation + 1
            for out, stride, kernel, dilation in zip(
                self.out_size, self.stride, self.kernel, self.dilation, strict=True
            )
        )
        return slow, fast

    @property
    def copied(self) -> Pair:
        """Rows and columns of the input that outputs reach."""
        slow, fast = (min(n, most - pad) for n, most, pad in zip(self.size, self.plane, self.pad, strict=True))
        return slow, fast

    def turned_taps(self, taps: Array) -> Array:
        """Return taps [N, rows, columns] along (slow, fast)."""
        return taps.swapaxes(1, 2) if self.transposed else taps


@frozen
class BlockTraversal(Traversal):
    """A traversal in which `block` adjacent outputs on the fast axis share the inputs that they load.

    The last block of a row ends with it: it computes some outputs again if the row is not whole blocks.
    """

    block: int = 1

    @classmethod
    def all(cls, conv: Conv, direction: str, most: int) -> list[Self]:
        """Return the ways, of up to `most` outputs a block; direction: "straight", "turned" or "" for both."""
        ways = cls.ways(conv, direction)
        return [replace(way, block=block) for way in ways for block in range(1, min(most, way.out_size[1]) + 1)]

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return -(-self.out_size[1] // self.block)

    @property
    def block_inputs(self) -> list[int]:
        """The positions of the inputs that a block reads for one row of taps."""
        return sorted(
            {t * self.stride[1] + k * self.dilation[1] for t in range(self.block) for k in range(self.kernel[1])}
        )


# The ring of input rows that depthwise convolutions of any kernel copy for vectors.


@frozen
class Ring:
    """The rows that the kernel spans: each has `columns` with padding, of which `copied` come from the input."""

    rows: int
    columns: int
    copied: int

    @classmethod
    def of(cls, conv: Conv) -> "Ring":
        """Return the ring that the outputs need."""
        copied = min(conv.size[1], conv.plane[1] - conv.pad[1])
        columns = max(conv.plane[1], copied + conv.pad[1])
        return cls((conv.kernel[0] - 1) * conv.dilation[0] + 1, columns, copied)


# Blocks of Winograd's F(2x2, 3x3): two tiles side by side, 2x4 outputs of 4x6 inputs.


OUTPUTS = (2, 4)
INPUTS = (4, 6)


@frozen
class Blocks:
    """The blocks of a convolution; `pixel`: the elements read for a pixel, at least its channels."""

    conv: Conv
    pixel: int

    @staticmethod
    def can_compute(conv: Conv) -> bool:
        """Whether a convolution is 3x3 with stride 1, of one group."""
        return (conv.kernel, conv.stride, conv.dilation, conv.group) == ((3, 3), (1, 1), (1, 1), 1)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of blocks in an image, vertically and horizontally."""
        (height, width), (rows, columns) = self.conv.out_size, OUTPUTS
        return -(-height // rows), -(-width // columns)

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return self.conv.batch * self.counts[0] * self.counts[1]

    @property
    def gathered(self) -> float:
        """Return how many blocks are gathered first, about."""
        if self.borders == ["1"]:
            return self.count
        return min(self.count, 2 * self.count / min(self.counts)) if self.borders else 0

    @property
    def borders(self) -> list[str]:
        """Return the C conditions under which a block's inputs are gathered first; "1": always."""
        conv = self.conv
        if self.pixel > conv.channels or any(size < most for size, most in zip(conv.size, INPUTS, strict=True)):
            return ["1"]
        conditions = []
        for axis, (name, step) in enumerate(zip(("top", "left"), OUTPUTS, strict=True)):
            last = round_up(conv.out_size[axis], step) - step - conv.pad[axis]
            limit = conv.size[axis] - INPUTS[axis]
            conditions += [f"{name} < 0"] if conv.pad[axis] else []
            conditions += [f"{name} > {limit}"] if last > limit else []
        return conditions

    @property
    def patch(self) -> int:
        """Return the number of gathered input elements; 0: none."""
        return INPUTS[0] * INPUTS[1] * self.pixel if self.borders else 0


# Convolutions that may write their output over their input.


def pointwise_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output may overwrite in a kernel that gathers each pixel before it writes it."""
    conv = Conv.of(node, graph)
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    residuals = residual_operands(node, graph)
    shrinks = conv.out_channels * y.dtype.size <= conv.channels * x.dtype.size
    pixel_by_pixel = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and shrinks
    return (0, *residuals) if pixel_by_pixel and spares_input(node, graph, by_element=True) else residuals


def spares_input(node: Node, graph: Graph, *, by_element: bool) -> bool:
    """Return whether the epilogue reads nothing of the kernel's input that is overwritten.

    If `by_element`, each result is complete before the next one, and a residual is read where the result is written.
    """
    epilogue = WithEpilogue.of(node).epilogue
    reads = {number for number in epilogue.operands() if node.inputs[number] == node.inputs[0]}
    return reads <= ({*identity_loads(node, graph, epilogue)} - {0} if by_element else set())


def shrinks_by_rows(conv: Conv, pixels: int) -> bool:
    """Whether each row of outputs ends before the input that the next one reads, and is whole groups of `pixels`."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return conv.out_size[1] % pixels == 0 and all(
        (y + 1) * out_row <= max(0, (y + 1) * conv.stride[0] - conv.pad[0]) * in_row
        for y in range(conv.out_size[0] - 1)
    )


def reads_ahead(conv: Conv, rows: int) -> bool:
    """Whether each row of outputs ends before the input that is not yet in a ring of `rows` rows."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return all(
        (y + 1) * out_row <= max(0, min(conv.size[0], y * conv.stride[0] - conv.pad[0] + rows)) * in_row
        for y in range(conv.out_size[0])
    )
