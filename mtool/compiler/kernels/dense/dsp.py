"""Dense layers whose results are sums of int16, for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self, TypeVar

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.ir.scalar import Requantize
from mtool.compiler.kernels import dsp
from mtool.compiler.kernels.code_price import nodes_of_operator, price_of_code
from mtool.compiler.kernels.dense.gemv import FewBitsGemv, GroupedGemv, Matrix
from mtool.compiler.kernels.epilogues import (
    ByteSumEpilogue,
    Epilogue16,
    Int8Epilogue,
    Int16Epilogue,
    Products,
    SumEpilogue,
    TileEpilogue,
)
from mtool.compiler.kernels.exact_scaling import MOST_MOVED, PLACES, ExactScaling, Together
from mtool.compiler.kernels.integer import EPILOGUE, RESULT
from mtool.compiler.kernels.packing import filled_up, packed_by_rows, round_up, sums_of_fields
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.schedule import Target, knob
from mtool.compiler.kernels.threshold_multipliers import Reach

# Dense layers of int8 for SIMD32: four or eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int8.h.


T = TypeVar("T", bound=TileEpilogue)

UNROLLS = (16, 8, 4)  # inputs an iteration: the loops that mt_dsp_gemv_int8.h has
PORTABLE = 300  # bytes of a tile of portable C, which they take the place of
LONGEST = (
    16  # the same of eight outputs, whose loop is entered where the rest is whole turns: half of a small cache of flash
)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int, group: int) -> Array:
    """Return the stream of mt_dsp_rows or mt_dsp_rows8, uint32 [N/group, group * (depth/4 + 2 or 3)].

    Args:
        weights: int8 [N, K], which `go_in_pairs`; N is padded to a multiple of `group`, K to `depth`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
        group: outputs at a time.
    """
    bias, scaling = scaling.without_dead_channels(weights, bias)
    sums, sign = _sums(weights, bias, depth, group)
    return np.concatenate([sums, scaling.padded(2 * sign.size).paired(sign).reshape(len(sums), -1)], axis=1)


def _sums(weights: Array, bias: Array, depth: int, group: int) -> tuple[Array, Array]:
    """Return a stream without scales, uint32 [N/group, group * (depth/4 + 1)], and the signs of b [N/2]."""
    count = round_up(weights.shape[0], group)
    rows = count // group
    words, heads, sign = dsp.radix_pairs(filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0])))
    words = words.reshape(rows, group // 2, depth // 4, 2).transpose(0, 2, 1, 3).reshape(rows, -1)
    return np.concatenate([heads.reshape(rows, group), words], axis=1), sign


QUAD = (0, 1, 3, 2)
"""The outputs of the four fields of a halfword, the lowest first."""
QUAD_TEXT = "n0 + 16 * n1 + 256 * n3 + 4096 * n2, all but n2 with 8 added, after the biases of such sums"
QUAD_LIMITS = (1 << 31, 1 << 23, 1 << 19, 1 << 23)
"""What the sums of four outputs have to be below."""


def pack_quads(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_rows8 with weights of 4 bits, uint32 [N/8, ...]; arguments as for pack."""
    bias, scaling = scaling.without_dead_channels(weights, bias)
    sums = _quad_sums(weights, bias, depth)
    scales = scaling.padded(8 * len(sums)).paired(np.ones(4 * len(sums), np.float32))
    return np.concatenate([sums, scales.reshape(len(sums), -1)], axis=1)


