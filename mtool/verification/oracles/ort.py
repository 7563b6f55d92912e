"""onnxruntime as the reference of an ONNX model, on one thread.

Its products of integers are exact whatever the processor (mtool.verification.oracles.products).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from mtool.base import distribution
from mtool.base.errors import BuildError, ModelError
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles import library, products
from mtool.verification.oracles.process import HINT

NAME = "onnxruntime"
INSTALL = distribution.install("verify")

States = Sequence[tuple[str, str]]

log = logging.getLogger(__name__)

_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}  # the others have NumPy's names


def version() -> str:
    """Return onnxruntime's version, or "" if it is not installed."""
    return distribution.version_of(NAME)


def outputs(
    model: str | bytes,
    samples: Sequence[Sample],
    *,
    title: str,
    constants: Mapping[str, Array] | None = None,
    states: States = (),
    initial: Mapping[str, Array] | None = None,
    optimised: bool = False,
) -> list[Sample]:
    """Run a model on each sample; the outputs by name, in the same order.

    Args:
        model: the file's absolute path, or its bytes.
        samples: inputs by name.
        title: what the file is called in messages.
        constants: inputs that are the same for every sample.
        states: pairs of an output and the input of the next sample that it feeds.
        initial: what the states begin with.
        optimised: with its graph optimisations, which for a quantised model means integer kernels.

    Raises:
        BuildError: onnxruntime is not installed.
        ModelError: onnxruntime refuses the model or an input.
    """
    try:
        onnxruntime = library.onnxruntime()
    except ImportError:
        raise BuildError(
            "onnxruntime is not installed",
            details=["it is what the outputs are compared with"],
            hint=f"{INSTALL}, or {HINT}",
        ) from None
    options: Any = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # its errors are raised too; on the terminal it colours them, names and all
    try:
        exact = _with_exact_products(model)
        if optimised and exact is model and products.saturate():  # what it makes of QDQ form is not to saturate either
            options.add_session_config_entry("session.x64quantprecision", "1")
        session: Any = onnxruntime.InferenceSession(exact, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        kinds = {put.name: _TYPES.get(put.type, put.type[7:-1]) for put in session.get_inputs()}  # "tensor(int64)"
        fixed = {name: np.asarray(data).astype(kinds[name]) for name, data in (constants or {}).items()}
        kept = dict(initial or {})
        found = []
        for sample in samples:
            made = dict(zip(names, session.run(names, {**sample, **fixed, **kept}), strict=True))
            found.append(made)
            kept = {value: made[output] for output, value in states}
    except Exception as refused:  # onnxruntime's own classes of errors share no base but this
        raise ModelError(
            f"onnxruntime can't run {title}",
            details=str(refused).splitlines()[:3],
            hint=HINT,
        ) from None
    return [{name: _array(value) for name, value in made.items()} for made in found]


def _with_exact_products(model: str | bytes) -> str | bytes:
    """Return the model, or, where its integer products would saturate on this processor, one in which they don't."""
    proto = onnx.load(model, load_external_data=False) if isinstance(model, str) else onnx.load_from_string(model)
    if not products.has_products(proto) or not products.saturate():
        return model
    log.warning("%s", products.SAYING)
    whole = onnx.load(model) if isinstance(model, str) else proto
    return bytes(products.exact(whole).SerializeToString())


def _array(value: Any) -> Array:
    """Return an output as an array: of a sequence of maps (ZipMap) their values, which is what the C gives."""
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return np.array([list(row.values()) for row in value], np.float32)
    return np.asarray(value)
