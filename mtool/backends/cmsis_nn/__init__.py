"""CMSIS-NN: int8 operators by a user's own copy of Arm's library.

Its arithmetic is that of TFLite's reference kernels, so that results are theirs with `--rounding tflite`; elsewhere
they may be one step off, and `--tolerance 1` has to allow that.
"""

from collections.abc import Mapping
from pathlib import Path

from mtool.backends.cmsis_nn import arithmetic, library
from mtool.backends.cmsis_nn.calls import CALLS, product_scale, rows_of
from mtool.backends.interface import Backend, Context, Product, Region
from mtool.backends.operation import Operation
from mtool.backends.pattern import Pattern
from mtool.kernels.multipliers import fixed_multiplier
from mtool.lowerings.gemm import Gemm
from mtool.lowerings.normalise import Softmax
from mtool.lowerings.sliding_window import Pool
from mtool.lowerings.window import Convolution


class CmsisNn(Backend):
    """Convolutions, matrix products, pools, softmax, sums and products of int8 tensors by CMSIS-NN."""

    name = "cmsis_nn"
    layout = "NHWC"
    whole_regions = False
    options: Mapping[str, str] = {
        "path": "the folder of CMSIS-NN, with Include and Source; default: CMSIS_NN_DIR, or a Zephyr workspace"
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.library = library.find(self.values.get("path", ""))

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: its arithmetic is not that of the rest of the network."""
        return super().refusal(operation, context) or _rounding(operation, context)

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the call of the one operation."""
        (operation,) = region.operations
        return CALLS[operation.kind](operation, self.library, region.context).product(self.library)


def _rounding(operation: Operation, context: Context) -> str:
    if context.tolerance:
        return ""
    moves = isinstance(operation.attrs, Pool) and operation.attrs.kind == "max"
    if context.rounding != "tflite" and not moves:
        return "it rounds as TFLite does: give --rounding tflite, or --tolerance 1"
    if operation.kind in ("Gemm", "MatMul"):
        multiplier, shift = fixed_multiplier(product_scale(operation))
        if arithmetic.differs_from_once(multiplier, shift, _bound(operation)):
            return "it rounds twice what LiteRT rounds once, which may be a step: give --tolerance 1"
    return ""


def _bound(operation: Operation) -> int:
    """Return a number that no accumulator of a matrix product is further from 0 than."""
    rows, x = rows_of(operation), operation.operand(0)
    bias = operation.inputs[2].data if len(operation.inputs) > 2 and operation.inputs[2] else None
    low, high = x.dtype.limits
    far = max(abs(low - arithmetic.zero_of(x)), abs(high - arithmetic.zero_of(x)))
    sums = abs(rows.astype(int)).sum(1) * far
    return int((sums + (0 if bias is None else abs(bias.reshape(-1).astype(int)))).max())


def _has_constant_weights(operation: Operation) -> str:
    weights = operation.operand(1)
    if not weights.is_constant or weights.dtype.label != "int8" or weights.quant is None:
        return "its weights are no constant of int8"
    if any(weights.quant.zero_point):
        return "its weights have zero points"
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    is_fit = bias is None or (bias.is_constant and bias.dtype.label == "int32")
    return "" if is_fit else "its bias is no constant of int32"


def _convolution(operation: Operation) -> str:
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    channels = operation.operand(0).shape[-1]
    if attrs.rank > 2:
        return f"it has {attrs.rank} dimensions"
    if attrs.group not in (1, channels):
        return f"its channels are in {attrs.group} groups"
    if attrs.group == channels > 1 and operation.operand(1).shape[1] != 1:
        return "its channels are in groups"
    return _has_constant_weights(operation)


def _dense(operation: Operation) -> str:
    attrs = operation.attrs
    if isinstance(attrs, Gemm) and (attrs.transA or attrs.alpha != 1 or attrs.beta != 1):
        return "it transposes or scales its operands"
    if len(operation.operand(1).shape) != 2 or operation.operand(1).quant is None:
        return "its weights are no matrix"
    if not operation.operand(1).is_per_tensor:
        return "its weights have a scale for each output"
    return _has_constant_weights(operation)


def _pool(operation: Operation) -> str:
    attrs = operation.attrs
    assert isinstance(attrs, Pool)
    if attrs.kind not in ("average", "max") or attrs.rank > 2 or any(one != 1 for one in attrs.dilations):
        return "it is another pool than one of one or two dimensions by mean or maximum"
    if attrs.count_pads and any(attrs.pads):
        return "it counts its padding"
    x, output = operation.operand(0), operation.output
    return "" if x.quant == output.quant else "its input and output are on two grids"


def _softmax(operation: Operation) -> str:
    attrs, output = operation.attrs, operation.output
    assert isinstance(attrs, Softmax)
    rank = len(operation.operand(0).shape)
    if attrs.log or attrs.axis % rank != rank - 1:
        return "it is not over the last dimension"
    fits = arithmetic.scale_of(output) == 2.0**-8 and arithmetic.zero_of(output) == -128
    return "" if fits else "its output does not stand on a grid of 1/256 from 0 on"


def _same_shapes(operation: Operation) -> str:
    if len(operation.variables) != 2:
        return "an operand is constant"
    one, other = operation.variables
    return "" if one.shape == other.shape == operation.output.shape else "its operands have two shapes"


CmsisNn.patterns = (
    Pattern("Conv", ("int8",), "NHWC", True, (_convolution,)),
    Pattern("Gemm", ("int8",), "", True, (_dense,)),
    Pattern("MatMul", ("int8",), "", True, (_dense,)),
    Pattern("Pool", ("int8",), "NHWC", True, (_pool,)),
    Pattern("Softmax", ("int8",), "", True, (_softmax,)),
    Pattern("Add", ("int8",), "", True, (_same_shapes,)),
    Pattern("Mul", ("int8",), "", True, (_same_shapes,)),
)
