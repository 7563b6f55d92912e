"""Packed weights of layers with int16 activations for SIMD32; see crt/include/mt_dsp_int16.h."""

from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.padding import round_up

PACKING_MEANING = "of weights: halves are pairs of int16; auto: bytes that are widened in the loop, if they are int8"


def pack(weights: Array, bias: Array, scale: Array | None, depth: int, together: int, packing: str = "") -> Array:
    """Return a stream, uint32 [N/together, ...]: of so many channels biases, words of weights turn by turn, scales.

    Args:
        weights: int8 or int16 [N, K]; N is filled up to a multiple of `together`, K to `depth`, with zeros.
        bias: int32 or int64 [N], the input's zero point folded in.
        scale: float32 [N]; None: the stream has none.
        depth: a multiple of 4.
        together: how many channels are computed at a time.
        packing: "halves": int8 weights become pairs of int16 too, which take twice the flash and no widening.
    """
    count = round_up(weights.shape[0], together)
    more, groups = count - weights.shape[0], count // together
    filled = np.pad(weights, ((0, more), (0, depth - weights.shape[1])))
    if weights.dtype == np.int8 and not packing:
        filled = filled.reshape(count, -1, 2, 2).swapaxes(2, 3)  # (0, 2, 1, 3): what SXTB16 gives are neighbours
    else:
        filled = filled.astype(np.int16)
    words = np.ascontiguousarray(filled.reshape(count, -1)).view(np.uint32).reshape(groups, together, -1)
    heads = np.pad(bias, (0, more)).view(np.uint32).reshape(groups, -1)
    parts = [heads, words.swapaxes(1, 2).reshape(groups, -1)]
    if scale is not None:
        parts.append(np.pad(scale.astype(np.float32), (0, more)).view(np.uint32).reshape(groups, -1))
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True, slots=True)
class Kind:
    """The loops of mt_dsp_int16.h that a layer takes, by its weights' packing and the width of its sums."""

    halves: bool
    long: bool

    @classmethod
    def of(cls, weights: Array, bias: Array, packing: str) -> "Kind | None":
        """Tell by the weights and the bias; None: they are neither int8 nor int16."""
        if weights.dtype not in (np.int8, np.int16):
            return None
        return cls(weights.dtype == np.int16 or packing == "halves", bias.dtype == np.int64)

    def layout(self, together: int, *, scaled: bool = True) -> str:
        """Return what stands where in a row of a stream of so many channels together."""
        biases = "biases of 64 bits" if self.long else "biases"
        words = "two weights" if self.halves else "four weights"
        scales = ", scales (the bits of floats)" if scaled else ""
        return f"{together} output channels a row: {biases}, words of {words} by turns{scales}"

    def function(self, stem: str, unroll: int) -> str:
        """Return the name of the runtime's function: mt_dsp16_bytes_28, mt_dsp16_halves_long."""
        return f"{stem}_{'halves' if self.halves else 'bytes'}_{'long' if self.long else unroll}"
