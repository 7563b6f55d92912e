"""The numbers of a convolution."""

import math
from dataclasses import dataclass
from typing import Self

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.weight_offset import weight_offset


@dataclass(frozen=True, slots=True)
class Conv:
    """The numbers of one convolution; sizes in elements, pads as (top, left); what its stored weights are without."""

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

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self:
        """Read them off a conv2d node."""
        n, h, w, c = graph.types[node.inputs[0]].shape
        _, out_h, out_w, out_c = graph.types[node.outputs[0]].shape
        attrs = Conv2d.of(node)
        return cls(
            n, (h, w), c, (out_h, out_w), out_c, attrs.kernel, attrs.strides,
            attrs.pads[:2], attrs.dilations, attrs.group, attrs.pad_value, weight_offset(node, graph),
        )  # fmt: skip

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel depends on one input channel."""
        return self.group == self.channels and self.group > 1

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
    def plane(self) -> tuple[int, int]:
        """Rows and columns of one channel with as much padding as the outputs reach."""
        return tuple(  # type: ignore[return-value]
            (self.out_size[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i] + 1 for i in (0, 1)
        )

    @property
    def meets_the_image(self) -> bool:
        """Whether every patch has a row and a column of the image."""
        reach = [(self.kernel[i] - 1) * self.dilation[i] + 1 for i in (0, 1)]
        return all(
            self.pad[i] < reach[i] and (self.out_size[i] - 1) * self.stride[i] - self.pad[i] < self.size[i]
            for i in (0, 1)
        )

    def outside(self, axis: int, name: str, count: int = 1, each: int = 1) -> list[str]:
        """Return the C conditions under which some of `count` rows or columns from `name` on lie outside the image.

        Rows that no window of this convolution reads are left out. axis: 0: rows, 1: columns. `each`: what a row or
        column counts in `name`.
        """
        before = [f"{name} < 0"] if self.pad[axis] > 0 else []
        last = self.plane[axis] - 1 - self.pad[axis]
        size = self.size[axis] * each
        limit = f"{name} >= {size}" if count == 1 else f"{name} > {size - count}"
        return before + ([limit] if last >= self.size[axis] else [])

    def inside(self, axis: int, name: str, count: int = 1, each: int = 1) -> list[str]:
        """Return the C conditions under which all of them lie inside; see `outside`."""
        negated = {"<": ">=", ">=": "<", ">": "<="}
        tests = (test.split() for test in self.outside(axis, name, count, each))
        return [f"{left} {negated[sign]} {right}" for left, sign, right in tests]
