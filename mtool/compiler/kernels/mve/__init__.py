"""Helium: vectors, and tiles of them."""

from dataclasses import replace

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, Graph, Node
from mtool.compiler.ir.scalar import Requantize
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import ExactScaling
from mtool.compiler.kernels.packing import by_turns, numbers_of, round_up
from mtool.compiler.kernels.scaling import Scaling

# How Helium scales the sums of an int8 layer: the cheapest way that gives the same integers.


ONE = 1 << 30  # the multiplier of channels with a constant result


@frozen
class MultiplierScaling(Scaling):
    """A multiplier a channel and one offset for all, which VQDMLASH adds: see mt_requantize_exact of mt_math.h."""

    places: int
    meaning = "multiplier"

    @property
    def kind(self) -> str:
        """By the places, which the instructions hold."""
        return f"_exact{self.places}"


def vector_scaling(epilogue: Int8Epilogue) -> Int8Epilogue:
    """Return an epilogue with multipliers, if all channels have one with the layer's offset; else with near floats."""
    scaling, bias = epilogue.exact_scaling()
    if not isinstance(scaling, ExactScaling) or not isinstance(epilogue.how, Requantize):
        return epilogue.nearer()
    if (epilogue.how.low, epilogue.how.high) != (-128, 127) or not scaling.has_multiplier.all():
        return epilogue.nearer()
    zero_point, places = epilogue.how.zero_point, scaling.places
    multiplier, offset = scaling.words.view(np.int32).astype(np.int64).T
    dead = np.array([not channel.any() for channel in epilogue.weights])
    if (offset[~dead] != (zero_point << places) + (1 << (places - 1))).any():
        return epilogue.nearer()
    sums = (offset >> places) - zero_point  # the sum, in steps, that gives this result
    words = np.where(dead, ONE, multiplier).astype(np.int32).view(np.uint32)[:, None]
    bias = np.where(dead, np.clip(sums, -256, 255) << (places + 2), bias).astype(np.int32)
    return replace(epilogue, scaling=MultiplierScaling(words, places), bias=bias)


INT8_LANES = 16
INT16_LANES = 8
F32_LANES = 4
EVEN_FIRST = np.array([0, 2, 4, 6, 1, 3, 5, 7])  # the even lanes of 16 bits are scaled in one vector, and narrowed then


def best_unroll(depth: int, lanes: int, unrolls: tuple[int, ...]) -> int:
    """Return the largest unrolling, in vectors of `lanes` lanes, that divides a depth."""
    vectors = round_up(depth, lanes) // lanes
    return next(unroll for unroll in unrolls if vectors % unroll == 0)


def pack_int16(weights: Array, bias: Array, scale: Array | None = None, *, together: int, depth: int = 0) -> Array:
    """Return the stream of mt_mve16_columns and mt_mve16_rows, int8 [N/T, 4 or 8 * T + T * K].

    Args:
        weights: int8 [N, K]; N is padded to whole T, K to `depth` or whole vectors.
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N]; None: the stream has none.
        together: T, the channels that are computed together.
        depth: whole vectors.
    """
    parts = [numbers_of(bias, together, np.int32), by_turns(weights, together, INT16_LANES, depth)]
    if scale is not None:
        parts.append(numbers_of(scale, together, np.float32))
    return np.concatenate(parts, axis=1)


def has_narrow_sums(node: Node, graph: Graph) -> bool:
    """Whether the weights are int8 and sums are proved to fit in 32 bits."""
    weights, bias = (graph.constants[node.inputs[n]].dtype for n in (1, 2))
    return bool(weights == np.int8 and bias == np.int32)
