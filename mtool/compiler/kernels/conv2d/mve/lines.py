"""Convolutions of int8 for Helium whose windows lie in one piece: depthwise ones, and those with few channels a group.

The inner loops, and where lines are stored: crt/include/mt_mve_lines_int8.h.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.node import Pair
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.mve import INT8_LANES
from mtool.compiler.kernels.packing import by_turns, numbers_of, round_up
from mtool.compiler.kernels.schedule import Target

WINDOWS = 4  # of a step
AT_ONCE = 8  # bytes of a line that are copied together
OFFSET = 127  # the largest of a load, in bytes,
REACH = 1 << 16  # and of a scatter
# Windows and sets of weights, in the order in which the results of a step are stored.
LANES = ((0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (3, 0), (1, 1), (3, 1))
BY = {
    "": "MT_BY_FLOAT", "_near": "MT_BY_NEAR_FLOAT", "_odd": "MT_BY_ODD_FLOAT", "_twice": "MT_TWICE", "_once": "MT_ONCE"
}  # fmt: skip


@frozen
class Lines:
    """How a convolution is computed by lines.

    Attributes:
        axis: of the image along which lines go, 1: rows.
        taps: the bytes to the next tap along and across the line.
        inputs: the channels of a group.
        vectors: those of a window.
        before: how many bytes the second set of weights begins before the first; 0: it is another channel's.
        apart: the bytes from a window to the next.
        is_whole: whether all results of a step are stored.
        bytes: those of all lines.
        read: for each window across lines, the lines of results up to it, and those of the input that were read.
        fields: the runtime's parameters of a layer (struct mt_mve_lines), without what depends on the scaling.
        cost: instructions with sums that are scaled by near floats, and by others.
    """

    axis: int
    taps: Pair
    inputs: int
    vectors: int
    before: int
    apart: int
    is_whole: bool
    bytes: int
    read: tuple[Pair, ...]
    fields: Mapping[str, int | tuple[int, ...]]
    cost: Pair

    @classmethod
    def of(cls, conv: Conv, axis: int, way: str) -> Self | None:
        """Return the lines along an axis; None: an offset does not reach as far as it has to.

        way: two results share a window: the next one "along" the line or "across" it, or that of the next of the
        "channels".
        """

        def turned(pair: Pair) -> Pair:
            return pair[axis], pair[1 - axis]

        def bytes_of(size: Pair, channels: int) -> Pair:
            return turned((size[1] * channels, channels))

        channels, inputs, outputs = conv.channels, conv.channels // conv.group, conv.out_channels // conv.group
        stride, pad, dilation = turned(conv.stride), turned(conv.pad), turned(conv.dilation)
        reach = tuple((k - 1) * d + 1 for k, d in zip(turned(conv.kernel), dilation, strict=True))
        size, out = turned(conv.size), turned(conv.out_size)
        many = (2 * WINDOWS if way == "along" else WINDOWS, 2 if way == "across" else 1)
        lines = reach[1] + (many[1] - 1) * stride[1]
        position = lines * inputs
        before = {"along": stride[0] * position, "across": stride[1] * inputs, "channels": 0}[way]
        vectors = math.ceil((((reach[0] - 1) * lines + reach[1]) * inputs + before) / INT8_LANES)
        apart = stride[0] * many[0] // WINDOWS * position
        furthest = WINDOWS * apart if vectors == 1 else (WINDOWS - 1) * apart - INT8_LANES
        if AT_ONCE % inputs or (way == "channels" and outputs % 2) or max(before, furthest) > OFFSET:
            return None

        # Copies of bytes of several channels of a position, or of several positions of few channels.
        needed, groups = turned(conv.plane)[0], min(AT_ONCE, channels) // inputs
        copied = max(0, min(size[0], needed - pad[0]))
        at_once = AT_ONCE // channels if axis == 1 and AT_ONCE % channels == copied * channels % AT_ONCE == 0 else 1
        pitch = (needed + at_once - 1) * position
        eight = [divmod(i, channels) if at_once > 1 else (0, i if i < channels else 0) for i in range(AT_ONCE)]
        copies = tuple(at * position + channel // inputs * pitch + channel % inputs for at, channel in eight)
        along, across = bytes_of(conv.size, channels)
        out_along, out_across = bytes_of(conv.out_size, conv.out_channels)
        other = {"along": out_along, "across": out_across, "channels": 1}[way]
        places = tuple(window * out_along * many[0] // WINDOWS + second * other for window, second in LANES)
        if max(*places, max(copies) + at_once * position) >= REACH:
            return None

        # Steps; the last ones begin earlier, to end with the image, if it is that large.
        steps, windows = (math.ceil(n / count) for n, count in zip(out, many, strict=True))
        over_along = steps * many[0] - out[0] if steps > 1 else 0
        over_across = windows * many[1] - out[1] if windows > 1 else 0
        ends = {"along": (2, 1), "across": (1, 0), "channels": (1, 0)}[way]
        stored = [
            ends[0] * window + ends[1] * second < out[0] and (way != "across" or second < out[1])
            for window, second in LANES
        ]
        slide, sets = many[1] * stride[1], outputs // (2 if way == "channels" else 1)
        alone, last = sets == 1, channels % AT_ONCE // inputs
        back, step, total = over_along * stride[0] * position, many[0] * out_along, (windows - 1) * slide + lines
        fields: dict[str, int | tuple[int, ...]] = {
            "copies": copies, "step": at_once * along, "next": at_once * position,
            "before": math.ceil(pad[0] / at_once), "pairs": copied // at_once // 2, "odd": copied // at_once % 2,
            "behind": math.ceil(max(needed - pad[0] - copied, 0) / at_once),
            "image": pad[0] * position, "all": math.ceil(needed / at_once), "pad": conv.pad_value,
            "first": pad[1], "height": size[1], "across": across, "inputs": inputs,
            "channels": channels * at_once, "places": places, "out_step": step,
            "steps": 2 * steps - (2 if over_along else 1), "back": back, "out_back": over_along * out_along,
            "stored": sum(3 << 2 * lane for lane, yes in enumerate(stored) if yes),
            "pitch": (pitch if alone else 0) - steps * WINDOWS * apart + back,
            "along": steps * step - over_along * out_along - outputs // sets,
            "windows": windows, "out_across": many[1] * out_across, "lines": lines, "slide": slide,
            "last_slide": slide - over_across * stride[1], "out_last": (many[1] - over_across) * out_across,
            "calls": 1 if alone else groups, "last_calls": 1 if alone else last,
            "sets": groups if alone else sets, "last_sets": last if alone else sets,
            "group_pitch": pitch, "call_outputs": outputs, "call_weights": outputs * INT8_LANES * vectors,
            "outputs": groups * outputs, "chunk_weights": groups * outputs * INT8_LANES * vectors,
            "weights": round_up(before, 8), "numbers": round_up(before, 8) + conv.out_channels * INT8_LANES * vectors,
        }  # fmt: skip

        def cost(per_step: int, once: int) -> int:
            """Instructions: `per_step` of a step, `once` for a set; 80 a call, 4 a position for a line."""
            of_window = groups * sets * ((per_step + 3 * (not all(stored))) * steps + once + 5 * (over_along > 0))
            of_window += 80 * (1 if alone else groups) + 60
            of_line = 26 + (4 * copied + 3 * (needed - copied)) // at_once
            return math.ceil(channels / AT_ONCE) * (windows * of_window + total * of_line)

        wide = 14 * vectors + 8 * (vectors > 4) + 24
        window = (steps * WINDOWS - 1) * apart + INT8_LANES * vectors
        return cls(
            axis, (dilation[0] * position, dilation[1] * inputs), inputs, vectors, before, apart, all(stored),
            (groups - 1) * pitch + total * inputs + max(window, pitch),
            tuple((min(out[1], (n + 1) * many[1]), min(size[1], n * slide + lines - pad[1])) for n in range(windows)),
            fields, (cost(30, 14) if vectors == 1 else cost(wide, 26), cost(wide + 10, 26)),
        )  # fmt: skip

    @classmethod
    @lru_cache(maxsize=64)
    def best(cls, conv: Conv, near: bool) -> Self | None:
        """Return the lines that cost least."""
        ways = (cls.of(conv, axis, way) for axis in (1, 0) for way in ("along", "across", "channels"))
        return min((lines for lines in ways if lines), key=lambda lines: lines.cost[not near], default=None)

    def spread(self, weights: Array) -> Array:
        """Return weights [N, rows, columns, inputs] as they lie in a window, int8 [N, 16 * vectors]."""
        taps = weights if self.axis == 1 else weights.swapaxes(1, 2)
        window = np.zeros((len(taps), self.vectors * INT8_LANES), np.int8)
        for y in range(taps.shape[1]):
            for x in range(taps.shape[2]):
                place = x * self.taps[0] + y * self.taps[1]
                window[:, place : place + self.inputs] = taps[:, y, x]
        return window


class LinesInt8(ConvSchedule[Int8Epilogue]):
    """Depthwise, or up to eight channels a group: dot products with windows, which lie in one piece in lines of input.

    Lines are rows or columns, eight channels of them at a time; four windows are multiplied by two sets of weights: of
    two channels, or of two adjacent results. Each line is copied once, before results take its place.
    """

    name = "mve_lines"
    template = "kernels/conv2d/mve/lines_int8.c.j2"
    core = "has_mve"
    forms = (Int8Epilogue,)
    over_operands = False

    def _lines(self, conv: Conv, epilogue: Int8Epilogue) -> Lines:
        lines = Lines.best(conv, epilogue.is_near)
        assert lines is not None
        return lines

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """1, 2, 4 or 8 inputs a group, one image, int8 to 8 bits, no large dilations together with strides."""
        int8 = epilogue.weights.dtype == np.int8 and epilogue.stores_kind
        return conv.batch == 1 and int8 and Lines.best(conv, epilogue.is_near) is not None

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """The lines."""
        return self._lines(conv, epilogue).bytes

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If lines are read before they are written, and channels are their own."""
        lines = self._lines(conv, epilogue)
        if not conv.is_channelwise or (lines.axis == 0 and conv.size[1] != conv.out_size[1]):
            return False
        size, out = (conv.size[1], conv.out_size[1]) if lines.axis == 1 else (1, 1)
        return all(written * out <= read * size for written, read in lines.read)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """Those of the lines; 6 for an element of an epilogue."""
        after = 6 * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        return float(self._lines(conv, epilogue).cost[not epilogue.is_near] + after)

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Two channels by turns, or one after the other."""
        lines, epilogue = self._lines(conv, epilogue), epilogue.nearer()
        together, kind = 1 if lines.before else 2, epilogue.scaling.kind
        windows = by_turns(lines.spread(epilogue.weights), together, INT8_LANES)
        biases, scales = numbers_of(epilogue.bias, together, np.int32), epilogue.scaling.vectors(together)
        numbers = np.concatenate([biases, scales], axis=1)
        zeros = np.zeros(round_up(lines.before, 8), np.int8)
        stream = np.concatenate([zeros, windows.reshape(-1), numbers.reshape(-1)])
        some = "" if lines.is_whole else "_some"
        name = f"mt_mve_lines{kind}_{lines.vectors}_{lines.apart}_{lines.before or 'pairs'}{some}"
        second = f"-{lines.before}" if lines.before else "MT_MVE_PAIRS"
        shared = (
            f"MT_MVE_LINES({name}, {lines.vectors}, {lines.apart}, {second}, {int(not lines.is_whole)}, {BY[kind]})"
        )
        layout = (
            f"vectors of {('a channel', 'two channels by turns')[together - 1]}, then of each bytes of the bias and of "
        )
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        layout += epilogue.scaling.meaning
        return Products(stream, layout, "mt_mve_lines_int8.h", name, declared, shared=(shared,))

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The parameters of all lines."""
        return {"fields": self._lines(conv, epilogue).fields, "number_bytes": 4 + 4 * epilogue.scaling.words.shape[1]}


SCHEDULES = (LinesInt8(),)
