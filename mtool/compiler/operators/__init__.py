"""The lowerings: what each ONNX operator becomes, in internal operators (mtool.compiler.kernels.registry).

An operator, or a family of them, is a file of this folder; it stands in the list below.
"""

from mtool.compiler.operators import (
    argmax_pooling,
    classical,
    control,
    conv,
    conv_transpose,
    creation,
    detection,
    detection_postprocess,
    einsum,
    elementwise,
    ethos_u,
    external,
    fixed_point,
    fourier,
    gemm,
    indexing,
    movement,
    normalize,
    ordering,
    pooling,
    pose_decoder,
    quantize,
    quantized_rows,
    recurrent,
    reduce,
    rescale,
    resize,
    sampling,
    scatter,
    signal_features,
    signal_transform,
    sliding_window,
    softmax,
    standardize,
    whole_recurrent,
)
from mtool.compiler.operators.lowering import Operator
from mtool.compiler.operators.own_domains import OwnOperator, own_of_kind

_MODULES = (
    classical, control, conv, conv_transpose, creation, detection, einsum, elementwise, external, fourier, gemm,
    indexing, movement, normalize, ordering, pooling, quantize, recurrent, reduce, rescale, resize, sampling, scatter,
    sliding_window, softmax, standardize,
)  # fmt: skip

OWN: dict[str, OwnOperator] = {
    **signal_features.OWN,
    **signal_transform.OWN,
    **detection_postprocess.OWN,
    **pose_decoder.OWN,
    **argmax_pooling.OWN,
    **quantized_rows.OWN,
    **fixed_point.OWN,
    **whole_recurrent.OWN,
    **ethos_u.OWN,
}
"""Operators of mtool's own that say themselves what their outputs are, by name."""

LOWERINGS: dict[str, Operator] = {
    **{op: entry for module in _MODULES for op, entry in module.LOWERINGS.items()},
    **{op: own.operator for op, own in OWN.items()},
}
"""Canonical ONNX operators and mtool's own, by name."""


def lowering_of(op: str) -> Operator | None:
    """Return the lowering of a canonical operator, be it ONNX's or of one's own domain; None: there is none."""
    own = own_of_kind(op)
    return own.operator if own else LOWERINGS.get(op)
