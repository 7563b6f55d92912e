"""Custom operators of MediaPipe's segmentation networks, on float32.

Their options are structs of C, as the runtime has them in memory: numbers of 32 bits, the padding first.
Source: mediapipe/util/tflite/operations (Apache-2.0), by the operator.
"""

from collections.abc import Sequence

import numpy as np

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import kernels
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, Translation

SAME, VALID = 1, 2  # TfLitePadding
MOST = 2**12  # of a window or a stride


def _numbers(t: Translation, count: int) -> list[int]:
    """Return the first numbers of the options: the padding, then sizes.

    Raises:
        Unsupported: there are not as many, or a size is none.
    """
    if len(t.op.custom) < 4 * count:
        raise Unsupported(f"its options have {len(t.op.custom)} bytes; expected {4 * count} or more")
    padding, *sizes = (int(number) for number in np.frombuffer(t.op.custom, "<i4", count))
    if padding not in (SAME, VALID) or not all(0 < size <= MOST for size in sizes):
        raise Unsupported(f"its padding is number {padding}, its stride and window {sizes}")
    return [padding, *sizes]


def _floats(t: Translation, inputs: int, outputs: int) -> None:
    if len(t.op.inputs) != inputs or len(t.op.outputs) != outputs:
        raise Unsupported(f"it has {len(t.op.inputs)} inputs and {len(t.op.outputs)} outputs")
    for tensor in (*(t.tensor(n) for n in range(inputs)), *(t.result(n) for n in range(outputs))):
        if tensor.dtype != np.float32:
            raise Unsupported(f"{tensor.name!r} is {tensor.dtype}; expected float32")


def _before(
    padding: int, size: Sequence[int], made: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> list[int]:
    """Return the pads before height and width; there are as many behind, or one more."""
    pairs = zip(size, made, window, stride, strict=True)
    return [max((out - 1) * s + k - n, 0) // 2 for n, out, k, s in pairs] if padding == SAME else [0, 0]


def _max_pooling(t: Translation) -> None:
    """MaxPoolingWithArgmax2D: the largest, and its position in the window, from the left, then down."""
    _floats(t, 1, 2)
    padding, across, down, wide, high = _numbers(t, 5)
    activation = int(np.frombuffer(t.op.custom[20:24], "<i4").sum())
    size, window, stride = t.shape(0, 4)[1:3], (high, wide), (down, across)
    pairs = list(zip(size, window, stride, strict=True))
    made = [-(-n // s) if padding == SAME else (n - k + s) // s for n, k, s in pairs]
    if min(made) < 1:
        raise Unsupported(f"its window {window} is larger than its input")
    pads = _before(padding, size, made, window, stride)
    attrs = {"window": window, "strides": stride, "pads": pads, "made": made}
    best, positions = t.several("MaxPoolArgmax", [t.stored(0)], 2, domain=OWN, **attrs)
    t.put(t.activated(best, activation))
    t.put(positions, 1)


def _max_unpooling(t: Translation) -> None:
    """MaxUnpooling2D: each number at its position in the window, zeros around it."""
    _floats(t, 2, 1)
    _, across, down, wide, high = _numbers(t, 5)
    size, window, stride = t.shape(0, 4)[1:3], (high, wide), (down, across)
    if t.shape(1) != t.shape(0):
        raise Unsupported(f"its places are {list(t.shape(1))} for {list(t.shape(0))} numbers")
    made = [n * k for n, k in zip(size, window, strict=True)]
    pads = _before(SAME, made, size, window, stride)
    attrs = {"window": window, "strides": stride, "pads": pads, "made": made}
    t.put(t.node("MaxUnpoolWindow", [t.stored(0), t.stored(1)], domain=OWN, **attrs))


def _transpose_conv(t: Translation) -> None:
    """Convolution2DTransposeBias: weights [out, height, width, in]."""
    _floats(t, 3, 1)
    padding, across, down = _numbers(t, 3)
    size, shape = t.shape(0, 4), t.shape(1, 4)
    if size[3] != shape[3]:
        raise Unsupported(f"its weights are for {shape[3]} channels, its input has {size[3]}")
    stride = (down, across)
    pairs = zip(size[1:3], shape[1:3], stride, strict=True)
    totals = [max(0, k - (n - 1) % s - 1) if padding == SAME else 0 for n, k, s in pairs]
    pads = [total // 2 for total in totals] + [total - total // 2 for total in totals]
    image = t.node("Transpose", [t.stored(0)], perm=NCHW_OF_NHWC)
    filters = kernels.weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 1)
    offsets = t.constant("bias", t.known(2, "bias").reshape(-1), np.float32)
    t.store_image(
        t.node("ConvTranspose", [image, filters, offsets], kernel_shape=shape[1:3], strides=stride, pads=pads)
    )


TRANSLATIONS = {
    "CUSTOM MaxPoolingWithArgmax2D": _max_pooling,
    "CUSTOM MaxUnpooling2D": _max_unpooling,
    "CUSTOM Convolution2DTransposeBias": _transpose_conv,
}
