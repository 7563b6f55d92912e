"""Prepend front ends to a model: one ONNX graph from what a sensor gives to the model's outputs."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mtool.base import files, plural
from mtool.base.errors import ModelError, UsageError
from mtool.base.spelling import did_you_mean
from mtool.compiler.frontend import is_tflite
from mtool.compiler.frontend.first_values import MOVING
from mtool.compiler.frontend.model_states import STATES, model_states
from mtool.compiler.frontend.onnx_file import read_bound
from mtool.compiler.frontend.reading import opset_of, parsed, read_bytes, with_opset
from mtool.compiler.operators.budget import Budget
from mtool.compiler.operators.problems import OWN, REFUSED
from mtool.preprocessing.audio import MicroSpeech
from mtool.preprocessing.filters import Biquad, Decimate
from mtool.preprocessing.front import Front, Kind, Target, check
from mtool.preprocessing.image import Image
from mtool.preprocessing.motion import SpectralPower, Statistics
from mtool.preprocessing.nodes import OPSET, Nodes
from mtool.preprocessing.spectrum import LogMel, Mfcc, Spectrogram
from mtool.stages.options import Options
from mtool.verification import reference

KINDS: Mapping[str, tuple[type[Kind], Mapping[str, Any]]] = {
    "spectrogram": (Spectrogram, {}),
    "log_mel": (LogMel, {}),
    "mfcc": (Mfcc, {}),
    "micro_speech": (MicroSpeech, {}),
    "micro_wake_word": (MicroSpeech, {"hop": 160, "rows": 3}),
    "mlperf_wake_word": (LogMel, {"like": "mlperf"}),
    "statistics": (Statistics, {}),
    "spectral_power": (SpectralPower, {}),
    "image": (Image, {}),
    "biquad": (Biquad, {}),
    "decimate": (Decimate, {}),
}
"""The kinds of front ends: their classes, and parameters other than the defaults."""

_RATE = "mtool.rate"
"""The metadata with the samples a second that a front end takes."""


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """A model with front ends, in the file `path`.

    input, output: their first input, and the model's input that they compute, as text. states: the names of the states
    that were added.
    """

    path: Path
    input: str
    output: str
    states: tuple[str, ...]


def preprocess(
    front: str | Sequence[str],
    path: str | Path,
    *,
    output: str | Path | None = None,
    target: str = "",
    options: Options | None = None,
) -> Preprocessed:
    """Prepend front ends to a model and write it as ONNX.

    Args:
        front: the kinds, in the order in which they compute; each with parameters: "micro_wake_word:rows=1".
        path: an ONNX or TFLite file.
        output: the .onnx file to write; None: the model's name with "_front", in the current folder.
        target: the model's input that they compute; "": its only one.
        options: of the model.

    Raises:
        UsageError: a kind or parameter is unknown, or a front end can't compute the model's input.
        ModelError: the file is not a model, or has operators that ONNX lacks.
    """
    source, options = Path(path), options or Options()
    kinds = [kind_of(text) for text in ([front] if isinstance(front, str) else front)]
    if not kinds:
        raise UsageError("there is no kind of front end", hint=f"give one of {', '.join(KINDS)}")
    file = Path(output) if output is not None else Path(f"{source.stem}_front.onnx")
    if file.suffix != ".onnx":
        raise UsageError(f"{file}: the output has to be an .onnx file", hint=f"-o {file.stem or 'model'}.onnx")
    files.check_writable(file, [source])
    proto, initial = _read(source, options)
    model_input = _target(proto, target, source)
    used = _names(proto.graph)
    prefix = next(part for part in _numbered("front", "/") if not any(name.startswith(part) for name in used))
    prepended, targets = Front(Nodes(prefix)), [model_input]
    rate = _rate(proto)
    for kind in reversed(kinds):
        targets.insert(0, kind.needs(targets[0]))
        rate = kind.values().get("rate", rate * kind.values().get("by", 1))
    value = next(candidate for candidate in _numbered(targets[0].name) if candidate not in used)
    first = targets[0] = replace(targets[0], name=value)
    for kind, needed in zip(kinds, targets[1:], strict=True):
        value = kind.append(prepended, value, needed)
    _put(proto, prepended, first, model_input, value)
    _record(proto, _RATE, str(rate) if rate else "")
    proto.graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in initial.items())
    onnx.checker.check_model(proto)
    onnx.save(proto, str(file))
    return Preprocessed(file, str(first), str(model_input), tuple(name for _, name, _ in prepended.states))


def rate_of(path: Path) -> int:
    """Return the samples a second that a model's front end takes; 0: it is not known."""
    return 0 if is_tflite(path) else _rate(parsed(path, read_bytes(path, Budget())))


