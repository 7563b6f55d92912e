"""LiteRT as the reference of a TFLite model: its reference kernels, or those that it takes by default (XNNPACK's)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mtool.base import distribution
from mtool.base.errors import BuildError, ModelError
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.process import HINT

NAME = "LiteRT"
PACKAGE = "ai-edge-litert"
INSTALL = distribution.install("litert")
States = Sequence[tuple[str, str]]


def version() -> str:
    """Return LiteRT's version, or "" if it is not installed."""
    return distribution.version_of(PACKAGE)


def outputs(
    model: str | bytes,
    samples: Sequence[Sample],
    *,
    title: str,
    constants: Mapping[str, Array] | None = None,
    states: States = (),
    initial: Mapping[str, Array] | None = None,
    exact: bool = False,
    delegates: bool = True,
) -> list[Sample]:
    """Run the model on each sample with LiteRT; the outputs by name, in the same order.

    Args:
        model: the TFLite file's absolute path, or its bytes.
        samples: inputs by name.
        title: what the file is called in messages.
        constants: inputs that are the same for every sample.
        states: pairs of an output and the input of the next sample that it feeds.
        initial: what states begin with, if not with zeros, or their zero points.
        exact: with the reference kernels, to whose rounding `rounding="tflite"` keeps, or, where these lack an
            operator, with the default ones, without delegates.
        delegates: False: with the default kernels, without delegates, if it is not `exact`.

    Raises:
        BuildError: LiteRT is not installed.
        ModelError: LiteRT refuses the model or an input.
    """
    return [
        {_name(detail): interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()}
        for interpreter in _runs(
            model,
            samples,
            constants or {},
            states,
            initial or {},
            title=title,
            exact=exact,
            delegates=delegates,
            keep=False,
        )
    ]


def intermediates(
    model: str | bytes,
    samples: Sequence[Sample],
    tensors: Iterable[str],
    *,
    title: str,
    constants: Mapping[str, Array] | None = None,
    states: States = (),
    initial: Mapping[str, Array] | None = None,
) -> list[Sample]:
    """Run the model on each sample with the reference kernels; the given tensors of it by name.

    What is not a tensor of the model is left out.

    Raises:
        BuildError: LiteRT is not installed.
        ModelError: LiteRT refuses the model or an input.
    """
    wanted = set(tensors)
    return [
        {
            _name(detail): interpreter.get_tensor(detail["index"]).copy()
            for detail in interpreter.get_tensor_details()
            if _name(detail) in wanted
        }
        for interpreter in _runs(
            model, samples, constants or {}, states, initial or {}, title=title, exact=True, keep=True
        )
    ]


def lacking(model: str | bytes) -> str:
    """Return an operator that the reference kernels lack in its version, as "TILE version 3", or ""."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    put = {"model_path" if isinstance(model, str) else "model_content": model}
    try:
        Interpreter(**put, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
    except (ValueError, RuntimeError) as refused:
        found = _LACKING.search(str(refused))
        return " version ".join(found.groups()) if found else ""
    return ""


_LACKING = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")


def _runs(
    model: str | bytes,
    samples: Sequence[Sample],
    constants: Mapping[str, Array],
    states: States,
    initial: Mapping[str, Array],
    *,
    title: str,
    exact: bool,
    keep: bool,
    delegates: bool = True,
) -> Iterator[Any]:
    """Yield the interpreter after each sample."""
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError:
        raise BuildError(
            "LiteRT is not installed",
            details=["it is what the outputs of a TFLite model are compared with"],
            hint=f"{INSTALL}, or {HINT}",
        ) from None
    how = OpResolverType.BUILTIN_REF if exact else OpResolverType.AUTO
    if (exact and lacking(model)) or not (exact or delegates):
        how = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        interpreter = Interpreter(
            **{"model_path" if isinstance(model, str) else "model_content": model},
            experimental_op_resolver_type=how,
            experimental_preserve_all_tensors=keep,
            num_threads=1,
        )
        _resize(interpreter, {**constants, **(samples[0] if samples else {})})
        interpreter.allocate_tensors()
        numbers = {_name(detail): detail["index"] for detail in interpreter.get_output_details()}
        inputs, fed = interpreter.get_input_details(), {value for _, value in states}
        kept = {_name(put): _first(put, initial) for put in inputs if _name(put) in fed}
        for sample in samples:
            if _resize(interpreter, {**constants, **sample}):
                interpreter.allocate_tensors()
                inputs = interpreter.get_input_details()
            for detail in inputs:
                data = {**sample, **constants, **kept}[_name(detail)]
                interpreter.set_tensor(detail["index"], np.asarray(data, detail["dtype"]).reshape(detail["shape"]))
            interpreter.invoke()
            kept = {value: interpreter.get_tensor(numbers[output]) for output, value in states}
            yield interpreter
    except (ValueError, RuntimeError, KeyError) as refused:
        raise ModelError(
            f"LiteRT can't run {title}",
            details=str(refused).splitlines()[:3],
            hint=HINT,
        ) from None


def _resize(interpreter: Any, given: Mapping[str, Array]) -> bool:
    """Give inputs whose shape is open, such as the batch, those of arrays; tell whether any has another shape now."""
    resized = False
    for detail in interpreter.get_input_details():
        array = given.get(_name(detail))
        if array is not None and -1 in detail["shape_signature"] and np.shape(array) != tuple(detail["shape"]):
            interpreter.resize_tensor_input(detail["index"], np.shape(array))
            resized = True
    return resized


def _name(detail: Mapping[str, Any]) -> str:
    """Return a tensor's name, as `frontend.tflite.schema` gives one to those that have none."""
    return detail["name"] or f"tensor_{detail['index']}"


def _first(detail: Mapping[str, Any], initial: Mapping[str, Array]) -> Array:
    """Return what a state begins with: what is given, or what its input has for 0."""
    points = detail["quantization_parameters"]["zero_points"]
    return np.broadcast_to(initial.get(_name(detail), points[0] if len(points) else 0), detail["shape"])
