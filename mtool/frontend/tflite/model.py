"""From a .tflite file to a Graph, by way of an ONNX model in memory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import helper

from mtool.errors import ModelError, MtoolError
from mtool.frontend.budget import Budget
from mtool.frontend.onnx_file import graph_of
from mtool.frontend.options import DEFAULTS, ModelOptions
from mtool.frontend.problems import REFUSED, Unsupported, disagreement
from mtool.frontend.tflite import elementwise, exact, images, kernels, movement
from mtool.frontend.tflite.schema import Model, read
from mtool.frontend.tflite.translation import Translation
from mtool.ir import Graph, Quant
from mtool.option_values import Rounding

TRANSLATIONS: dict[str, Callable[[Translation], None]] = {
    **kernels.TRANSLATIONS,
    **images.TRANSLATIONS,
    **elementwise.TRANSLATIONS,
    **movement.TRANSLATIONS,
}
"""TFLite's operators, by name."""


def load(path: Path, options: ModelOptions = DEFAULTS) -> Graph:
    """Read a TFLite model and return its graph; values and nodes keep the names of the file's tensors.

    Args:
        path: the model file.
        options: of the model; its dynamic dimensions are as they stand in the file.

    Raises:
        UsageError: the file is missing, or what is given names nothing of the model.
        ModelError: the file is not a model, is damaged, or holds operators that can't be compiled (all of
            them are listed).
    """
    budget = Budget(options.limits)
    model = read(path, budget)
    graph = graph_of(to_onnx(model, path.name, options.rounding, budget), path.name, path.stem, options, budget)
    _check_shapes(model, graph, path.name)
    return replace(graph, quant=_grids(model, graph))


def to_onnx(model: Model, title: str, rounding: Rounding = "onnx", budget: Budget | None = None) -> onnx.ModelProto:
    """Return a TFLite model as ONNX; what has no translation is a node of the domain `problems.REFUSED`.

    Raises:
        ModelError: the order of the operators is not one of execution, or it exceeds the budget.
    """
    translation = Translation(model, budget or Budget())
    known = {n for n, tensor in enumerate(model.tensors) if tensor.data is not None} | {*model.inputs, -1}
    for operator in model.operators:
        for number in operator.inputs:
            if number not in known:
                raise ModelError(
                    f"{title} is not in an order of execution",
                    details=[f"{operator.name} reads {model.tensors[number].name!r}, which nothing before it makes"],
                )
        again = known.intersection(operator.outputs)
        if again:
            raise ModelError(f"{title} makes {model.tensors[again.pop()].name!r} twice", details=[operator.name])
        known.update(operator.outputs)
        translation.op = operator
        start = len(translation.nodes)
        try:
            if operator.kind not in TRANSLATIONS:
                raise Unsupported("not supported")
            if rounding == "tflite" and _is_quantised(translation):
                exact.TRANSLATIONS.get(operator.kind, _without_rounding)(translation)
            else:
                TRANSLATIONS[operator.kind](translation)
        except MtoolError:
            raise
        except Exception as problem:  # Unsupported, or what a malformed operator leads to
            reason = str(problem) if isinstance(problem, Unsupported) else disagreement(problem)
            del translation.nodes[start:]
            outputs = [translation.names[number] for number in operator.outputs]
            translation.nodes.append(
                helper.make_node(operator.kind, [], outputs, operator.name, domain=REFUSED, reason=reason)
            )
    missing = [model.tensors[number].name for number in model.outputs if number not in known]
    if missing:
        raise ModelError(f"{title} never makes its output {missing[0]!r}")
    return translation.proto(title)


def _is_quantised(t: Translation) -> bool:
    """Whether the first output of the operator at work stands on a grid."""
    return t.result().is_quantised


def _without_rounding(t: Translation) -> None:
    """Translate an operator that moves integers.

    Raises:
        Unsupported: it computes new ones.
    """
    start = len(t.nodes)
    TRANSLATIONS[t.op.kind](t)
    if any(node.op_type == "QuantizeLinear" for node in t.nodes[start:]):
        raise Unsupported("it has no form with --rounding tflite")


def _grids(model: Model, graph: Graph) -> dict[str, Quant]:
    """Return the quantisation that the file gives to the graph's values."""
    return {
        tensor.name: Quant(
            tuple(float(scale) for scale in tensor.scale),
            tuple(int(point) for point in tensor.zero_point),
            tensor.axis if tensor.scale.size > 1 else None,
        )
        for tensor in model.tensors
        if tensor.is_quantised and tensor.name in graph.types
    }


def _check_shapes(model: Model, graph: Graph, title: str) -> None:
    """Check the shapes that the file gives its tensors against the inferred ones.

    Raises:
        ModelError: a shape or a type differs.
    """
    declared = {tensor.name: tensor for tensor in model.tensors}
    for name, kind in graph.types.items():
        tensor = declared.get(name)
        if tensor is None or tensor.problem:
            continue
        if kind.shape != tensor.shape or kind.dtype.numpy != tensor.dtype:
            raise ModelError(
                f"{title} contradicts itself",
                details=[
                    f"tensor {name!r}: the file says {tensor.dtype}{list(tensor.shape)}",
                    f"its operator makes {kind}",
                ],
            )
