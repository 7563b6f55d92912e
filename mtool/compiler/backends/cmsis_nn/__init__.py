"""CMSIS-NN: operators of int8 and int16 by a user's own copy of Arm's library.

Its arithmetic is that of TFLite's reference kernels, so that results are theirs with `--rounding tflite`; elsewhere
they may be a step off, and `--tolerance 1` has to allow that.
"""

from collections.abc import Mapping
from pathlib import Path

from mtool.compiler.backends.cmsis_nn import conditions, library
from mtool.compiler.backends.cmsis_nn.calls import Call
from mtool.compiler.backends.cmsis_nn.conditions import function_of
from mtool.compiler.backends.interface import Backend, Context, Operation, Product, Region


class CmsisNn(Backend):
    """Convolutions, matrix products, pools, softmax, sums and products of int8 and int16 tensors by CMSIS-NN."""

    name = "cmsis_nn"
    layout = "NHWC"
    whole_regions = False
    patterns = conditions.PATTERNS
    options: Mapping[str, str] = {
        "path": "the folder of CMSIS-NN, with Include and Source; default: CMSIS_NN_DIR, or a Zephyr workspace"
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.library = library.find(self.values.get("path", ""))

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: the library is too old for it; its arithmetic is not that of the rest of the network."""
        if context.target.is_8_bit:
            return "it is for cores of 32 bits"
        return (
            super().refusal(operation, context)
            or self.library.lacks(function_of(operation))
            or conditions.rounding(operation, context)
        )

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the call of the one operation."""
        return Call(self.library, region).finished()
