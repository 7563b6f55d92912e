"""How float32 kernels of Cortex-M store weights: as floats, as float16 or as bytes, which are widened as they are read.

A byte is a sign and seven bits of magnitude. Four in a word are placed so that a mask makes two float16 of two of them
without shifting any: subnormal ones, 2^-24 times the weight. Helium's kernels have floats and float16 alone. The layout
of the words: crt/include/mt_f32.h.
"""

from typing import Literal

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array

Stored = Literal["", "halves", "bytes"]

UNIT = 2.0**24  # what sums of bytes are multiplied by
_BITS = ((0, 15), (16, 31), (8, 23), (24, 7))  # of the magnitude and the sign of each of four


def stored_as(node: Node, graph: Graph) -> Stored | None:
    """Return how a node's constant weights are stored; None: kernels can't widen them.

    Weights that the model's file has as float16 are stored so, if they still are float16.
    """
    value = node.inputs[1]
    known: dict[str, Stored | None] = graph.memo.setdefault("stored weights", {})
    if value not in known:
        weights = graph.constants[value]
        if weights.dtype == np.int8:
            known[value] = "bytes" if weights.min(initial=0) > -128 else None
        elif weights.dtype == np.float32:
            known[value] = "halves" if graph.halves and are_halves(weights) else ""
        else:
            known[value] = None
    return known[value]


def are_halves(weights: Array) -> bool:
    """Whether float32 weights are float16 ones, each of them."""
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
    """Return what the words of a stream hold, for the comment above it."""
    return {"": "", "halves": ", two float16 in a word", "bytes": ", four bytes in a word"}[stored]
