"""The source of a value: a tensor of the model, and how it was moved since."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mtool.compiler.ir.types import Array

Move = tuple[Literal["transpose", "reshape", "take", "signed", "rows", "quantised"], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor of the model, by its name there, and the moves that make a value of it, in order.

    "transpose" has the permutation of the dimensions, "reshape" the new shape, "take" the channels of the last
    dimension that are left, "signed" what is taken off to make it signed, "rows" the first of the second
    dimension that is left and the one after the last, "quantised" the bits of the float32 that is the scale, the zero
    point, the least and the largest integer, of a float that stands on that grid.
    """

    tensor: str
    moves: tuple[Move, ...] = ()

    def then(self, move: Move) -> "Source":
        """Return the source of a value that is made by one more move."""
        if self.moves and self.moves[-1][0] == move[0] not in ("signed", "rows", "quantised"):
            before, (what, numbers) = self.moves[:-1], move
            last = self.moves[-1][1]
            if what == "reshape":
                return Source(self.tensor, before).then(move) if before else Source(self.tensor, (move,))
            joined = tuple(last[number] for number in numbers)
            if what == "transpose" and joined == tuple(range(len(joined))):
                return Source(self.tensor, before)
            return Source(self.tensor, (*before, (what, joined)))
        return Source(self.tensor, (*self.moves, move))


def moved(data: Array, moves: tuple[Move, ...]) -> Array:
    """Apply moves to the tensor's own array."""
    for what, numbers in moves:
        if what == "transpose":
            data = data.transpose(numbers)
        elif what == "reshape":
            data = data.reshape(numbers)
        elif what == "take":
            data = data[..., list(numbers)]
        elif what == "rows":
            data = data[:, slice(*numbers)]
        elif what == "quantised":
            data = _quantised(data, *numbers)
        else:
            data = (data.astype(np.int32) - numbers[0]).astype(np.int8 if numbers[0] == 128 else np.int16)
    return np.ascontiguousarray(data)


def undone(data: Array, moves: tuple[Move, ...]) -> tuple[Array, tuple[Move, ...]]:
    """Return the tensor's own array from a moved one, and the moves that can't be undone: those that left elements out,
    or shapes that nobody noted, and all before them.
    """
    left = list(moves)
    while left:
        what, numbers = left[-1]
        if what == "transpose":
            data = data.transpose(np.argsort(numbers))
        elif what == "signed":
            data = (data.astype(np.int32) + numbers[0]).astype(np.uint8 if numbers[0] == 128 else np.uint16)
        elif what == "quantised":
            scale = np.array(numbers[0], np.uint32).view(np.float32)
            data = (data.astype(np.int32) - numbers[1]).astype(np.float32) * scale
        else:
            break
        left.pop()
    return np.ascontiguousarray(data), tuple(left)


def _quantised(data: Array, bits: int, point: int, least: int, most: int) -> Array:
    scale = np.array(bits, np.uint32).view(np.float32)
    dtype = next(kind for kind in (np.int8, np.uint8, np.int16, np.uint16) if np.iinfo(kind).max == most)
    with np.errstate(all="ignore"):
        places: Array = np.clip(np.rint(data / scale) + point, least, most)
        return np.nan_to_num(places, nan=least).astype(dtype)
