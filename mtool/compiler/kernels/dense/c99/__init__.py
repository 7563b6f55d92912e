"""Dense layers in portable C."""

from typing import Any

from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.dense.gemv import DenseSchedule, Matrix
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.target import Target, plain_product
from mtool.compiler.kernels.weighted_sum import is_widened

ALONE = 1.8  # instructions of a product whose input is not shared
TILE = 150  # bytes of four outputs at a time


class Gemv(DenseSchedule[EpilogueText]):
    """Row by row of the input; four outputs at a time share each input element.

    If code is to be small, each is computed alone, unless four at a time are worth their code.
    """

    name = "c99_rows"
    template = "kernels/dense/c99/gemv.c.j2"
    forms = (EpilogueText,)

    def instructions(self, size: Matrix, epilogue: EpilogueText, target: Target) -> float:
        """Those of the products, 24 instructions an output; outputs that are left of four share no input: 1.8 more."""
        product = plain_product(target, widened=is_widened(epilogue.node, epilogue.graph))
        alone = size.outputs % self._together(size, epilogue) if self._together(size, epilogue) > 1 else size.outputs
        return size.rows * (size.outputs * (product * size.depth + 24) + alone * ALONE * size.depth)

    def _together(self, size: Matrix, epilogue: EpilogueText) -> int:
        """Return how many outputs are computed at a time."""
        node, graph = epilogue.node, epilogue.graph
        saved = ALONE * size.rows * size.outputs * size.depth
        return 1 if graph.for_size and saved < TILE * price_of_code(node, graph) else 4

    def values(self, size: Matrix, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """Return the outputs at a time."""
        return {"together": self._together(size, epilogue)}


SCHEDULES = (Gemv(),)