def _quad_sums(weights: Array, bias: Array, depth: int) -> Array:
    """Return such a stream without scales.

    Args:
        weights: from -8 to 7, with `quads_fit`.
        bias: int32 [N], the input's zero point folded in.
        depth: a multiple of 4.
    """
    count = round_up(weights.shape[0], 8)
    fields: Array = filled_up(weights, count, depth).astype(np.uint32) + np.uint32(8)
    fields = fields.reshape(-1, 4, depth // 4, 2, 2)[:, QUAD].swapaxes(1, 2)  # of each: quad, inputs, field, half, odd
    fields[:, :, 3] ^= 8  # the highest field is signed
    places = np.arange(4, dtype=np.uint32)[:, None, None] * 4 + np.arange(2, dtype=np.uint32)[:, None] * 16
    words = ((fields & 15) << places).sum((2, 3), dtype=np.uint32)  # [quad, inputs / 4, odd]
    words = words.reshape(count // 8, 2, depth // 4, 2).swapaxes(1, 2).reshape(count // 8, -1)
    heads = np.pad(bias, (0, count - len(bias))).reshape(-1, 4)[:, QUAD]
    first = sums_of_fields(heads, 4)[:, QUAD].reshape(count // 8, -1)
    return np.concatenate([first, words], axis=1)


def quads_fit(weights: Array, bias: Array) -> bool:
    """Whether weights have 4 bits, and the sums of each output are within its limit."""
    if weights.dtype != np.int8 or weights.min(initial=0) < -8 or weights.max(initial=0) > 7:
        return False
    reach = Reach.of(weights, bias)
    most = np.maximum(-reach.least, reach.most) + MOST_MOVED
    return bool((most < np.resize(QUAD_LIMITS, len(most))).all())


def pack_fields(weights: Array, bias: Array, scaling: Scaling, depth: int, bits: int) -> Array:
    """Return the stream of mt_dsp_rows8 with weights of one or two bits, uint32 [N/8, ...]; arguments as for pack."""
    bias, scaling = scaling.without_dead_channels(weights, bias)
    sums = _field_sums(weights, bias, depth, bits)
    scales = scaling.padded(8 * len(sums)).paired(np.ones(4 * len(sums), np.float32))
    return np.concatenate([sums, scales.reshape(len(sums), -1)], axis=1)


def _field_sums(weights: Array, bias: Array, depth: int, bits: int) -> Array:
    """Return such a stream without scales."""
    words = dsp.fields(weights, 8, depth, bits)
    heads = np.pad(bias, (0, 8 * len(words) - len(bias))).astype(np.int32).view(np.uint32).reshape(len(words), 8)
    return np.concatenate([heads, words], axis=1)


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_dsp_gemv_int8.h that divides the depth."""
    return next(unroll for unroll in UNROLLS if depth % unroll == 0)


@frozen
class Stored:
    """How weights are stored: their bits, and of one or two bits the inputs after which sums are split."""

    bits: int = 8
    block: int = 0

    def products(self, depth: int, unroll: int) -> float:
        """Return the instructions of eight outputs' sums, with `unroll` inputs an iteration."""
        if self.bits < 4:
            return 5 * depth + 3 * depth / unroll + 45 * -(-depth // self.block) + 40
        return (8.25 if self.bits == 4 else 7.75) * depth + 3 * depth / unroll + (19 if self.bits == 4 else 0)

    @property
    def name(self) -> str:
        """A part of functions' names."""
        return "" if self.bits == 8 else f"_{self.bits}bit" + (f"_{self.block}" if self.bits < 4 else "")

    @property
    def words_text(self) -> str:
        """How weights lie in words."""
        if self.bits < 4:
            return f"their biases, words of fields of {self.bits} bits (mt_dsp_fields_int8.h)"
        return f"each four, weights as halfwords of {QUAD_TEXT}" if self.bits == 4 else f"each two, {dsp.PAIRED}"


@dataclass(frozen=True)
class FewBits(FewBitsGemv[T]):
    """Schedules whose weights of one or two bits are fields with sums of their own."""

    bits: int = knob(0, 4, 2, 1, meaning="bits of a stored weight; auto: 8, or 2 or 1 where these take less time")

    def takes_few(self, size: Matrix, epilogue: T) -> bool:
        """Whether the layer can have weights of fewer than 8 bits."""
        raise NotImplementedError

    def stored(self, size: Matrix, epilogue: T) -> Stored | None:
        """Return how the weights are stored; None: they do not have the number of bits."""
        plain = None if self.bits else Stored()
        if not self.takes_few(size, epilogue):
            return plain
        if self.bits == 4:
            return Stored(4) if quads_fit(epilogue.weights, epilogue.bias_of_model) else None
        for bits in (self.bits,) if self.bits else (1, 2):
            block = dsp.field_block(epilogue.node, epilogue.graph, bits)
            if size.depth <= block * dsp.MOST_BLOCKS and self.filled(size) % dsp.WORD == 0:
                return Stored(bits, block)
        return plain


@dataclass(frozen=True)
class Gemv(FewBits[Int8Epilogue]):
    """Row by row of the input; four or eight outputs share each widened word of inputs."""

    name = "dsp_rows"
    core = "has_dsp"
    forms = (Int8Epilogue,)
    element = DType.INT8

    unroll: int = knob(0, *UNROLLS, meaning="inputs per iteration; auto: the largest divisor of their number, or 16")

    outputs: int = knob(0, 4, 8, meaning="outputs at a time; auto: the number with fewer instructions")

    def fits(self, size: Matrix, epilogue: Int8Epilogue) -> bool:
        """int8 to int8, weights that can be paired."""
        stored = self.stored(size, epilogue)
        if stored is None or stored.bits == 4:
            return stored is not None
        return bool(epilogue.weights.dtype == np.int8) and dsp.go_in_pairs(epilogue.node, epilogue.graph)

    def takes_few(self, size: Matrix, epilogue: Int8Epilogue) -> bool:
        """If results are scaled by multipliers."""
        return epilogue.scale is not None and isinstance(epilogue.how, Requantize)

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """Four on a Cortex-M7: eight leave no registers for products that do not wait for one another."""
        return replace(self, outputs=4) if target.issues_pairs and not self.outputs else self

    def group(self, size: Matrix, epilogue: Int8Epilogue) -> int:
        """Four, or eight if that saves more than unused outputs cost; eight only for scaling by multipliers."""
        if not self.takes_few(size, epilogue):
            return 4
        stored = self._stored(size, epilogue)
        if stored.bits < 8 or (epilogue.graph.for_size and not self.outputs):  # one function for all depths
            return 8
        return self.outputs or min((4, 8), key=lambda group: self._cost(size, epilogue, group, stored))

    def _stored(self, size: Matrix, epilogue: Int8Epilogue) -> Stored:
        """In fields of one or two bits, if that takes less time."""
        stored = self.stored(size, epilogue) or Stored()
        if self.bits or stored.bits == 8:
            return stored
        whole = min(
            self._cost(size, epilogue, group, Stored()) for group in ((self.outputs,) if self.outputs else (4, 8))
        )
        return stored if self._cost(size, epilogue, 8, stored) < whole else Stored()

    def _unroll(self, depth: int, group: int, graph: Graph) -> int:
        if group == 8:
            return self.unroll or (LONGEST // 2 if graph.for_size else LONGEST)
        return min(self.unroll, best_unroll(depth)) or best_unroll(depth)

    def _cost(self, size: Matrix, epilogue: Int8Epilogue, group: int, stored: Stored) -> float:
        node, graph, depth = epilogue.node, epilogue.graph, self.filled(size)
        unroll = self._unroll(depth, group, graph)
        products = stored.products(depth, unroll) if group == 8 else 4 * depth + 3 * depth / unroll
        own_code = self._code(depth, group, graph) * price_of_code(node, graph) / nodes_of_operator(node, graph)
        return size.rows * math.ceil(size.outputs / group) * (products + (42 if group == 4 else 50)) + own_code

    def _code(self, depth: int, group: int, graph: Graph) -> float:
        """Bytes of the function."""
        return 300 + (64 if group == 4 else 124) * self._unroll(depth, group, graph) / 4

    def instructions(self, size: Matrix, epilogue: Int8Epilogue, target: Target) -> float:
        """4 instructions an input for four outputs, 7.75 for eight; 3 an iteration, 42 for four outputs, 50 for eight.

        And what the function's code is worth, shared among the layers.
        """
        return self._cost(size, epilogue, self.group(size, epilogue), self._stored(size, epilogue))

    def _layer(self, graph: Graph, node: Node) -> dsp.Layer | None:
        epilogue, size = self.epilogue(node, graph), self.sizes(node, graph)
        if epilogue is None or not dsp.go_in_pairs(node, graph):
            return None
        group = self.group(size, epilogue)
        tiles = size.rows * self.groups(size, epilogue) * group / 6
        return dsp.Layer(Together(group), tiles, self._code(self.filled(size), group, graph))

    def products(self, size: Matrix, epilogue: Int8Epilogue, target: Target) -> Products:
        """The function by the scaling and the unrolling; with a range, if the outputs have limits."""
        depth, group, stored = self.filled(size), self.group(size, epilogue), self._stored(size, epilogue)
        scaling, bias = dsp.shared_scaling(epilogue.node, epilogue.graph, partial(self._layer, epilogue.graph))
        if group == 8 and isinstance(scaling, FloatScaling):
            scaling = ExactScaling.of_floats(scaling.scale, epilogue.how.zero_point, PLACES[0])
        unroll, of_eight = self._unroll(depth, group, epilogue.graph), "8" if group == 8 else ""
        rows = {
            8: partial(pack, depth=depth, group=group),
            4: partial(pack_quads, depth=depth),
        }.get(stored.bits, partial(pack_fields, depth=depth, bits=stored.bits))
        packed = packed_by_rows(rows, group, epilogue.weights, bias, scaling)
        stem = f"mt_dsp_rows{of_eight}"
        layout = f"{'eight' if of_eight else 'four'} outputs a row, {stored.words_text}, {scaling.meaning} of each"
        products = Products(packed, layout, "mt_dsp_gemv_int8.h")
        numbers = (unroll // 4, stored.bits, stored.block) if of_eight else (unroll,)
        macro, loop = f"MT_DSP_ROWS{of_eight}", f"{unroll}{stored.name}"
        return dsp.with_function(products, macro, stem, scaling, epilogue, loop, *numbers)


@dataclass(frozen=True)
class GemvByteSums(FewBits[ByteSumEpilogue]):
    """Row by row of the input; eight outputs share each widened word of inputs. Any expression can follow the sums."""

    name = "dsp_row_sums"
    core = "has_dsp"
    forms = (ByteSumEpilogue,)
    element = DType.INT8
    multiple = 1

    unroll: int = knob(0, *UNROLLS, meaning="the most inputs per iteration; auto: 16")

    def fits(self, size: Matrix, epilogue: ByteSumEpilogue) -> bool:
        """int8 weights of which a + 256 * b fits int16 for all pairs, and biases that fit beside their sums."""
        weights, bias = epilogue.weights, epilogue.bias_of_model[1::2].astype(np.int64)
        if weights.dtype != np.int8 or size.depth < 4 or (np.abs(bias) >= 1 << 22).any():
            return False
        stored = self.stored(size, epilogue)
        if stored is None or stored.bits < 8:
            return stored is not None
        return dsp.go_in_pairs(epilogue.node, epilogue.graph) and not dsp.have_signs(weights)

    def takes_few(self, size: Matrix, epilogue: ByteSumEpilogue) -> bool:
        """One row."""
        return size.rows == 1

    def instructions(self, size: Matrix, epilogue: ByteSumEpilogue, target: Target) -> float:
        """7.75 instructions an input for eight outputs, 3 an iteration, 50; and 28 for each result."""
        depth, unroll, stored = round_up(size.depth, 4), self.unroll or LONGEST, self.stored(size, epilogue) or Stored()
        node, graph = epilogue.node, epilogue.graph
        own_code = (31 * unroll - PORTABLE) * price_of_code(node, graph) / nodes_of_operator(node, graph)
        group = stored.products(depth, unroll) + 50
        return size.rows * (self.groups(size, epilogue) * group + (EPILOGUE + RESULT + 8) * size.outputs) + own_code

    def products(self, size: Matrix, epilogue: ByteSumEpilogue, target: Target) -> Products:
        """By the unrolling."""
        stored, depth = self.stored(size, epilogue) or Stored(), round_up(size.depth, 4)

        def rows(weights: Array, bias: Array) -> Array:
            if stored.bits < 4:
                return _field_sums(weights, bias, depth, stored.bits)
            return (
                _quad_sums(weights, bias, depth) if stored.bits == 4 else _sums(weights, bias, depth, self.together)[0]
            )

        unroll, rest = self.unroll or LONGEST, size.depth % 4
        name = f"mt_dsp_row_sums_{unroll}{f'_{rest}' if rest else ''}{stored.name}"
        packed = packed_by_rows(rows, self.together, epilogue.weights, epilogue.bias_of_model)
        layout = f"eight outputs a row, {stored.words_text}"
        if stored.bits == 8:
            shared = (f"MT_DSP_SUMS8({name}, {unroll // 4}, {rest})",)
            return Products(packed, layout, "mt_dsp_gemv_int8.h", name, shared=shared)
        shared = (f"MT_DSP_SUMS8_BITS({name}, {unroll // 4}, {rest}, {stored.bits}, {stored.block})",)
        block = stored.block if stored.bits == 2 else size.depth
        totals = f"int32_t totals[{-(-size.depth // block)}];"
        declared = f"{totals}\n    mt_dsp_totals(totals, input, {size.depth}, {block});"
        return Products(packed, layout, "mt_dsp_gemv_int8.h", name, declared, "totals", shared=shared)


# Dense layers of int16 activations for SIMD32: four outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.


@dataclass(frozen=True)
class Rows(GroupedGemv[Epilogue16]):
    """The common part of the schedules with int16 results and of those whose results are the sums.

    storing: instructions for four outputs, besides their sums.
    """

    core = "has_dsp_and_fpu"
    element = DType.INT16
    storing: ClassVar[int]

    unroll: int = knob(0, *UNROLLS, meaning="inputs per iteration; auto: the largest divisor of their number")
    packing: str = knob("", "halves", meaning=dsp.PACKING_MEANING)

    def fits(self, size: Matrix, epilogue: Epilogue16) -> bool:
        """int16, weights of int8 or int16."""
        return epilogue.weights.dtype in (np.int8, np.int16)

    def group(self, size: Matrix, epilogue: Epilogue16) -> int:
        """Four, or two with sums of 64 bits."""
        return 2 if dsp.Kind.of(epilogue, self.packing).long else 4

    def filled(self, size: Matrix) -> int:
        """Whole iterations."""
        return round_up(size.depth, self.unroll or 4)

    def instructions(self, size: Matrix, epilogue: Epilogue16, target: Target) -> float:
        """4.75 instructions (3 of halves) an input for four outputs, 3 an iteration, and what storing those takes."""
        kind, depth = dsp.Kind.of(epilogue, self.packing), self.filled(size)
        if kind.long:
            return float(size.rows * size.outputs * (2 * depth + 60))
        group = (3 if kind.halves else 4.75) * depth + 3 * depth / (self.unroll or best_unroll(depth)) + self.storing
        return size.rows * self.groups(size, epilogue) * group

    def products(self, size: Matrix, epilogue: Epilogue16, target: Target) -> Products:
        """By the packing and the width of the sums."""
        kind, depth, group = dsp.Kind.of(epilogue, self.packing), self.filled(size), self.group(size, epilogue)
        rows = partial(dsp.pack_int16, depth=depth, together=group, packing=self.packing)
        stream, scaled = packed_by_rows(rows, group, epilogue.weights, *epilogue.numbers), epilogue.is_scaled
        function = kind.function("mt_dsp16_row" if scaled else "mt_dsp16_row_sums", self.unroll or best_unroll(depth))
        layout, declared = kind.layout(group, scaled=scaled), epilogue.declared("mt_dsp_range", "MT_DSP16_RANGE")
        return Products(stream, layout, "mt_dsp_gemv_int16.h", function, declared, "&range" if scaled else "")


class GemvInt16(Rows):
    """Row by row of the input; four outputs share each pair of inputs. Sums of 64 bits: two outputs."""

    name = "dsp16_rows"
    forms = (Int16Epilogue,)
    storing = 45


class GemvSums(Rows):
    """Row by row of the input; four outputs share each pair of inputs. Any expression can follow a row of sums."""

    name = "dsp16_row_sums"
    forms = (SumEpilogue,)
    storing = 60


SCHEDULES = (Gemv(), GemvByteSums(), GemvInt16(), GemvSums())
