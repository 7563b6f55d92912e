"""onnx.reference, onnx's own evaluator, as the reference of operators that LiteRT and onnxruntime lack.

QONNX's operators are added: neither has them, and the package qonnx is not needed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.sequences import Run, over_samples

NAME = "onnx.reference"


def _opened(model: str | bytes) -> Run:
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    evaluator = ReferenceEvaluator(proto, new_ops=_qonnx(proto))

    def run(feeds: Mapping[str, Array]) -> Sample:
        with np.errstate(all="ignore"):
            made = evaluator.run(None, dict(feeds))
        return {name: np.asarray(data) for name, data in zip(evaluator.output_names, made, strict=True)}

    return run


outputs = over_samples(NAME, _opened)
"""Run a model on each sample (mtool.verification.oracles.sequences)."""


# QONNX's operators, as in the package qonnx 1.0 (qonnx.custom_op.general).


def _magnitudes(rounded: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: np.sign(x) * rounded(np.abs(x))


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": _magnitudes(np.ceil),
    "DOWN": np.trunc,
    "HALF_UP": _magnitudes(lambda x: np.floor(x + np.float32(0.5))),
    "HALF_DOWN": _magnitudes(lambda x: np.ceil(x - np.float32(0.5))),
}


def _limited(x: Array, width: Array, signed: int, narrow: int) -> Array:
    """Return numbers limited to those of a bit width."""
    most = 2 ** (int(width) - bool(signed)) - 1
    low, high = (narrow - most - 1, most) if signed else (0, most - narrow)
    return np.clip(x, np.float32(low), np.float32(high))


def _quant(x: Array, scale: Array, point: Array, width: Array, **attrs: Any) -> Array:
    steps = x / scale + point
    if attrs["signed"] and int(width) == 1:
        whole = np.where(steps >= 0, np.float32(1), np.float32(-1))
    else:
        whole = _ROUNDINGS[attrs["rounding_mode"].upper()](_limited(steps, width, attrs["signed"], attrs["narrow"]))
    return np.asarray((whole - point) * scale)


def _trunc(x: Array, scale: Array, point: Array, width: Array, *others: Array, **attrs: Any) -> Array:
    *new_scale, new_width = others
    rounding, numbers = _ROUNDINGS[attrs["rounding_mode"].upper()], np.round(x / scale + point)
    if not new_scale:
        return np.asarray((rounding(numbers / np.float32(2.0 ** (width - new_width))) - point) * scale)
    divisor = np.exp2(np.round(np.log2(new_scale[0] / scale)))
    whole = rounding(_limited(numbers / divisor, new_width, attrs["signed"], attrs["narrow"]))
    return np.asarray((whole - point / divisor) * new_scale[0])


def _bipolar(x: Array, scale: Array, **attrs: Any) -> Array:
    return np.asarray(np.where(x >= 0, np.float32(1), np.float32(-1)) * scale)


_QONNX: Mapping[str, tuple[Callable[..., Array], str]] = {
    "Quant": (_quant, "ROUND"),
    "IntQuant": (_quant, "ROUND"),
    "Trunc": (_trunc, "FLOOR"),
    "BipolarQuant": (_bipolar, "ROUND"),
}


def _qonnx(model: onnx.ModelProto) -> list[type]:
    """Return QONNX's operators as the evaluator's, in each of the model's domains."""
    from onnx.reference.op_run import OpRun

    def runs(compute: Callable[..., Array], mode: str) -> Callable[..., tuple[Array]]:
        def run(self: Any, *inputs: Array, **given: Any) -> tuple[Array]:
            attrs = {"signed": 1, "narrow": 0, "rounding_mode": mode} | given
            return (compute(*inputs, **attrs),)

        return run

    return [
        type(name, (OpRun,), {"op_domain": entry.domain, "_run": runs(*one)})
        for entry in model.opset_import
        if entry.domain
        for name, one in _QONNX.items()
    ]
