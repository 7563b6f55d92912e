"""The expected results of a mutant, from onnxruntime, onnx's reference evaluator and LiteRT."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtool.manifest import Tensor

Array = NDArray[Any]


def drawn(tensors: Sequence[Tensor], seed: int) -> list[Array]:
    """Draw inputs; integers that may be indices or counts are small."""
    rng = np.random.default_rng(seed)
    found = []
    for tensor in tensors:
        kind = np.dtype(tensor.dtype)
        if kind.kind == "b":
            data = rng.integers(0, 2, tensor.shape).astype(bool)
        elif kind.kind in "iu" and kind.itemsize <= 2:
            limits = np.iinfo(kind)
            data = rng.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(kind)
        elif kind.kind in "iu":
            data = rng.integers(0, 3, tensor.shape).astype(kind)
        else:
            data = rng.normal(0, 1, tensor.shape).astype(kind)
        found.append(data)
    return found


def onnxruntime_outputs(
    path: Path, feeds: Mapping[str, Array], *, optimised: bool, outputs: Sequence[str]
) -> list[Array]:
    """Return outputs by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    if names != list(outputs):
        raise ValueError(f"its outputs are {names}")
    wanted = {value.name for value in session.get_inputs()}
    return [np.asarray(value) for value in session.run(None, {n: d for n, d in feeds.items() if n in wanted})]


def reference_outputs(path: Path, feeds: Mapping[str, Array]) -> list[Array]:
    """Return outputs by onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return [np.asarray(value) for value in evaluator.run(None, dict(feeds))]


def litert_outputs(data: bytes, inputs: Sequence[Array], *, reference: bool) -> list[Array]:
    """Return outputs by LiteRT: of its reference kernels, or of those that it takes by default."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    how = OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=how, num_threads=1)
    interpreter.allocate_tensors()
    places = list({put["index"]: put for put in interpreter.get_input_details()}.values())
    if len(places) != len(inputs):
        raise ValueError(f"it has {len(places)} inputs")
    for put, given in zip(places, inputs, strict=True):
        interpreter.set_tensor(put["index"], given)
    interpreter.invoke()
    return [interpreter.get_tensor(put["index"]) for put in interpreter.get_output_details()]


def answers(path: Path, rounding: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Any]:
    """Return what each oracle says: its outputs, or its error as text."""
    ways: dict[str, Any] = {}
    if path.suffix == ".tflite":
        data, inputs = path.read_bytes(), list(feeds.values())
        ways["LiteRT"] = lambda: litert_outputs(data, inputs, reference=True)
        if rounding != "tflite":
            ways["LiteRT, default"] = lambda: litert_outputs(data, inputs, reference=False)
    else:
        for optimised in (False, True):
            name = "onnxruntime" + ", optimised" * optimised
            ways[name] = lambda o=optimised: onnxruntime_outputs(path, feeds, optimised=o, outputs=outputs)
        ways["onnx.reference"] = lambda: reference_outputs(path, feeds)
    found: dict[str, Any] = {}
    for name, way in ways.items():
        try:
            with np.errstate(all="ignore"):
                found[name] = way()
        except Exception as refused:  # their classes of errors share no base but this
            found[name] = f"{type(refused).__name__}: {str(refused)[:300]}"
    return found


def difference(wanted: Sequence[Array], got: Sequence[Array]) -> str:
    """Return how two lists of outputs differ: "" if they don't, "step" where only by one step of small integers."""
    if len(wanted) != len(got):
        return f"{len(got)} outputs for {len(wanted)}"
    worst = ""
    for number, (right, mine) in enumerate(zip(wanted, got, strict=True)):
        if right.shape != mine.shape or right.dtype != mine.dtype:
            return f"output {number}: {mine.dtype}{list(mine.shape)} for {right.dtype}{list(right.shape)}"
        if right.dtype.kind in "iub" or right.dtype.kind not in "fV":
            off = np.abs(mine.astype(np.float64) - right.astype(np.float64)).max(initial=0)
            if off > 1 or (off and right.dtype.itemsize > 2):
                return f"output {number}: {right.dtype} by {off}"
            worst = worst or ("step" if off else "")
            continue
        right, mine = right.astype(np.float64), mine.astype(np.float64)
        finite = np.isfinite(right)
        if not np.array_equal(np.where(finite, 0, right), np.where(np.isfinite(mine), 0, mine), equal_nan=True):
            return f"output {number}: inf or nan in other places"
        scale = np.abs(right[finite]).max(initial=1e-30)
        eps = 1e-4 if wanted[number].dtype.itemsize >= 4 else 2e-2
        off = np.abs(right[finite] - mine[finite]).max(initial=0)
        if off > eps * scale:
            return f"output {number}: by {off:.3g} of {scale:.3g}"
    return worst
