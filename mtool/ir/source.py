"""The source of a value: a tensor of the model, and how it was moved since."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mtool.ir.types import Array

Move = tuple[Literal["transpose", "reshape", "take", "signed", "rows"], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor of the model, by its name there, and the moves that make a value of it, in order.

    "transpose" has the permutation of the dimensions, "reshape" the new shape, "take" the channels of the last
    dimension that are left, "signed" what is taken off to make it signed, "rows" the first of the second
    dimension that is left and the one after the last.
    """

    tensor: str
    moves: tuple[Move, ...] = ()

    def then(self, move: Move) -> "Source":
        """Return the source of a value that is made by one more move."""
        if self.moves and self.moves[-1][0] == move[0] not in ("signed", "rows"):
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
        else:
            data = (data.astype(np.int16) - numbers[0]).astype(np.int8)
    return np.ascontiguousarray(data)
