"""The reference: the same model on the host, by onnxruntime with every graph optimisation off, or by LiteRT."""

import importlib.metadata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.errors import BuildError, ModelError
from mtool.frontend import Rounding, is_tflite
from mtool.workflow import litert
from mtool.workflow.samples import Array, Sample

NAME = "onnxruntime"
INSTALL = "pip install 'mtool[verify]'"


_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}  # the others have NumPy's names


def version() -> str:
    """Return onnxruntime's version, or "" if it is not installed."""
    try:
        return importlib.metadata.version(NAME)
    except importlib.metadata.PackageNotFoundError:
        return ""


def name_of(model: Path) -> str:
    """Return the name of what a model is compared with."""
    return litert.NAME if is_tflite(model) else NAME


def is_installed(model: Path) -> bool:
    """Whether what a model is compared with is there."""
    return bool(litert.version() if is_tflite(model) else version())


def outputs(
    model: Path,
    samples: Sequence[Sample],
    *,
    constants: Mapping[str, Array] | None = None,
    optimised: bool = False,
    rounding: Rounding = "onnx",
) -> list[Sample]:
    """Run the model on each sample with its reference; the outputs by name, in the same order.

    Args:
        model: the ONNX or TFLite file.
        samples: inputs by name.
        constants: inputs that are the same for every sample.
        optimised: with onnxruntime's graph optimisations, which for a quantised model means integer kernels.
        rounding: of a TFLite model: "tflite" for LiteRT's reference kernels, else those that it takes by default.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input.
    """
    if is_tflite(model):
        return litert.outputs(model, samples, constants=constants, exact=rounding == "tflite")
    return _run(str(model), samples, constants or {}, optimised=optimised, what=str(model))


def intermediates(
    model: Path, samples: Sequence[Sample], tensors: Iterable[str], *, constants: Mapping[str, Array] | None = None
) -> list[Sample]:
    """Run the model on each sample with its reference, without optimisations; the given tensors of it by name.

    What is not a tensor of the model's own graph is left out.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input.
    """
    if is_tflite(model):
        return litert.intermediates(model, samples, tensors, constants=constants)
    proto = onnx.load(model)
    own = {value for node in proto.graph.node for value in node.output}
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in dict.fromkeys(tensors) if name in own - present
    )
    return _run(proto.SerializeToString(), samples, constants or {}, optimised=False, what=str(model))


def _run(
    model: str | bytes, samples: Sequence[Sample], constants: Mapping[str, Array], *, optimised: bool, what: str
) -> list[Sample]:
    try:
        import onnxruntime
    except ImportError:
        raise BuildError(
            "onnxruntime is not installed",
            details=["it is what the outputs are compared with"],
            hint=f"{INSTALL}, or give a file of expected outputs: --golden G.npz",
        ) from None
    options: Any = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        kinds = {put.name: _TYPES.get(put.type, put.type[7:-1]) for put in session.get_inputs()}  # "tensor(int64)"
        fixed = {name: np.asarray(data).astype(kinds[name]) for name, data in constants.items()}
        found = [session.run(names, {**sample, **fixed}) for sample in samples]
    except Exception as refused:  # onnxruntime's own classes of errors share no base but this
        raise ModelError(
            f"onnxruntime can't run {what}",
            details=str(refused).splitlines()[:3],
            hint="give a file of expected outputs: --golden G.npz",
        ) from None
    return [dict(zip(names, map(_array, values), strict=True)) for values in found]


def _array(value: Any) -> Array:
    """Return an output as an array: of a sequence of maps (ZipMap) their values, which is what the C gives."""
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return np.array([list(row.values()) for row in value], np.float32)
    return np.asarray(value)


def own_spread(
    model: Path, samples: Sequence[Sample], name: str, step: float, constants: Mapping[str, Array] | None = None
) -> int:
    """Return by how many steps the reference's output differs from itself, with and without its optimisations.

    The two round in different places. No other implementation can be held to less.
    """
    if is_tflite(model):
        plain, optimised = (litert.outputs(model, samples, constants=constants, exact=exact) for exact in (True, False))
    else:
        plain, optimised = (outputs(model, samples, constants=constants, optimised=fast) for fast in (False, True))
    furthest = max(float(np.abs(a[name] - b[name]).max(initial=0)) for a, b in zip(plain, optimised, strict=True))
    return round(furthest / step)
