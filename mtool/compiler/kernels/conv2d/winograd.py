"""Winograd's F(2x2, 3x3) in integers: four of nine products of a 3x3 convolution with stride 1 are left.

Transformed weights take 3.6 times the flash. With the knob `work` weights are stored as they are, and transformed at
run time: all of a layer, or some channels before all blocks, or four channels at a time, which several blocks then use.

A tile is 2x2 outputs, of 4x4 inputs d: Y = A'[(G g G') * (B' d B)]A, with * element by element. G has halves: it is
doubled, so that weights are whole, and sums are four times the convolution's. As additions of 32 bits wrap around, only
the result has to be within them.

Sources: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (arXiv 1509.09308); the doubling: Meng and
Brothers, Efficient Winograd Convolution via Integer Arithmetic (arXiv 1901.01965).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array, row_sums
from mtool.compiler.kernels.conv2d.geometry import OUTPUTS, Blocks, Conv
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, PortableSchedule
from mtool.compiler.kernels.dsp import LIMITS
from mtool.compiler.kernels.epilogues import EpilogueText, Int8Epilogue, Products
from mtool.compiler.kernels.exact_scaling import MOST_MOVED, ExactScaling
from mtool.compiler.kernels.few_bits import Weights, packed_rows
from mtool.compiler.kernels.integer import RESULT, is_narrow
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Target, knob
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.kernels.weighted_sum import is_stored_as_int8, remembered

G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
"""The matrix applied to both sides of 3x3 weights: twice the usual one."""

ELEMENTS = (1, 2, 0, 3)
"""The order of the elements, by rows and by columns; weights of 3 have their sign turned."""

FACTOR = 4  # the factor of the sums
LIMIT = 2**31


def transformed(weights: Array) -> Array:
    """Return weights [N, 3, 3, C] of 8 or 9 bits transformed, int16 [N, 4, 4, C]: row, column, in their usual order."""
    wide: Array = np.einsum("ai,nijc,bj->nabc", G, weights.astype(np.int32), G)
    return wide.astype(np.int16)


def by_columns(weights: Array) -> Array:
    """Return weights as `transformed` gives them, [N, 4 columns, 4 rows, C], in the order of ELEMENTS."""
    signs = np.array([1, 1, 1, -1], np.int16)
    ordered = weights[:, ELEMENTS][:, :, ELEMENTS] * signs[:, None, None] * signs[:, None]
    return np.ascontiguousarray(ordered.swapaxes(1, 2))


def sums_fit(epilogue: Int8Epilogue) -> bool:
    """Whether four times the sums of a layer stay within 32 bits."""

    def fit() -> bool:
        bias, _ = epilogue.scaling.without_dead_channels(epilogue.weights, epilogue.bias)
        return fits(epilogue.weights, bias)

    return remembered(epilogue.graph, "fourfold sums", tuple(epilogue.node.inputs[1:3]), fit)


def products_fit(node: Node, graph: Graph) -> bool:
    """Whether four times a node's sums stay within 32 bits without their biases, which are added afterwards."""
    weights = graph.constants[node.inputs[1]]

    def fit() -> bool:
        return int(row_sums(weights).magnitude.max(initial=0)) * 2**8 < LIMIT // FACTOR

    return remembered(graph, "fourfold products", node.inputs[1], fit)


def fits(weights: Array, bias: Array) -> bool:
    """Whether four times the sum of each channel stays within 32 bits, whatever the inputs of 8 bits.

    Its bias may be moved besides (mtool.compiler.kernels.exact_scaling).

    Args:
        weights: integers [N, ...].
        bias: int32 [N].
    """
    reach = Reach.of(weights, bias)
    return int(max(-reach.least.min(initial=0), reach.most.max(initial=0))) < LIMIT // FACTOR - MOST_MOVED


# Weights that are transformed at run time.


WORK = (52, 40, 30, 20, 12)  # KB of a layer's tensors and scratch
WORK_MEANING = (
    "KB of the layer's tensors and scratch in which its weights are transformed at run time; auto: transformed weights "
    "lie in flash"
)