def _rate(proto: onnx.ModelProto) -> int:
    text = next((entry.value for entry in proto.metadata_props if entry.key == _RATE), "")
    return int(text) if text.isdecimal() else 0


_WORDS = {int: "a whole number", float: "a number"}  # of parameters


def kind_of(text: str) -> Kind:
    """Return the front end that a text describes: KIND or KIND:KEY=VALUE,KEY=VALUE.

    Raises:
        UsageError: the kind or a parameter is unknown or twice there, or a value has the wrong type or is out of range.
    """
    name, _, rest = text.partition(":")
    if name not in KINDS:
        raise UsageError(f"unknown front end {name!r}", hint=did_you_mean(name, KINDS, f"one of {', '.join(KINDS)}"))
    cls, changed = KINDS[name]
    settings: dict[str, Any] = {}
    parameters = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key in parameters and not equals:
            raise UsageError(f"front end {text!r}: {key} has no value", hint=f"{name}:{key}=VALUE")
        if key not in parameters:
            raise UsageError(
                f"front end {text!r}: {key!r} is not a parameter of {name}",
                hint=did_you_mean(key, parameters, f"it has {', '.join(parameters)}"),
            )
        if key in settings:
            raise UsageError(f"front end {text!r}: {key} is given twice")
        value_type: Any = type(parameters[key].default)
        try:
            settings[key] = value_type(value)
        except ValueError:
            raise UsageError(f"front end {text!r}: {key} is {value!r}; expected {_WORDS[value_type]}") from None
    kind = cls(**{**changed, **settings})
    check(kind, settings, repr(text))
    return kind


def _read(source: Path, options: Options) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model in ONNX with its own states in its metadata, and the initial values of those.

    Raises:
        ModelError: it has operators that ONNX lacks.
    """
    if not is_tflite(source):
        proto = read_bound(source, options)
        if (opset_of(proto) or OPSET) < OPSET:
            proto = with_opset(proto, OPSET, source.name)
        _record_states(proto, (*model_states(proto), *options.states))
        return proto, {}
    # onnxruntime can't run LiteRT's integer arithmetic of int8 weights with float activations
    chosen = replace(options, hybrid="float") if options.hybrid == "auto" else options
    _, compared = reference.translated(source, chosen)
    foreign = [node.name or node.op_type for node in compared.proto.graph.node if node.domain in (OWN, REFUSED)]
    if foreign:
        raise ModelError(
            f"{source.name} has operators whose arithmetic ONNX lacks",
            details=foreign[:5],
            hint="prepend the front end to the same model in ONNX, exported from the framework that trained it",
        )
    for number, node in enumerate(compared.proto.graph.node):  # the nodes of one operator share its name
        node.name = f"{node.name or node.op_type} {number}"
    _record_states(compared.proto, compared.states)
    return compared.proto, dict(compared.initial)


def _record_states(proto: onnx.ModelProto, states: Sequence[tuple[str, str]]) -> None:
    _record(proto, STATES, json.dumps(states) if states else "")


def _record(proto: onnx.ModelProto, key: str, value: str) -> None:
    """Write a value to a model's metadata; "": remove it."""
    others = [entry for entry in proto.metadata_props if entry.key != key]
    del proto.metadata_props[:]
    proto.metadata_props.extend(others)
    if value:
        proto.metadata_props.add(key=key, value=value)


