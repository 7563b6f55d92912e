"""LiteRT as the reference of a TFLite model: its reference kernels, or its default ones (XNNPACK's)."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mtool.base import distribution
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.sequences import Run, over_samples

NAME = "LiteRT"
PACKAGE = "ai-edge-litert"
INSTALL = distribution.install("litert")


def version() -> str:
    """Return LiteRT's version, or "" if it is not installed."""
    return distribution.version_of(PACKAGE)


def lacking(model: str | bytes) -> str:
    """Return an operator that the reference kernels lack in its version, as "TILE version 3", or ""."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    put = {"model_path" if isinstance(model, str) else "model_content": model}
    try:
        Interpreter(**put, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
    except (ValueError, RuntimeError) as refused:
        match = _LACKING.search(str(refused))
        return " version ".join(match.groups()) if match else ""
    return ""


_LACKING = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")


def _opened(
    model: str | bytes, *, exact: bool = False, delegates: bool = True, tensors: Iterable[str] | None = None
) -> Run:
    """Open a model.

    Args:
        model: the TFLite file's absolute path, or its bytes.
        exact: use the reference kernels, whose rounding is `rounding="tflite"`, or, if they lack an operator, the
            default ones without delegates.
        delegates: False: use the default kernels without delegates, unless `exact`.
        tensors: return these tensors of the model, if it has them, in place of its outputs.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    how = OpResolverType.BUILTIN_REF if exact else OpResolverType.AUTO
    if (exact and lacking(model)) or not (exact or delegates):
        how = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter: Any = Interpreter(
        **{"model_path" if isinstance(model, str) else "model_content": model},
        experimental_op_resolver_type=how,
        experimental_preserve_all_tensors=tensors is not None,
        num_threads=1,
    )
    names = None if tensors is None else {*tensors}
    is_ready = False

    def run(feeds: Mapping[str, Array]) -> Sample:
        nonlocal is_ready
        if _resize(interpreter, feeds) or not is_ready:
            interpreter.allocate_tensors()
            is_ready = True
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], _fed(detail, feeds[_name(detail)]))
        interpreter.invoke()
        there = interpreter.get_output_details() if names is None else interpreter.get_tensor_details()
        indices = {_name(detail): detail["index"] for detail in there if names is None or _name(detail) in names}
        return {name: interpreter.get_tensor(index) for name, index in indices.items()}

    return run


outputs = over_samples(NAME, _opened, INSTALL)
"""Run a model on each sample (mtool.verification.oracles.sequences); states begin with their zero points."""


def _resize(interpreter: Any, feeds: Mapping[str, Array]) -> bool:
    """Resize inputs with an open shape, such as the batch, to the arrays; return whether any shape changed."""
    resized = False
    for detail in interpreter.get_input_details():
        array = feeds.get(_name(detail))
        if array is not None and -1 in detail["shape_signature"] and np.shape(array) != tuple(detail["shape"]):
            interpreter.resize_tensor_input(detail["index"], np.shape(array))
            resized = True
    return resized


def _name(detail: Mapping[str, Any]) -> str:
    """Return a tensor's name, or the one that `frontend.tflite.schema` gives to unnamed tensors."""
    return detail["name"] or f"tensor_{detail['index']}"


def _fed(detail: Mapping[str, Any], data: Any) -> Array:
    """Return the array for an input; None stands for a state's zero point."""
    if data is None:
        points = detail["quantization_parameters"]["zero_points"]
        data = points[0] if len(points) else 0
    array, shape = np.asarray(data, detail["dtype"]), detail["shape"]
    return array.reshape(shape) if array.size == np.prod(shape) else np.broadcast_to(array, shape)
