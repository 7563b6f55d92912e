"""Dense layers of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py."""

from dataclasses import dataclass

from mtool.compiler.kernels.dense.gemv import DenseSchedule, Matrix
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.integer import RESULT, Tile, TileKnobs, Work, is_narrow
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True)
class Gemv(TileKnobs, DenseSchedule[EpilogueText]):
    """A few outputs at a time share each input element; with two rows, they share each weight."""

    name = "int_rows"
    template = "kernels/dense/integer/gemv_int8.c.j2"
    core = "registers"
    forms = (EpilogueText,)

    def fits(self, size: Matrix, epilogue: EpilogueText) -> bool:
        """8 bits by 8 bits."""
        return is_narrow(epilogue.node, epilogue.graph)

    def work(self, size: Matrix, epilogue: EpilogueText) -> Work:
        """Its rows by its outputs."""
        return Work.of(epilogue.node, epilogue.graph, size.rows, size.outputs, size.depth)

    def best(self, target: Target, work: Work) -> Tile:
        """Return the tile, of two rows if their number is even."""
        columns = 1 if work.vectors % (self.columns or 2) else self.columns
        return Tile.best(target, work, columns, self.channels, self.unroll)

    def instructions(self, size: Matrix, epilogue: EpilogueText, target: Target) -> float:
        """The tiles', 12 instructions more an output."""
        work = self.work(size, epilogue)
        return self.best(target, work).cost(target, work) + RESULT * size.rows * size.outputs


SCHEDULES = (Gemv(),)
