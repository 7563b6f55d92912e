"""onnxruntime on an x86 processor without VNNI: a session whose uint8-int8 products are VPMADDUBSW's.

The instruction multiplies uint8 by int8 and adds neighbouring products with saturation to int16; the sums of pairs are
then added in 32 bits. All else is onnx's own reference, and so is a product of two operands of one sign.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


def product(a: Array, b: Array, a_zero: Any = None, b_zero: Any = None) -> Array:
    """Return (a - a_zero) @ (b - b_zero) of matrices, the product of a and b being VPMADDUBSW's for uint8 and int8."""
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    if (a.dtype, b.dtype) == (np.uint8, np.int8):
        pairs = [wide_a[..., i : i + 2] @ wide_b[i : i + 2] for i in range(0, a.shape[-1], 2)]
        raw = sum(np.clip(pair, -32768, 32767) for pair in pairs)
    else:
        raw = wide_a @ wide_b
    za, zb = (0 if zero is None else np.asarray(zero, np.int64) for zero in (a_zero, b_zero))
    depth = a.shape[-1]
    corrected = raw - wide_a.sum(-1, keepdims=True) * zb - za * wide_b.sum(0) + depth * za * zb
    return np.asarray(corrected).astype(np.int32)


class MatMulInteger(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(self, a: Array, b: Array, a_zero: Any = None, b_zero: Any = None) -> tuple[Array]:
        return (product(a, b, a_zero, b_zero),)


class QLinearMatMul(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(self, a: Array, s: Any, az: Any, b: Array, bs: Any, bz: Any, ys: Any, yz: Any) -> tuple[Array]:
        scaled = product(a, b, az, bz).astype(np.float32) * (s * bs / ys).astype(np.float32)
        info = np.iinfo(yz.dtype)
        return (np.clip(np.rint(scaled) + yz, info.min, info.max).astype(yz.dtype),)


class InferenceSession:
    """As much of onnxruntime.InferenceSession as a reference needs."""

    def __init__(self, model: str | bytes, options: Any = None, providers: Any = None) -> None:
        proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
        self._graph = proto.graph
        self._evaluator = ReferenceEvaluator(proto, new_ops=[MatMulInteger, QLinearMatMul])

    def get_outputs(self) -> list[Any]:
        return self._described(self._graph.output)

    def get_inputs(self) -> list[Any]:
        return self._described(self._graph.input)

    @staticmethod
    def _described(values: Any) -> list[Any]:
        kinds = {put.name: helper.tensor_dtype_to_np_dtype(put.type.tensor_type.elem_type or 1) for put in values}
        return [SimpleNamespace(name=name, type=f"tensor({kind.name})") for name, kind in kinds.items()]

    def run(self, names: list[str] | None, feeds: dict[str, Array]) -> list[Any]:
        return list(self._evaluator.run(names, feeds))
