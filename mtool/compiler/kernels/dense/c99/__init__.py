"""Dense layers in portable C."""

from mtool.compiler.kernels.dense.gemv import DenseSchedule, Matrix
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.target import Target, plain_product
from mtool.compiler.kernels.weighted_sum import is_widened


class Gemv(DenseSchedule[EpilogueText]):
    """Row by row of the input; four outputs at a time share each input element."""

    name = "c99_rows"
    template = "kernels/dense/c99/gemv.c.j2"
    forms = (EpilogueText,)

    def instructions(self, size: Matrix, epilogue: EpilogueText, target: Target) -> float:
        """Those of the products, 24 instructions an output; outputs that are left of four share no input: 1.8 more."""
        each = plain_product(target, widened=is_widened(epilogue.node, epilogue.graph))
        return size.rows * (size.outputs * (each * size.depth + 24) + size.outputs % 4 * 1.8 * size.depth)


SCHEDULES = (Gemv(),)
