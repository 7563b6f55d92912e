"""Dense layers of float32 for Helium: vectors of outputs.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_f32.h.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from mtool.compiler.ir import Array, DType
from mtool.compiler.kernels import mve
from mtool.compiler.kernels.dense.gemv import LAYOUT_F32, FewBitsGemv, GroupedGemv, Matrix, pack_f32
from mtool.compiler.kernels.epilogues import (
    ByteSumEpilogue,
    Epilogue16,
    FloatEpilogue,
    Int8Epilogue,
    Int16Epilogue,
    Products,
    SumEpilogue,
)
from mtool.compiler.kernels.f32 import words_of
from mtool.compiler.kernels.integer import EPILOGUE, RESULT
from mtool.compiler.kernels.mve.loops import Body, headers_of, vector_rest
from mtool.compiler.kernels.packing import by_turns, filled_up, numbers_of, packed_by_rows, round_up, sums_of_fields
from mtool.compiler.kernels.scaling import NearFloatScaling, Scaling
from mtool.compiler.kernels.schedule import Target, knob

# Dense layers of int8 for Helium: eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int8.h.


GROUP = 8  # outputs at a time
UNROLLS = (8, 4, 2, 1)  # vectors of inputs an iteration: the loops that mt_mve_gemv_int8.h has


FIELD_LIMIT = {4: 1 << 27, 2: 1 << 25}
"""What sums have to be below, by the bits of a weight."""


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int, bits: int = 8) -> Array:
    """Return the stream of mt_mve_rows, int8 [N/8, 64 or 96 + bits * depth]; N is padded to a multiple of 8.

    Args:
        weights: int8 [N, K].
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: whole vectors, which K is padded to.
        bits: of a weight, whose sums are below `FIELD_LIMIT`.
    """
    order = mve.EVEN_FIRST if isinstance(scaling, NearFloatScaling | mve.MultiplierScaling) else None
    tails = scaling.padded(round_up(len(weights), GROUP)).vectors(GROUP, order)
    if bits < 8:
        weights, bias = _fields(weights, bias, depth, bits)
    together = GROUP * bits // 8
    return np.concatenate(
        [numbers_of(bias, GROUP, np.int32), by_turns(weights, together, mve.INT8_LANES, depth), tails], axis=1
    )


def _fields(weights: Array, bias: Array, depth: int, bits: int) -> tuple[Array, Array]:
    """Return bytes of the fields of some outputs, int8 [N * bits / 8, depth], and the biases of their sums."""
    count, together = round_up(len(weights), GROUP), 8 // bits
    fields = filled_up(weights, count, depth).astype(np.int32).reshape(-1, together, depth)
    fields[:, :-1] += 1 << bits - 1
    heads = np.pad(bias, (0, count - len(bias))).reshape(-1, together)
    words = (fields << (bits * np.arange(together))[:, None]).sum(axis=1).astype(np.int8)
    return words, sums_of_fields(heads, bits).view(np.int32).reshape(-1)


@dataclass(frozen=True)
class Gemv(FewBitsGemv[Int8Epilogue]):
    """Row by row of the input; eight outputs share each vector of inputs."""

    name = "mve_rows"
    core = "has_mve"
    forms = (Int8Epilogue,)
    element = DType.INT8

    bits: int = knob(0, 4, 2, meaning="bits of a stored weight; auto: 8")
    unroll: int = knob(0, *UNROLLS, meaning="vectors of inputs per iteration; auto: the largest divisor of the depth")

    def fits(self, size: Matrix, epilogue: Int8Epilogue) -> bool:
        """int8 to int8, by weights of the chosen bits."""
        weights = epilogue.weights
        if weights.dtype != np.int8 or not self.bits:
            return bool(weights.dtype == np.int8)
        most, bias = 1 << self.bits - 1, mve.vector_scaling(epilogue).bias.astype(np.int64)
        if weights.min(initial=0) < -most or weights.max(initial=0) >= most:
            return False
        return int(np.abs(bias).max(initial=0)) + 128 * most * size.depth < FIELD_LIMIT[self.bits]

    def _unroll(self, size: Matrix) -> int:
        return self.unroll or mve.best_unroll(size.depth, mve.INT8_LANES, UNROLLS)

    def filled(self, size: Matrix) -> int:
        """Whole iterations."""
        return round_up(size.depth, mve.INT8_LANES * self._unroll(size))

    def instructions(self, size: Matrix, epilogue: Int8Epilogue, target: Target) -> float:
        """17 instructions for 16 inputs and eight outputs, 2 an iteration, 20 for eight outputs, 14 or 22 by fields."""
        vectors = self.filled(size) / mve.INT8_LANES
        group = (17 + 2 / self._unroll(size)) * vectors + 20 + {4: 14, 2: 22}.get(self.bits, 0)
        return size.rows * (self.groups(size, epilogue) * group + (5 * vectors if self.bits else 0))

    def products(self, size: Matrix, epilogue: Int8Epilogue, target: Target) -> Products:
        """By the scaling and the unrolling."""
        epilogue, unroll, bits = mve.vector_scaling(epilogue), self._unroll(size), self.bits or 8
        of_bits = f"_{bits}bit" if bits < 8 else ""
        function = f"mt_mve_dense{of_bits}{epilogue.scaling.kind}{f'_{unroll}' if unroll > 1 else ''}"
        rows = partial(pack, depth=self.filled(size), bits=bits)
        packed = packed_by_rows(rows, GROUP, epilogue.weights, epilogue.bias, epilogue.scaling)
        content = f"fields of {bits} bits of 16 inputs" if bits < 8 else "16 weights"
        layout = f"8 outputs a row: bytes of biases, vectors of {content} by turns, bytes of {epilogue.scaling.meaning}"
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        return Products(packed, layout, "mt_mve_gemv_int8.h", function, declared, "&range")


def _vector(epilogue: SumEpilogue) -> Body | None:
    """Return the C of four results, if vectors have their functions."""
    return vector_rest(epilogue.node, epilogue.graph, "sums + (j - c)")


def _headers(epilogue: SumEpilogue) -> tuple[str, ...]:
    return headers_of(epilogue.node, epilogue.graph) if _vector(epilogue) else ()


@dataclass(frozen=True)
class GemvByteSums(GroupedGemv[ByteSumEpilogue]):
    """Row by row of the input; eight outputs share each vector of inputs. Any expression can follow the sums."""

    name = "mve_row_sums"
    core = "has_mve"
    forms = (ByteSumEpilogue,)
    element = DType.INT8
    multiple = 1

    def fits(self, size: Matrix, epilogue: ByteSumEpilogue) -> bool:
        """int8 by int8."""
        return bool(epilogue.weights.dtype == np.int8)

    def instructions(self, size: Matrix, epilogue: ByteSumEpilogue, target: Target) -> float:
        """19 instructions for 16 inputs and eight outputs, 20 for eight outputs, and 28 for each result."""
        group = 19 * -(-size.depth // mve.INT8_LANES) + 20
        return size.rows * (self.groups(size, epilogue) * group + (EPILOGUE + RESULT + 8) * size.outputs)

    def products(self, size: Matrix, epilogue: ByteSumEpilogue, target: Target) -> Products:
        """By the number of inputs beside whole vectors."""
        rest = size.depth % mve.INT8_LANES
        whole = size.depth - rest

        def rows(weights: Array, bias: Array) -> Array:
            parts = [by_turns(weights[:, :whole], GROUP, mve.INT8_LANES)] if whole else []
            parts += [by_turns(weights[:, whole:], GROUP, rest)] if rest else []
            return np.concatenate([*parts, numbers_of(bias, GROUP, np.int32)], axis=1)

        packed = packed_by_rows(rows, GROUP, epilogue.weights, epilogue.bias_of_model)
        layout = f"8 outputs a row: vectors of 16 weights by turns, {f'{rest} weights by turns, ' if rest else ''}"
        layout += "bytes of biases"
        name = f"mt_mve_row_sums_{rest}"
        others = _headers(epilogue)
        shared = (f"MT_MVE_ROW_SUMS({name}, {rest})",)
        return Products(packed, layout, "mt_mve_gemv_int8.h", name, shared=shared, others=others)

    def vector(self, size: Matrix, epilogue: ByteSumEpilogue) -> Body | None:
        """Of what vectors compute."""
        return _vector(epilogue)


# Dense layers of int16 activations for Helium: eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.


class Rows(GroupedGemv[Epilogue16]):
    """The common part of the schedules with int16 results and of those whose results are the sums.

    storing: instructions for eight outputs, besides their sums.
    """

    core = "has_mve"
    element = DType.INT16
    multiple = mve.INT16_LANES
    storing: ClassVar[int]

    def fits(self, size: Matrix, epilogue: Epilogue16) -> bool:
        """int16, sums of 32 bits."""
        return mve.has_narrow_sums(epilogue.node, epilogue.graph)

    def instructions(self, size: Matrix, epilogue: Epilogue16, target: Target) -> float:
        """19 instructions for 8 inputs and eight outputs, and what storing those takes."""
        return size.rows * self.groups(size, epilogue) * (19 * self.filled(size) / mve.INT16_LANES + self.storing)

    def products(self, size: Matrix, epilogue: Epilogue16, target: Target) -> Products:
        """One for each kind of result."""
        stream = packed_by_rows(partial(mve.pack_int16, together=GROUP), GROUP, epilogue.weights, *epilogue.numbers)
        layout = "8 outputs a row: the bytes of biases, vectors of 8 weights by turns"
        if isinstance(epilogue, SumEpilogue):
            others = _headers(epilogue)
            return Products(stream, layout, "mt_mve_gemv_int16.h", "mt_mve16_dense_sums", others=others)
        layout, declared = f"{layout}, the bytes of scales", epilogue.declared("mt_mve16_range", "MT_MVE16_RANGE")
        return Products(stream, layout, "mt_mve_gemv_int16.h", "mt_mve16_dense", declared, "&range")


class GemvInt16(Rows):
    """Row by row of the input; eight outputs share each vector of inputs."""

    name = "mve16_rows"
    forms = (Int16Epilogue,)
    storing = 30


class GemvSums(Rows):
    """Row by row of the input; eight outputs share each vector of inputs. Any expression can follow a row of sums."""

    name = "mve16_row_sums"
    forms = (SumEpilogue,)
    storing = 100

    def vector(self, size: Matrix, epilogue: Epilogue16) -> Body | None:
        """Of what vectors compute."""
        return _vector(epilogue) if isinstance(epilogue, SumEpilogue) else None


FLOAT_GROUPS = (16, 8, 4)  # outputs at a time: the loops that mt_mve_gemv_f32.h has


@dataclass(frozen=True)
class GemvF32(GroupedGemv[FloatEpilogue]):
    """Row by row of the input; a few vectors of outputs share each input element."""

    name = "mve_f32_rows"
    core = "has_mve"
    forms = (FloatEpilogue,)
    element = DType.FLOAT32

    outputs: int = knob(0, *FLOAT_GROUPS, meaning="outputs at a time; auto: the number with the fewest instructions")

    def fits(self, size: Matrix, epilogue: FloatEpilogue) -> bool:
        """float32."""
        return True

    def group(self, size: Matrix, epilogue: FloatEpilogue) -> int:
        """As many as take fewest instructions."""
        return self.outputs or min(FLOAT_GROUPS, key=lambda outputs: self._row(size, outputs))

    def _row(self, size: Matrix, outputs: int) -> int:
        """Instructions of a row: a load and a product for each vector of weights, two for four inputs, the results."""
        groups, vectors = round_up(size.outputs, outputs) // outputs, outputs // 4
        return groups * ((8 * vectors + 2) * self.filled(size) // 4 + 7 * vectors + 20)

    def instructions(self, size: Matrix, epilogue: FloatEpilogue, target: Target) -> float:
        """Those of a row for each."""
        return size.rows * float(self._row(size, self.group(size, epilogue)))

    def products(self, size: Matrix, epilogue: FloatEpilogue, target: Target) -> Products:
        """By the outputs at a time; the last argument is the least that a result may be."""
        group, stored = self.group(size, epilogue), epilogue.stored
        function = f"mt_mve_f32_rows_{stored + '_' if stored else ''}{group}"
        weights = pack_f32(epilogue.weights, epilogue.bias_of_model, group, stored)
        layout = LAYOUT_F32 + words_of(stored)
        return Products(weights, layout, "mt_mve_gemv_f32.h", function, last=epilogue.least)


SCHEDULES = (Gemv(), GemvByteSums(), GemvInt16(), GemvSums(), GemvF32())
