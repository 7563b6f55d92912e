"""The reference: the same model on the host, by onnxruntime with every graph optimisation off, or by LiteRT.

Its products of integers are exact whatever the processor (mtool.workflow.products).
"""

import importlib.metadata
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.errors import BuildError, ModelError
from mtool.frontend import is_tflite
from mtool.frontend.reading import reread, runnable
from mtool.workflow import litert, products
from mtool.workflow.samples import Array, Sample
from mtool.workflow.stages import Options

NAME = "onnxruntime"
INSTALL = "pip install 'mtool[verify]'"

log = logging.getLogger(__name__)

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
    model: Path, samples: Sequence[Sample], *, options: Options | None = None, optimised: bool = False
) -> list[Sample]:
    """Run the model on each sample with its reference; the outputs by name, in the same order.

    Args:
        model: the ONNX or TFLite file.
        samples: inputs by name.
        options: of the compilation: its constants are inputs that are the same for every sample; with states, the
            samples are a sequence, and each is given the state outputs of the one before it; with the rounding
            "tflite", a TFLite model is run by LiteRT's reference kernels, else by those that it takes by default.
        optimised: with onnxruntime's graph optimisations, which for a quantised model means integer kernels.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input.
    """
    chosen = options or Options()
    if is_tflite(model):
        return litert.outputs(
            model, samples, constants=chosen.constants, states=chosen.states, exact=chosen.rounding == "tflite"
        )
    return _run(runnable(model), model, samples, chosen, optimised=optimised)


def intermediates(
    model: Path, samples: Sequence[Sample], tensors: Iterable[str], *, options: Options | None = None
) -> list[Sample]:
    """Run the model on each sample with its reference, without optimisations; the given tensors of it by name.

    What is not a tensor of the model's own graph is left out.

    Raises:
        BuildError: the reference is not installed.
        ModelError: the reference refuses the model or an input.
    """
    chosen = options or Options()
    if is_tflite(model):
        return litert.intermediates(model, samples, tensors, constants=chosen.constants, states=chosen.states)
    proto = reread(model)
    own = {value for node in proto.graph.node for value in node.output}
    present = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in dict.fromkeys(tensors) if name in own - present
    )
    return _run(proto.SerializeToString(), model, samples, chosen, optimised=False)


def _run(
    model: str | bytes, path: Path, samples: Sequence[Sample], chosen: Options, *, optimised: bool
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
        exact = _with_exact_products(model)
        if optimised and exact is model and products.saturate():  # what it makes of QDQ form is not to saturate either
            options.add_session_config_entry("session.x64quantprecision", "1")
        session: Any = onnxruntime.InferenceSession(exact, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        kinds = {put.name: _TYPES.get(put.type, put.type[7:-1]) for put in session.get_inputs()}  # "tensor(int64)"
        fixed = {name: np.asarray(data).astype(kinds[name]) for name, data in chosen.constants.items()}
        kept = _initial_states(path, chosen) if chosen.states else {}
        found = []
        for sample in samples:
            made = dict(zip(names, session.run(names, {**sample, **fixed, **kept}), strict=True))
            found.append(made)
            kept = {value: made[output] for output, value in chosen.states}
    except Exception as refused:  # onnxruntime's own classes of errors share no base but this
        raise ModelError(
            f"onnxruntime can't run {path}",
            details=str(refused).splitlines()[:3],
            hint="give a file of expected outputs: --golden G.npz",
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


def _initial_states(path: Path, chosen: Options) -> Sample:
    """Return what states begin with: their initialisers, or zeros."""
    graph = reread(path).graph
    wanted = {value for _, value in chosen.states}
    begun = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.name in wanted}
    found = {}
    for put in graph.input:
        if put.name in wanted:
            kind = put.type.tensor_type
            sizes = [
                dim.dim_value if dim.HasField("dim_value") else chosen.dims[dim.dim_param or f"{put.name}_{place}"]
                for place, dim in enumerate(kind.shape.dim)
            ]
            zeros = np.zeros(sizes, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            found[put.name] = begun.get(put.name, zeros)
    return found


def own_spread(model: Path, samples: Sequence[Sample], name: str, step: float, options: Options) -> int:
    """Return by how many steps the reference's output differs from itself, with and without its optimisations.

    The two round in different places. No other implementation can be held to less.
    """
    if is_tflite(model):
        same, states = options.constants, options.states
        plain, optimised = (
            litert.outputs(model, samples, constants=same, states=states, exact=exact) for exact in (True, False)
        )
    else:
        plain, optimised = (outputs(model, samples, options=options, optimised=fast) for fast in (False, True))
    pairs = [(np.asarray(a[name], np.float64), b[name]) for a, b in zip(plain, optimised, strict=True)]
    furthest = max(float(np.abs(one - other).max(initial=0)) for one, other in pairs)
    return round(furthest / step)
