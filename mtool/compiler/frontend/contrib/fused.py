"""What onnxruntime's optimiser fuses: activations with a bias, convolutions and products with an activation, residual
connections with a normalisation. And the operators that ONNX took over under its own name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from mtool.compiler.frontend.decomposition import Decomposition
from mtool.compiler.frontend.problems import Unsupported

Contrib = Callable[[Decomposition], None]

ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "": (), "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"), "Softplus": (), "Softsign": (), "Elu": ("alpha",),
}  # fmt: skip
"""Activations that a fused operator may end in, and what their parameters are."""


def _activated(write: Decomposition, value: str, name: str, parameters: dict[str, float]) -> str:
    if name not in ACTIVATIONS:
        raise Unsupported(f"its activation {name!r} is not known")
    if name == "Clip":
        bounds = (write.constant(parameters[key], write.dtype(value)) for key in ("min", "max"))
        return write("Clip", value, *bounds)
    return write(name, value, **parameters) if name else value


def _activation(write: Decomposition, value: str) -> str:
    """Apply the attributes `activation` and `activation_params`."""
    name = write.word("activation", "")
    parameters = write.attrs.get("activation_params") or ()
    return _activated(write, value, name, dict(zip(ACTIVATIONS.get(name, ()), parameters, strict=False)))


def _attrs(write: Decomposition, *without: str) -> dict[str, Any]:
    return {key: value for key, value in write.attrs.items() if key not in without}


def _conv(write: Decomposition) -> None:
    """FusedConv: a convolution, a residual, an activation."""
    attrs = _attrs(write, "activation", "activation_params")
    result = write("Conv", *[name for name in write.proto.input[:3] if name], **attrs)
    if write.input(3):
        result = write("Add", result, write.input(3))
    write.give(_activation(write, result))


def _nhwc_conv(write: Decomposition) -> None:
    """NhwcConv, NhwcFusedConv: channels last, in the filters too."""
    rank = len(write.kind(write.input(0)).shape)
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    operands = [write("Transpose", write.input(index), perm=first) for index in (0, 1)]
    operands += [write.input(2)] * bool(write.input(2))
    attrs = _attrs(write, "activation", "activation_params")
    result = write("Transpose", write("Conv", *operands, **attrs), perm=last)
    if write.input(3):
        result = write("Add", result, write.input(3))
    write.give(_activation(write, result))


def _gemm(write: Decomposition) -> None:
    """FusedGemm."""
    name = write.word("activation", "")
    keys = {"alpha": "activation_alpha", "beta": "activation_beta"}
    parameters = {key: write.attrs[keys[key]] for key in ACTIVATIONS.get(name, ()) if keys.get(key) in write.attrs}
    kept = {key: value for key, value in write.attrs.items() if not key.startswith("activation")}
    inputs = [name for name in write.proto.input if name]
    write.give(_activated(write, write("Gemm", *inputs, **kept), name, parameters))


def _matmul(write: Decomposition) -> None:
    """FusedMatMul, TransposeMatMul: operands turned, the product times alpha."""
    write.refuse(transBatchA=write.attrs.get("transBatchA"), transBatchB=write.attrs.get("transBatchB"))
    operands = []
    for index, key in ((0, "transA"), (1, "transB")):
        value = write.input(index)
        rank = len(write.kind(value).shape)
        if write.attrs.get(key) and rank > 1:
            value = write("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(value)
    product = write("MatMul", *operands)
    alpha = write.attrs.get("alpha", 1.0)
    write.give(product if alpha == 1 else write("Mul", product, write.constant(alpha, write.dtype(product))))


def _gelu(approximate: str) -> Contrib:
    """Gelu, BiasGelu; FastGelu by the hyperbolic tangent. The bias is the second input, if there is one."""

    def written(write: Decomposition) -> None:
        x = write("Add", write.input(0), write.input(1)) if write.input(1) else write.input(0)
        write.give(write("Gelu", x, approximate=approximate))

    return written


def _quick_gelu(write: Decomposition) -> None:
    """QuickGelu: x * sigmoid(alpha * x)."""
    x = write.input(0)
    alpha = write.constant(write.attrs.get("alpha", 1.702), write.dtype(x))
    write.give(write("Mul", x, write("Sigmoid", write("Mul", x, alpha))))


def _simplified_layer_normalization(write: Decomposition) -> None:
    write.refuse(**{"second output": "".join(write.proto.output[1:])})
    attrs = {"axis": write.attrs.get("axis", -1), "epsilon": write.attrs.get("epsilon", 1e-5)}
    write.give(write("RMSNormalization", write.input(0), write.input(1), **attrs))


def _skip_normalization(simplified: bool) -> Contrib:
    """SkipLayerNormalization(input, skip, gamma, beta, bias); the simplified one has no beta."""

    def written(write: Decomposition) -> None:
        write.refuse(**{"mean and deviation": "".join(write.proto.output[1:3])})
        total = write("Add", write.input(0), write.input(1))
        bias = write.input(3 if simplified else 4)
        if bias:
            total = write("Add", total, bias)
        gamma, epsilon = write.input(2), write.attrs.get("epsilon", 1e-5 if simplified else 1e-12)
        if simplified:
            result = write("RMSNormalization", total, gamma, axis=-1, epsilon=epsilon)
        else:
            beta = write.input(3)
            result = write("LayerNormalization", total, gamma, *[beta] * bool(beta), axis=-1, epsilon=epsilon)
        write.give(result)
        write.give(total, 3)

    return written


def _same(op: str) -> Contrib:
    """An operator that ONNX has too."""

    def written(write: Decomposition) -> None:
        outputs = write.several(op, len(write.proto.output), *write.proto.input, **write.attrs)
        for index, output in enumerate(outputs):
            write.give(output, index)

    return written


def _expand_dims(write: Decomposition) -> None:
    axis = write.state.value_of(write.input(1), "axis")
    write.give(write("Unsqueeze", write.input(0), write.constant(np.reshape(axis, -1), np.int64)))


FUSED: dict[str, Contrib] = {
    "FusedConv": _conv,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "TransposeMatMul": _matmul,
    "Gelu": _gelu("none"),
    "BiasGelu": _gelu("none"),
    "FastGelu": _gelu("tanh"),
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
    "SkipLayerNormalization": _skip_normalization(simplified=False),
    "SkipSimplifiedLayerNormalization": _skip_normalization(simplified=True),
    "ExpandDims": _expand_dims,
    **{op: _same(op) for op in ("QuantizeLinear", "DequantizeLinear", "Pad", "Trilu", "Range", "GatherND")},
}