@frozen
class Work:
    """How a layer's weights are transformed at run time.

    Attributes:
        fours: the number of times four output channels whose weights are transformed together, before all blocks.
        groups: how often that is so: inputs are transformed as often.
        blocks: if not 0, the blocks whose transformed inputs are kept, while the weights of four output channels after
            four are transformed.
        passes: how often each weight is transformed.
        bytes: the size of the transformed inputs and weights.
    """

    fours: int
    groups: int
    blocks: int
    passes: int
    bytes: int

    @classmethod
    def ways(cls, conv: Conv, column_bytes: int, four_bytes: int) -> Iterator[Self]:
        """Yield all ways.

        Args:
            conv: the layer.
            column_bytes: the transformed inputs of a block.
            four_bytes: the transformed weights of four output channels.
        """
        fours, blocks = -(-conv.out_channels // FOURS), math.prod(Blocks(conv, conv.channels).counts)
        for groups in range(1, fours + 1 if conv.batch == 1 else 2):
            if fours % groups == 0:
                yield cls(fours // groups, groups, 0, 1, column_bytes + fours // groups * four_bytes)
        for number in sorted({-(-blocks // passes) for passes in range(1, blocks + 1)}):
            yield cls(1, 1, number, -(-blocks // number) * conv.batch, number * column_bytes + four_bytes)


@dataclass(frozen=True)
class Transforming:
    """The knob of schedules that can transform weights at run time."""

    work: int = knob(0, *WORK, meaning=WORK_MEANING)

    def is_for_time(self, node: Node, graph: Graph) -> bool:
        """Always: it takes flash or working memory."""
        return True

    def in_working_memory(self) -> tuple[Self, ...]:
        """Transforming weights at run time, in less and less memory."""
        return tuple(replace(self, work=work) for work in WORK)

    def work_of(self, conv: Conv) -> Work | None:
        """Return the cheapest way to transform weights at run time in the given memory; None: they are transformed.

        If there is not enough memory, it is the way that needs least.
        """
        if not self.work:
            return None
        tensors = conv.batch * (math.prod(conv.size) * conv.channels + conv.pixels * conv.out_channels)
        ways = list(Work.ways(conv, *self.sizes_of(conv)))
        fitting = [way for way in ways if tensors + way.bytes <= 1024 * self.work]
        cheapest = min(fitting, key=lambda way: (self.work_cost(conv, way), way.bytes), default=None)
        return cheapest or min(ways, key=lambda way: way.bytes)

    def avoidable_cost(self, node: Node, graph: Graph) -> float:
        """Transforming weights, and inputs again."""
        conv = Conv.of(node, graph)
        work = self.work_of(conv)
        return self.work_cost(conv, work) if work else 0

    def constant_passes(self, node: Node, graph: Graph) -> int:
        """As often as they are transformed, if at run time."""
        work = self.work_of(Conv.of(node, graph))
        return work.passes if work else 0

    def sizes_of(self, conv: Conv) -> tuple[int, int]:
        """Return the bytes of a block's transformed inputs, and of the weights of four output channels."""
        raise NotImplementedError

    def work_cost(self, conv: Conv, work: Work) -> float:
        """Return the instructions that a way to transform weights adds."""
        raise NotImplementedError


FOURS = 4  # output channels together
UNROLLS = (16, 8)  # input channels in one turn of the loop; 32, if selected, needs 1.6 KB more code
DSP_SUMS = 40 * 4  # bytes: MT_DSP_BLOCK_SUMS
UNPACKING = 1.3  # instructions for a tap that is unpacked
DSP_TAPS = 48  # instructions for an input and an output channel whose weights are transformed
DSP_LAYOUT = (
    "four output channels at a time: of each column of the transformed elements four biases and a word of two input "
    "channels for each, then"
)
DSP_TAPS_LAYOUT = (
    "four output channels at a time: four biases, for each four input channels and each output channel the words of "
    "nine taps, then"
)


def pack_pairs(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_winograd, uint32 [N/4, ...], the input channels padded to `depth`.

    Args:
        weights: integers [N, 3, 3, C].
        bias: int32 [N].
        scaling: of N channels, for sums that are four times as large.
        depth: a multiple of 4.
    """
    count = round_up(len(weights), FOURS)
    fours = count // FOURS
    wide = by_columns(transformed(weights))
    filled = np.zeros((count, 4, 4, depth), np.int16)
    filled[: len(weights), ..., : weights.shape[3]] = wide
    # of four input channels the pairs are (0, 2) and (1, 3)
    pairs = filled.reshape(fours, FOURS, 4, 4, depth // 4, 2, 2).swapaxes(5, 6)
    words = np.ascontiguousarray(pairs).view(np.uint32).reshape(fours, FOURS, 4, 4 * depth // 2)
    biases = np.zeros((fours, 4, 1, FOURS), np.uint32)
    biases[:, 0, 0] = _fourfold(bias, count)
    sums = np.concatenate([biases, words.transpose(0, 2, 3, 1)], axis=2)
    return np.concatenate([sums.reshape(fours, -1), _numbers(scaling, count)], axis=1)


def pack_taps(weights: Array, bias: Array, scaling: Scaling) -> Array:
    """Return the stream of mt_dsp_winograd_weights, uint32 [N/4, ...]; arguments as for pack_pairs."""
    count, depth = round_up(len(weights), FOURS), round_up(weights.shape[3], 4)
    filled = np.zeros((count, 9, depth), np.int8)
    filled[: len(weights), :, : weights.shape[3]] = weights.reshape(len(weights), 9, -1)
    taps = filled.reshape(-1, FOURS, 9, depth // 4, 4).transpose(0, 3, 1, 2, 4)
    words = np.ascontiguousarray(taps).view(np.uint32).reshape(count // FOURS, -1)
    return np.concatenate([_fourfold(bias, count), words, _numbers(scaling, count)], axis=1)


def _fourfold(bias: Array, count: int) -> Array:
    """Return biases of `count` channels as words, uint32 [N/4, 4]."""
    filled = np.zeros(count, np.int32)
    filled[: len(bias)] = bias * np.int32(FACTOR)
    return filled.view(np.uint32).reshape(-1, FOURS)


def _numbers(scaling: Scaling, count: int) -> Array:
    """Return the scalings of `count` channels: the first words of four, then the second ones, uint32 [N/4, ...]."""
    return scaling.padded(count).words.reshape(-1, FOURS, scaling.words.shape[1]).swapaxes(1, 2).reshape(count // 4, -1)


@dataclass(frozen=True)
class DspWinograd(Transforming, ConvSchedule[Int8Epilogue]):
    """Blocks of 2x4 outputs: their inputs are transformed, multiplied by all channels, four at a time, and back."""

    name = "dsp_winograd"
    core = "has_dsp_and_fpu"
    template = "kernels/conv2d/dsp/winograd_int8.c.j2"
    scratch_type = "int32_t"
    forms = (Int8Epilogue,)
    unroll: int = knob(
        0, 32, *UNROLLS, meaning="input channels per iteration; auto: the number with the fewest instructions"
    )
    bits: int = knob(0, 4, 2, meaning="bits of a stored weight, with `work`; auto: 8")

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """int8 to int8, 3x3, stride 1, one group; four times a sum stays within 32 bits."""
        int8 = is_stored_as_int8(epilogue.node, epilogue.graph)
        fewer = Weights.of(epilogue.node, epilogue.graph).bits
        bits = not self.bits or bool(self.work and 0 < fewer <= self.bits)
        return Blocks.can_compute(conv) and int8 and bits and sums_fit(epilogue)

    def in_few_bits(self, node: Node, graph: Graph, target: Target) -> Self | None:
        """With weights that are unpacked before they are transformed."""
        bits = Weights.of(node, graph).bits
        if self.bits or not bits:
            return None
        fewer = replace(self, bits=max(2, bits))
        return fewer if fewer.supports(node, graph, target) else None

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or min(UNROLLS, key=lambda unroll: _depth_cost(conv, unroll))

    def _depth(self, conv: Conv) -> int:
        return round_up(conv.channels, self._unroll(conv))

    def sizes_of(self, conv: Conv) -> tuple[int, int]:
        """Sixteen words of two channels in two tiles; the same with four channels, biases and two words of scalings."""
        depth = self._depth(conv)
        return 64 * depth, 128 * depth + 4 * FOURS * 4 + FOURS * 8

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """A block's columns; its sums and results, where a patch on the border is put together before.

        With weights transformed at run time these too, and the columns of several blocks.
        """
        work, patch, row = self.work_of(conv), _blocks(conv).patch, 4 * self._row(conv, epilogue)
        pixels, fours = math.prod(OUTPUTS), work.fours if work else -(-conv.out_channels // FOURS)
        column, four = self.sizes_of(conv)
        if work and work.blocks:
            return work.blocks * column + round_up(max(four + DSP_SUMS + pixels * FOURS, patch), 4) + row
        return (work.bytes if work else column) + round_up(max(DSP_SUMS + pixels * fours * FOURS, patch), 4) + row

    def _row(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """Return the words of four output channels that are unpacked; 0: they are read as they are."""
        numbers = epilogue.exact_scaling()[0].words.shape[1]
        return FOURS * (1 + numbers + 9 * -(-conv.channels // 4)) if self.bits else 0

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """16 words of 16 bits instead of 9 of 8 for two channels, both padded; at run time what packing saves."""
        conv = Conv.of(node, graph)
        if self.work:
            return -(9 * conv.channels * conv.out_channels * (8 - self.bits) // 8) if self.bits else 0
        filled = round_up(conv.out_channels, FOURS) * (16 * 2 * self._depth(conv) + 4 * 4)
        return max(1, filled - 9 * conv.channels * conv.out_channels)

    def long_code(self, node: Node, graph: Graph) -> tuple[int, float]:
        """The functions are 2,068 to 2,868 bytes; products of more channels than one turn takes are short loops."""
        conv = Conv.of(node, graph)
        return 2800, self._unroll(conv) / self._depth(conv)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """By block: 340 for four input channels, the products of four output channels, 60 and 9 a word of results."""
        blocks, fours = _blocks(conv), -(-conv.out_channels // FOURS)
        block = 340 * -(-conv.channels // 4) + fours * (_depth_cost(conv, self._unroll(conv)) + 400 + 72) + 90
        work = self.work_of(conv)
        more = self.work_cost(conv, work) if work else 0
        return blocks.count * block + blocks.gathered * 24 * (12 + conv.channels) + more

    def work_cost(self, conv: Conv, work: Work) -> float:
        """The weights' transformation, the inputs' once more for each group, and results that are stored in parts."""
        blocks, fours, words = _blocks(conv), -(-conv.out_channels // FOURS), -(-conv.channels // 4)
        inputs = 340 * words * blocks.count + blocks.gathered * 24 * (12 + conv.channels)
        weights, parts = 4 * words * FOURS * fours, fours if work.blocks else work.groups - 1
        taps = DSP_TAPS + 9 * (UNPACKING if self.bits else 0)
        return work.passes * taps * weights + (work.groups - 1) * inputs + 160 * parts * blocks.count

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Four channels together; the runtime's function is of any range, as its results are stored apart."""
        depth, unroll, shared = self._depth(conv), self._unroll(conv), tuple[str, ...]()
        scaling, bias = epilogue.exact_scaling()
        bias, scaling = scaling.without_dead_channels(epilogue.weights, bias)
        scaling, whole = scaling.fourfold(), depth == unroll
        pack = pack_taps if self.work else partial(pack_pairs, depth=depth)
        stream = packed_by_rows(pack, FOURS, epilogue.weights, bias, scaling)
        name = f"mt_dsp_winograd{'_whole' if whole else ''}{scaling.kind}_{unroll}"
        if self.bits:
            weights = Weights.of(epilogue.node, epilogue.graph)
            stream = np.concatenate([packed_rows(row[None], weights).data for row in stream])
        if isinstance(scaling, ExactScaling):
            clamped = (epilogue.how.low, epilogue.how.high) != LIMITS
            name += "_range" if clamped else ""
            by = f"MT_EXACT_{scaling.places}"
            shared = (
                *shared,
                f"MT_DSP_WINOGRAD({name}, {unroll}, {int(whole)}, {by}, {int(clamped)})",
            )
        declared = epilogue.declared("mt_dsp_range", "MT_DSP_RANGE")
        layout = f"{DSP_TAPS_LAYOUT if self.work else DSP_LAYOUT} {scaling.meaning} of each"
        return Products(stream, layout, "mt_dsp_winograd_int8.h", name, declared, shared=shared)

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The blocks, and how the products of a column are summed up."""
        depth, work = self._depth(conv), self.work_of(conv)
        numbers = FOURS * epilogue.exact_scaling()[0].words.shape[1]
        before = work.bytes if work else self.sizes_of(conv)[0]
        extra = {"blocks": _blocks(conv), "sums_bytes": DSP_SUMS, "sums": before // 4, "work": work, "numbers": numbers}
        transform, row = "mt_dsp_winograd_weights", 0
        if self.bits:
            transform = "mt_dsp_winograd_unpacked"
            row = self.scratch(conv, epilogue) // 4 - self._row(conv, epilogue)
        extra |= {"transform": transform, "row": row}
        return extra | {"depth": depth, "turns": depth // self._unroll(conv)}


def _blocks(conv: Conv) -> Blocks:
    """Return its blocks, whose pixels are whole words."""
    return Blocks(conv, round_up(conv.channels, 4))


def _depth_cost(conv: Conv, unroll: int) -> int:
    """Return the instructions of a block's products for four output channels: 11 for two input channels."""
    depth = round_up(conv.channels, unroll)
    return 16 * (11 * depth // 2 + (0 if depth == unroll else 2 + 4 * depth // unroll))


FOURS = 4  # output channels together, and input channels in one turn of the loop
REGISTERS = 13  # the registers that eight sums need
INT_SUMS = 72 * 4  # bytes: MT_WINOGRAD_SUMS
INT_TAPS = 105  # instructions for an input and an output channel whose weights are transformed
INT_LAYOUT = (
    "four output channels at a time, side by side for each element and input channel of the transformed weights"
)


def pack_words(weights: Array) -> Array:
    """Return the weights [N, 3, 3, C] as mt_winograd_sums reads them, int16 [N/4, ...], both padded."""
    count, depth = round_up(len(weights), FOURS), round_up(weights.shape[3], FOURS)
    filled = np.zeros((count, 4, 4, depth), np.int16)
    filled[: len(weights), ..., : weights.shape[3]] = by_columns(transformed(weights))
    return np.ascontiguousarray(filled.reshape(count // FOURS, FOURS, -1).swapaxes(1, 2)).reshape(count // FOURS, -1)


@dataclass(frozen=True)
class IntWinograd(Transforming, PortableSchedule):
    """Blocks of 2x4 outputs: their inputs are transformed, multiplied by all channels, four at a time, and back."""

    name = "int_winograd"
    template = "kernels/conv2d/integer/winograd_int8.c.j2"
    scratch_type = "int16_t"
    core = "has_wide_registers"

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """8 bits by 8 bits, 3x3, stride 1, one group; four times a sum stays within 32 bits."""
        narrow = is_narrow(epilogue.node, epilogue.graph) and epilogue.acc is DType.INT32
        return narrow and Blocks.can_compute(conv) and products_fit(epilogue.node, epilogue.graph)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What fits, where there are registers for eight sums."""
        return target.registers >= REGISTERS and super().supports(node, graph, target)

    def sizes_of(self, conv: Conv) -> tuple[int, int]:
        """Sixteen elements of 16 bits, of two tiles and of four channels."""
        depth = round_up(conv.channels, FOURS)
        return 64 * depth, 128 * depth

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """A block's columns; its sums, where a patch on the border is put together before."""
        work, patch = self.work_of(conv), Blocks(conv, conv.channels).patch
        column, four = self.sizes_of(conv)
        if work and work.blocks:
            return work.blocks * column + max(four + INT_SUMS, patch)
        return (work.bytes if work else column) + max(INT_SUMS, patch)

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """16 words of 16 bits instead of 9 of 8 for each pair of channels, both padded; 0 at run time."""
        if self.work:
            return 0
        conv = Conv.of(node, graph)
        filled = round_up(conv.out_channels, FOURS) * round_up(conv.channels, FOURS)
        return 32 * filled - 9 * conv.channels * conv.out_channels

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """By block: its inputs, 16 times eight products with their loads, 500 for the rest."""
        depth, fours = round_up(conv.channels, FOURS), -(-conv.out_channels // FOURS)
        products = 16 * depth * (6.5 + 8 * target.product_instructions)
        block = fours * (products + 500 + 8 * FOURS * RESULT)
        work = self.work_of(conv)
        more = self.work_cost(conv, work) if work else 0
        return Blocks(conv, conv.channels).count * block + _int_inputs(conv) + more

    def work_cost(self, conv: Conv, work: Work) -> float:
        """The weights' transformation, and the inputs' once more for each group."""
        weights = conv.channels * conv.out_channels
        return work.passes * INT_TAPS * weights + (work.groups - 1) * _int_inputs(conv)

    def products(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Products:
        """Four channels together; weights that are transformed at run time as they are."""
        if self.work:
            return Products(epilogue.stored_weights, "", "mt_winograd.h")
        return Products(pack_words(epilogue.weights), INT_LAYOUT, "mt_winograd.h")

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The blocks, and the filled depth."""
        work, (column, _) = self.work_of(conv), self.sizes_of(conv)
        extra = {"blocks": Blocks(conv, conv.channels), "depth": round_up(conv.channels, FOURS), "work": work}
        return extra | {"sums": (work.bytes if work else column) // 2}


def _int_inputs(conv: Conv) -> float:
    """Return the instructions that transform all inputs: 160 for a channel of a block."""
    blocks = Blocks(conv, conv.channels)
    return blocks.count * 160 * conv.channels + blocks.gathered * 24 * (12 + conv.channels / 2)


SCHEDULES = (DspWinograd(), IntWinograd())
