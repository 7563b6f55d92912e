"""Hybrid operators as LiteRT computes them: float activations, int8 weights, products of integers.

The activations are quantised as they come, each row (of a dense layer) or image by its own range: around zero, or with
a zero point between its ends. The products of int8 are summed up in int32, and the sums scaled back by the two scales.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import kernels
from mtool.compiler.frontend.tflite.description import Operator, Tensor
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, NHWC_OF_NCHW, Translation
from mtool.compiler.ir.types import Array

STEPS = "QuantisedRows"  # mtool's own operator, of mtool/compiler/operators/quantize.py


def in_integers(options: ModelOptions) -> bool:
    """Whether hybrid operators are to be computed as LiteRT does."""
    return options.hybrid in ("auto", "int8")


def is_hybrid(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether LiteRT quantises the activations of an operator, which has int8 weights without zero point."""
    return operator.kind in TRANSLATIONS and _has_int8_weights(operator, tensors)


def is_without_form(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether LiteRT quantises the activations of an operator, and there is no translation that does."""
    return operator.kind == "BATCH_MATMUL" and _has_int8_weights(operator, tensors)


def _has_int8_weights(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    numbers = (*operator.inputs[:2], *operator.outputs[:1])
    if len(numbers) != 3 or min(numbers) < 0:
        return False
    x, w, y = (tensors[number] for number in numbers)
    int8 = w.dtype == np.int8 and w.is_quantised and w.data is not None and not w.zero_point.any()
    return int8 and x.dtype == np.float32 and y.dtype == np.float32


def is_part_of(network: onnx.ModelProto) -> bool:
    """Whether a network has such operators, in integers."""
    return any(node.op_type == STEPS and node.domain == OWN for node in network.graph.node)


def quantised(t: Translation, x: str, *, around_zero: bool) -> tuple[str, str]:
    """Return the steps of float32 numbers as whole numbers of float32, and the scale of each row."""
    steps, scale = t.several(STEPS, [x], 2, domain=OWN, around_zero=int(around_zero))
    return t.dequantise(steps, np.dtype(np.int16), np.ones(1, np.float32), np.zeros(1, np.int64)), scale


def _filters(t: Translation, arranged: Callable[[Array], Array]) -> str:
    data = arranged(t.known(1, "weights"))
    return t.dequantise(t.constant("weights", data), data.dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def _finish(t: Translation, sums: str, factor: str, channels: int, *, behind: str = "") -> str:
    """Return the sums times one factor and another, plus the bias, behind the fused activation."""
    made = t.node("Mul", [sums, factor])
    if behind:
        made = t.node("Mul", [made, behind])
    offsets = kernels.bias(t, 2, channels, 0, 1)
    if offsets:
        made = t.node("Add", [made, offsets])
    return t.activated(made, t.op.option("FusedActivationFunction"))


def _channel_scales(t: Translation, channels: int) -> str:
    scale = t.tensor(1).scale
    if scale.size not in (1, channels):
        raise Unsupported(f"its weights have {scale.size} scales for {channels} channels")
    return t.constant("scale", scale if scale.size > 1 else scale[0], np.float32)


def _fully_connected(t: Translation) -> None:
    flat, channels = kernels.flat_rows(t)
    steps, scale = quantised(t, flat, around_zero=not t.op.option("AsymmetricQuantizeInputs"))
    sums = t.node("Gemm", [steps, _filters(t, lambda data: data)], transB=1)
    factor = t.node("Mul", [scale, _channel_scales(t, channels)])
    t.put(kernels.unflat(t, _finish(t, sums, factor, channels), channels))


def _conv(t: Translation) -> None:
    """CONV_2D: around zero, but where channels have scales of their own or lie in groups."""
    shape, geometry = kernels.of_conv(t)
    scales = t.tensor(1).scale
    apart = np.unique(scales).size > 1 or geometry["group"] > 1
    steps, scale = quantised(t, t.real(0), around_zero=not apart)
    sums = _sums(t, steps, lambda data: data.transpose(0, 3, 1, 2), geometry)
    if apart:
        t.put(_finish(t, sums, _channel_scales(t, shape[0]), shape[0], behind=scale))
        return
    factor = t.node("Mul", [scale, t.constant("scale", scales[0], np.float32)])
    t.put(_finish(t, sums, factor, shape[0]))


def _depthwise(t: Translation) -> None:
    shape, geometry = kernels.of_depthwise(t)
    steps, scale = quantised(t, t.real(0), around_zero=False)
    sums = _sums(t, steps, lambda data: data.transpose(3, 0, 1, 2), geometry)
    t.put(_finish(t, sums, t.node("Mul", [_channel_scales(t, shape[3]), scale]), shape[3]))


def _sums(t: Translation, steps: str, arranged: Callable[[Array], Array], geometry: kernels.Geometry) -> str:
    image = t.node("Transpose", [steps], perm=NCHW_OF_NHWC)
    return t.node("Transpose", [t.node("Conv", [image, _filters(t, arranged)], **geometry)], perm=NHWC_OF_NCHW)


TRANSLATIONS: dict[str, Callable[[Translation], None]] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
}
"""Operators that LiteRT computes so, where their weights are int8 and their activations float32."""