def _target(proto: onnx.ModelProto, name: str, source: Path) -> Target:
    """Return the model's input of a name, or its only one.

    Raises:
        UsageError: there is no such input, or there are several; it is not a tensor of a fixed size.
    """
    fed = {value for _, value in model_states(proto)} | {tensor.name for tensor in proto.graph.initializer}
    inputs = {tensor.name: tensor for tensor in proto.graph.input if tensor.name not in fed}
    if (name and name not in inputs) or (not name and len(inputs) != 1):
        what = (
            f"{source.name} has no input {name!r}"
            if name
            else f"{source.name} has {plural.count(len(inputs), 'input')}"
        )
        raise UsageError(what, details=[*inputs], hint="choose one with --target NAME")
    value = inputs[name or next(iter(inputs))]
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    if not all(shape):
        raise UsageError(f"the size of input {value.name!r} of {source.name} is not known", hint="set it with --dim")
    scale, point = _grid(proto.graph, value.name)
    return Target(value.name, dtype, shape, scale, point)


def _grid(graph: onnx.GraphProto, name: str) -> tuple[float, int]:
    """Return the scale and zero point with which an input, or a copy of it, is dequantized; a scale of 0: it is not."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    waiting = [name]
    for value in waiting:
        for node in graph.node:
            if value not in node.input[: None if node.op_type == "Concat" else 1]:
                continue
            if node.op_type == "DequantizeLinear" and {*node.input[1:]} <= constants.keys():
                parts = [numpy_helper.to_array(constants[name]).reshape(-1) for name in node.input[1:]]
                if parts[0].size == 1:
                    return float(parts[0][0]), int(parts[1][0]) if len(parts) > 1 else 0
            if node.op_type in MOVING:
                waiting += [output for output in node.output if output not in waiting]
    return 0.0, 0


def _numbered(name: str, end: str = "") -> Iterator[str]:
    return (f"{name}{f'_{number}' if number > 1 else ''}{end}" for number in itertools.count(1))


def _names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of a graph's values and nodes."""
    named = {item.name for part in (graph.input, graph.initializer, graph.node) for item in part}
    return named | {name for node in graph.node for name in node.output}


def _different(functions: Sequence[onnx.FunctionProto]) -> list[onnx.FunctionProto]:
    """Return functions, each once.

    Raises:
        UsageError: two of them have the same name.
    """
    result: dict[str, onnx.FunctionProto] = {}
    for function in functions:
        if result.setdefault(function.name, function) != function:
            raise UsageError(
                f"two front ends differ in their {function.name}", hint="use one (biquad: a file with all sections)"
            )
    return [*result.values()]


def _put(proto: onnx.ModelProto, front: Front, first: Target, target: Target, value: str) -> None:
    """Put a front end's nodes before those of a model."""
    graph = proto.graph
    inputs = [tensor for tensor in graph.input if tensor.name != target.name]
    end = helper.make_node("Identity", [value], [target.name], name=f"{front.write.prefix}end")
    nodes = [*front.write.nodes, end, *graph.node]
    states = [(output, name, np.asarray(data)) for output, name, data in front.states]
    kinds = {name: (helper.np_dtype_to_tensor_dtype(data.dtype), data.shape) for _, name, data in states}
    del graph.input[:], graph.node[:]
    graph.node.extend(nodes)
    start = helper.make_tensor_value_info(first.name, helper.np_dtype_to_tensor_dtype(first.dtype), first.shape)
    graph.input.extend([start, *inputs])
    graph.input.extend(helper.make_tensor_value_info(name, *kinds[name]) for _, name, _ in states)
    graph.output.extend(helper.make_tensor_value_info(output, *kinds[name]) for output, name, _ in states)
    graph.initializer.extend(front.write.constants)
    graph.initializer.extend(numpy_helper.from_array(data, name) for _, name, data in states)
    if front.functions:
        version = opset_of(proto) or OPSET
        if all(opset.domain != OWN for opset in proto.opset_import):
            proto.opset_import.add(domain=OWN, version=1)
        for function in front.functions:
            function.opset_import[0].version = version
        functions = _different([*proto.functions, *front.functions])
        del proto.functions[:]
        proto.functions.extend(functions)
    _record_states(proto, (*model_states(proto), *((output, name) for output, name, _ in states)))
