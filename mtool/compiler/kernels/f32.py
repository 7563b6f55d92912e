"""Packed weights of float32 tiles."""

from functools import partial
from typing import Literal

import numpy as np

from mtool.compiler.ir import Array, Graph, Node
from mtool.compiler.kernels.packing import by_turns, packed_by_rows, round_up
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import remembered

# Products of float32: multiply-add or fused multiply-add.


PRODUCTS = ("muladd", "fma")  # rounded before they are added, or fused
PRODUCT_MEANING = "products are rounded before they are added, or fused; auto: the faster way on the core"


def best_product(target: Target) -> str:
    """Return the way to add products that takes fewer cycles on the core."""
    return "muladd" if target.fuses_slowly else "fma"


# How float32 kernels of Cortex-M store weights: as floats, as float16 or as bytes, which are widened as they are read.
#
# A byte is a sign and seven bits of magnitude. Four in a word are placed so that a mask makes two float16 of two of
# them without shifting any: subnormal ones, 2^-24 times the weight. Helium's kernels support only floats and float16.
# The layout of the words: crt/include/mt_f32.h.


Stored = Literal["", "halves", "bytes"]
UNIT = 2.0**24  # the factor of sums of bytes
_BITS = ((0, 15), (16, 31), (8, 23), (24, 7))  # the positions of the magnitude and the sign of each of four bytes


def stored_as(node: Node, graph: Graph) -> Stored | None:
    """Return how a node's constant weights are stored; None: kernels can't widen them.

    Weights that are float16 in the model's file are stored as float16 if that is still exact.
    """
    weights = graph.constants[node.inputs[1]]

    def choose() -> Stored | None:
        if weights.dtype == np.int8:
            return "bytes" if weights.min(initial=0) > -128 else None
        if weights.dtype == np.float32:
            return "halves" if graph.halves and are_halves(weights) else ""
        return None

    return remembered(graph, "stored weights", node.inputs[1], choose)


def are_halves(weights: Array) -> bool:
    """Whether all float32 weights can be represented in float16."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(weights.astype(np.float16).astype(np.float32), weights))


def as_words(rows: Array, stored: Stored) -> Array:
    """Return rows of weights as words, uint32 [N, K], [N, K/2] or [N, K/4]: float32, two float16, four bytes."""
    if stored == "bytes":
        four = rows.reshape(len(rows), -1, 4).astype(np.int16)
        sizes, signs = np.abs(four).astype(np.uint32), (four < 0).astype(np.uint32)
        words: Array = np.zeros(four.shape[:2], np.uint32)
        for number, (size, sign) in enumerate(_BITS):
            words |= sizes[:, :, number] << np.uint32(size) | signs[:, :, number] << np.uint32(sign)
        return words
    narrow = np.ascontiguousarray(rows, np.float16 if stored == "halves" else np.float32)
    return narrow.view(np.uint32)


def words_of(stored: Stored) -> str:
    """Describe the words of a stream, for the comment above it."""
    return {"": "", "halves": ", two float16 in a word", "bytes": ", four bytes in a word"}[stored]


LAYOUT = "the channels of a tile a row: biases, then their weights by turns"
MOST = 256
"""The most products that are added up from zero one after the other; for more,"""
BLOCK = 128
"""sums of this many are added up with compensation for rounding."""


def packed(weights: Array, bias: Array, together: int, stored: Stored = "") -> Array:
    """Return the stream of mt_f32_columns, float32 [N/T, T * (1 + K)], or words (mtool.compiler.kernels.f32).

    With more than `MOST` products, a tile's blocks except the first begin with zeros in place of biases.

    Args:
        weights: float32 or int8 [N, K]; N is padded to whole tiles, K to a multiple of 4.
        bias: float32 [N].
        together: T, the channels of a tile.
        stored: how the weights are stored; the biases are floats.
    """
    return packed_by_rows(partial(_rows, together=together, stored=stored), together, weights, bias)


def _rows(weights: Array, bias: Array, together: int, stored: Stored) -> Array:
    count = round_up(weights.shape[0], together)
    bias = np.pad(bias, (0, count - bias.size)).reshape(count // together, together)
    steps = by_turns(weights, together, 1, round_up(weights.shape[1], 4))
    deep = weights.shape[1] > MOST
    parts = np.split(steps, range(BLOCK * together, steps.shape[1], BLOCK * together), axis=1) if deep else [steps]
    streams = [part for block in parts for part in (bias if block is parts[0] else np.zeros_like(bias), block)]
    if stored:
        return np.concatenate([as_words(stream, stored if n % 2 else "") for n, stream in enumerate(streams)], axis=1)
    return np.concatenate(streams, axis=1).astype(np.float32)
