"""Operators as models side by side, compiled for the host, and random inputs for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sanitized
from tflite_models import Array, Op, T, model

from mtool.base.option_values import Hybrid, Rounding
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan
from mtool.plugins.onnx_backend.batch import CModel, build

R = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """An operator with its tensors; the inputs are the tensors without data that are not outputs."""

    name: str
    op: Op
    tensors: Sequence[T]

    def renamed(self) -> tuple[Op, list[T]]:
        """Return both with names that are the case's own."""

        def mine(name: str) -> str:
            return f"{self.name}.{name}" if name else ""

        op = Op(
            self.op.kind,
            list(map(mine, self.op.inputs)),
            list(map(mine, self.op.outputs)),
            self.op.options,
            self.op.values,
            list(map(mine, self.op.intermediates)),
        )
        return op, [replace(t, name=mine(t.name)) for t in self.tensors]


def one_model(cases: Sequence[Case]) -> tuple[bytes, list[T], list[str]]:
    """Return a model of all cases side by side, its inputs, and its outputs' names."""
    ops, tensors = [], []
    for case in cases:
        op, own = case.renamed()
        ops.append(op)
        tensors += own
    outputs = [name for op in ops for name in op.outputs]
    between = [name for op in ops for name in op.intermediates]
    inputs = [t for t in tensors if t.data is None and not t.variable and t.name not in (*outputs, *between)]
    return model(tensors, ops, [t.name for t in inputs], outputs), inputs, outputs


def drawn(tensor: T) -> Array:
    kind = np.dtype(tensor.dtype)
    if kind.kind == "f":
        return (R.standard_normal(tensor.shape) * 2).astype(kind)
    if kind.kind == "b":
        return R.integers(0, 2, tensor.shape).astype(bool)
    if tensor.scale is None:
        return R.integers(1, 9, tensor.shape).astype(kind)
    limits = np.iinfo(kind)
    return R.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(kind)


def compute(
    data: bytes, feeds: dict[str, Array], folder: Path, rounding: Rounding, target: Target, hybrid: Hybrid = "auto"
) -> list[Array]:
    return compute_sequence(data, [feeds], folder, rounding, target, hybrid)[0]


def compute_sequence(
    data: bytes,
    sequence: Sequence[dict[str, Array]],
    folder: Path,
    rounding: Rounding,
    target: Target,
    hybrid: Hybrid = "auto",
) -> list[list[Array]]:
    """Return the outputs of each call of a sequence, between which states are kept."""
    path = folder / "model.tflite"
    path.write_bytes(data)
    plan = make_plan(passes.run(frontend.load(path, ModelOptions(rounding=rounding, hybrid=hybrid)), target), target)
    files, manifest = codegen.generate(plan, path.name, "0" * 64)
    made = CModel(files, manifest, tuple(range(len(manifest.inputs))))
    with build([made], folder, flags=(sanitized.LEVEL, *sanitized.LINKER)) as batch:
        return [batch.run(0, [feeds[tensor.name] for tensor in manifest.inputs]) for feeds in sequence]
