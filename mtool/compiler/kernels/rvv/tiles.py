"""Tiles of RISC-V vectors: how many input vectors share a row of weights. See crt/include/mt_rvv_tile_int8.h."""

import math
from dataclasses import dataclass

from mtool.compiler.kernels.rvv.epilogue import instructions

VLEN = 128  # bits of a register, for estimates: any length gives the same results
TILE_MEANING = "input vectors of a tile by registers of a row of 16-bit weights; auto: as the estimate says"


@dataclass(frozen=True, slots=True)
class Tile:
    """So many input vectors at a time, and so many registers for a row of weights of 16 bits."""

    vectors: int
    registers: int

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.vectors}x{self.registers}"

    @property
    def function(self) -> str:
        """The runtime's function, without the scaling."""
        return "mt_rvv_wide" if self.registers == 4 else "mt_rvv_tall"

    @property
    def lanes(self) -> int:
        """Outputs of a vector, about."""
        return VLEN // 16 * self.registers

    def cost(self, vectors: int, depth: int, outputs: int, kind: str, pieces: int = 1) -> float:
        """Return instructions: of a step of the depth 3, 2 an input; of a turn of four, 2 and one an input.

        `pieces`: of which the depth consists, each with a beginning in every vector.
        """
        here = min(vectors, self.vectors) if self.registers == 4 else self.vectors
        strips = math.ceil(outputs / self.lanes)
        step = 3 + 2 * here + (2 + here) / 4 - (0.9 if here == 1 and strips > 1 else 0.0)  # two share an input
        after = 50 + instructions(kind) * here + pieces * (8 + 2 * here)
        return math.ceil(vectors / self.vectors) * (strips * (depth * step + after) + 20 + 10 * self.vectors)


TILES = {tile.name: tile for tile in (Tile(2, 4), Tile(6, 2))}


def best(vectors: int, depth: int, outputs: int, kind: str, pieces: int = 1) -> Tile:
    """Return the tile with the fewest instructions."""
    return min(TILES.values(), key=lambda tile: tile.cost(vectors, depth, outputs, kind, pieces))
