"""Dense layers of int8 for RISC-V vectors, which are of outputs."""

from dataclasses import dataclass

from mtool.compiler.kernels.dense.gemv import DenseSchedule, Matrix
from mtool.compiler.kernels.epilogues import Products
from mtool.compiler.kernels.rvv import HEADER, TILE_MEANING, TILES, Tile, VectorEpilogue, best
from mtool.compiler.kernels.schedule import Target, knob


@dataclass(frozen=True)
class Gemv(DenseSchedule[VectorEpilogue]):
    """The outputs of a vector at a time; a few rows share each weight."""

    name = "rvv_rows"
    template = "kernels/dense/rvv/gemv_int8.c.j2"
    core = "has_rvv"
    forms = (VectorEpilogue,)

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def fits(self, size: Matrix, epilogue: VectorEpilogue) -> bool:
        """int8 to int8."""
        return True

    def _tile(self, size: Matrix, epilogue: VectorEpilogue) -> Tile:
        return TILES.get(self.tile) or best(size.rows, size.depth, size.outputs, epilogue.suffix)

    def scratch(self, size: Matrix, epilogue: VectorEpilogue) -> int:
        """The results, if something follows them."""
        return 0 if epilogue.rest is None else size.rows * size.outputs

    def instructions(self, size: Matrix, epilogue: VectorEpilogue, target: Target) -> float:
        """The tiles', 6 instructions an output that something follows."""
        after = 6.0 * size.rows * size.outputs if epilogue.rest is not None else 0.0
        return self._tile(size, epilogue).cost(size.rows, size.depth, size.outputs, epilogue.suffix) + after

    def products(self, size: Matrix, epilogue: VectorEpilogue, target: Target) -> Products:
        """All outputs together."""
        packed, function = epilogue.packed(epilogue.weights.T), self._tile(size, epilogue).function
        return epilogue.products(packed, epilogue.layout_of("input"), HEADER, function)


SCHEDULES = (Gemv(),)
