"""Dense layers of float32 for a Cortex-M's FPU: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_f32_gemv.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import DType
from mtool.compiler.kernels.dense.gemv import LAYOUT_F32, GroupedGemv, Matrix, pack_f32
from mtool.compiler.kernels.epilogues import FloatEpilogue, Products, StoredEpilogue
from mtool.compiler.kernels.f32 import PRODUCT_MEANING, PRODUCTS, best_product, words_of
from mtool.compiler.kernels.schedule import Target, knob

GROUP = 8  # outputs at a time


@dataclass(frozen=True)
class Gemv(GroupedGemv[FloatEpilogue]):
    """Row by row of the input; eight outputs share each input element."""

    name = "f32_rows"
    core = "has_float_tiles"
    forms = (StoredEpilogue,)
    element = DType.FLOAT32

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)

    def fits(self, size: Matrix, epilogue: FloatEpilogue) -> bool:
        """float32; weights of float16 or int8 are widened as they are read."""
        return True

    def instructions(self, size: Matrix, epilogue: FloatEpilogue, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 2 an output, 1.8 to widen a byte.

        1 to widen a float16 does not count, for the flash that it saves.
        """
        outputs, widened = GROUP * self.groups(size, epilogue), epilogue.stored == "bytes"
        product = 2.2 if (self.product or best_product(target)) == "muladd" else 1.2
        return size.rows * outputs * (size.depth * (product + (1.8 if widened else 0)) + 2)

    def products(self, size: Matrix, epilogue: FloatEpilogue, target: Target) -> Products:
        """By how products are added, and whether a ReLU follows."""
        weights = pack_f32(epilogue.weights, epilogue.bias_of_model, GROUP, epilogue.stored)
        function = epilogue.function("mt_f32_rows", self.product or best_product(target))
        return Products(weights, LAYOUT_F32 + words_of(epilogue.stored), "mt_f32_gemv.h", function)


SCHEDULES = (Gemv(),)
