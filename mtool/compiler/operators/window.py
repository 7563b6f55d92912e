"""Sliding windows in one or more dimensions: the attributes of all convolutions and pools."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mtool.base import plural
from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import choose, every, inside
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.onnx_node import Attrs, OnnxNode
from mtool.compiler.operators.problems import Unsupported

Pair = tuple[int, int]

CONV = "Conv"
"""The operator's name, shared by frontends, passes and backends."""


class Window(Attributes):
    """A window over the spatial dimensions; each tuple has one number per dimension, in elements.

    kernel, strides, dilations: at least 1.
    pads: before each dimension, then behind each; for ConvTranspose only before each.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.kernel)

    def ends(self, out_size: Sequence[int]) -> tuple[int, ...]:
        """Return the end (exclusive) of `out_size` windows along each dimension."""
        sizes = zip(out_size, self.kernel, self.strides, self.dilations, self.pads, strict=False)
        return tuple((count - 1) * stride + (taps - 1) * step + 1 - pad for count, taps, stride, step, pad in sizes)

    def inside(self, size: Sequence[int], out_size: Sequence[int]) -> list[Array]:
        """Return, for each dimension, how many taps of each of `out_size` windows lie inside an input of `size`."""
        counts = []
        for n in range(self.rank):
            taps = np.arange(self.kernel[n]) * self.dilations[n] - self.pads[n]
            places = (np.arange(out_size[n]) * self.strides[n])[:, None] + taps
            counts.append(((places >= 0) & (places < size[n])).sum(axis=1))
        return counts


class Convolution(Window):
    """Conv, ConvInteger, ConvTranspose: a window with `group` groups of channels."""

    group: int = 1


class Pool(Window):
    """MaxPool, AveragePool, LpPool and their global forms.

    count_pads: the average counts padding as zeros, up to `limits`.
    limits: for each dimension, the end of the counted elements.
    p: the norm's order, at least 1.
    """

    kind: Literal["max", "average", "lp"]
    count_pads: bool
    limits: tuple[int, ...]
    p: int


def pair(values: tuple[int, ...], single: int) -> Pair:
    """Return the numbers of one or two dimensions as (vertical, horizontal), with `single` for a missing one."""
    return (values[0], values[1]) if len(values) == 2 else (single, values[0])


def four_pads(pads: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return the padding of one or two dimensions as top, left, bottom, right."""
    spatial = len(pads) // 2
    return (*pair(pads[:spatial], 0), *pair(pads[spatial:], 0))


def spatial_attributes(attrs: Attrs, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return strides, dilations and pads for `rank` dimensions; the defaults are 1, 1 and 0."""
    pads = tuple(attrs.get("pads") or (0,) * 2 * rank)
    return tuple(attrs.get("strides") or (1,) * rank), tuple(attrs.get("dilations") or (1,) * rank), pads


def window_of(node: OnnxNode, kernel: tuple[int, ...]) -> Window:
    """Return a convolution's explicit strides, dilations and pads, with auto_pad resolved.

    Raises:
        Unsupported: they do not fit the input.
    """
    spatial, result, rank, attrs = node.shape[2:], node.result.shape[2:], len(kernel), node.attrs
    strides, dilations, pads = spatial_attributes(attrs, rank)
    if not len(spatial) == len(result) == len(strides) == len(dilations) == rank:
        raise Unsupported(f"its kernel has {rank} dimensions; its input has {len(spatial)}")
    check_window(attrs, kernel, strides, dilations)
    begin, end = [], []
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        missing = max((result[i] - 1) * strides[i] + span - spatial[i], 0)
        mode = attrs.get("auto_pad", "NOTSET")
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            before = missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
        elif mode == "VALID":
            before = 0
        else:
            before = pads[i]
        begin.append(before)
        end.append(max(missing - before, 0))  # the padding that the output really uses
    return Window(kernel=tuple(kernel), strides=strides, dilations=dilations, pads=(*begin, *end))


def check_window(attrs: Attrs, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> None:
    """Check that numbers are in range.

    Raises:
        Unsupported: one is.
    """
    if min((*strides, *dilations, *kernel), default=1) < 1 or min(attrs.get("pads") or (0,)) < 0:
        raise Unsupported("a stride, dilation, kernel size or padding is out of range")


def check_windows_fit(node: OnnxNode) -> None:
    """Check that a convolution's window fits into its input; onnx's shape inference rounds the difference away.

    Raises:
        Unsupported: it does not.
    """
    x, w = node.shapes[:2]
    if len(x) != len(w):
        return
    mode, spatial, kernel = node.attrs.get("auto_pad", "NOTSET"), x[2:], w[2:]
    if mode in ("SAME_UPPER", "SAME_LOWER") or 0 in spatial:
        return
    rank = len(kernel)
    _, dilations, pads = spatial_attributes(node.attrs, rank)
    for index, size in enumerate(spatial):
        span = (kernel[index] - 1) * dilations[index] + 1
        padded = size if mode == "VALID" else size + pads[index] + pads[rank + index]
        if padded < span:
            raise Unsupported(f"its window spans {span:,} elements; its padded input has {padded:,}")


def convolution_form(node: OnnxNode) -> None:
    """The canonical form of Conv and ConvInteger: padding is explicit.

    Raises:
        Unsupported: the filters do not fit the input.
    """
    x, w, group = node.shape, node.kind(1).shape, node.attrs.get("group", 1)
    if len(x) < 3 or len(x) != len(w):
        raise Unsupported(f"its input has {plural.count(len(x), 'dimension')}; its filters have {len(w)}")
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        raise Unsupported(f"its {x[1]} input channels do not fit its {w[0]}x{w[1]} filters in {group} groups")
    window = window_of(node, w[2:])
    node.emit(Convolution(group=group, **vars(window)))


def has_kernel(filters: tuple[int, ...], attrs: Attrs) -> bool:
    """Whether the attribute kernel_shape is the filters' shape."""
    return tuple(attrs.get("kernel_shape", filters[2:])) == filters[2:]


def position(output: Expr, tap: Expr, node: Node, i: int) -> Expr:
    """Return the position of an output's tap along spatial dimension i."""
    attrs = Window.of(node)
    moved = output * attrs.strides[i] + tap * attrs.dilations[i]
    return moved - attrs.pads[i]


def within(position: Expr, node: Node, i: int, size: int, result: int) -> list[Expr]:
    """Return the conditions to test for a position to be inside the input."""
    attrs = Window.of(node)
    last = (result - 1) * attrs.strides[i] + (attrs.kernel[i] - 1) * attrs.dilations[i] - attrs.pads[i]
    tests = inside(position, size)
    return [tests[0]] * (attrs.pads[i] > 0) + [tests[1]] * (last >= size)


def guarded(conditions: Sequence[Expr], value: Expr, otherwise: Expr) -> Expr:
    """Return a value where all conditions hold, otherwise another one."""
    condition = every(conditions)
    return value if condition is None else choose(condition, value, otherwise)
