"""Write STABLEHLO_COMPOSITE out: its operators take its place, their tensors behind the model's own."""

from dataclasses import replace

from mtool.base.errors import ModelError
from mtool.compiler.frontend.budget import Budget
from mtool.compiler.frontend.tflite.description import Model, Operator

COPY = "COPY"
"""The kind of an operator that is not in the file: its output is its input, as it is stored."""

TABLE = 1000  # what a tensor or an operator costs, in elements that NumPy reads at once

_KIND = "STABLEHLO_COMPOSITE"


def inlined(model: Model, title: str, budget: Budget) -> Model:
    """Return a model without composites; one whose subgraph does not fit it stays.

    Raises:
        ModelError: it exceeds the budget.
    """
    if not any(operator.kind == _KIND for operator in model.operators):
        return model
    tensors, operators = list(model.tensors), []
    waiting = [(operator, 0) for operator in reversed(model.operators)]
    while waiting:
        operator, depth = waiting.pop()
        number = operator.option("DecompositionSubgraphIndex", -1) - 1
        body = model.others[number] if operator.kind == _KIND and 0 <= number < len(model.others) else None
        if body is None or (len(body.inputs), len(body.outputs)) != (len(operator.inputs), len(operator.outputs)):
            operators.append(operator)
            continue
        budget.check("depth", depth, operator.name)
        budget.spend("nodes", len(body.operators), operator.name)
        budget.spend("work", TABLE * len(body.tensors), operator.name)
        if len(set(body.inputs)) < len(body.inputs):
            raise ModelError(f"{title} has a subgraph with one input twice", details=[operator.name])
        names = dict(zip(body.inputs, operator.inputs, strict=True)) | {-1: -1}
        copies = []
        for inner, outer in zip(body.outputs, operator.outputs, strict=True):
            if inner in names or body.tensors[inner].data is not None:
                copies.append((inner, outer))
            else:
                names[inner] = outer
        for inner, tensor in enumerate(body.tensors):
            if inner not in names:
                names[inner] = len(tensors)
                tensors.append(tensor)
        parts = [
            Operator(
                part.kind,
                f"{operator.name}/{part.name}",
                tuple(names[inner] for inner in part.inputs),
                tuple(names[inner] for inner in part.outputs),
                part.options,
                tuple(names[inner] for inner in part.intermediates),
            )
            for part in body.operators
        ]
        budget.spend("work", sum(len(part.name) for part in parts), operator.name)
        parts += [Operator(COPY, operator.name, (names[inner],), (outer,), {}) for inner, outer in copies]
        waiting.extend((part, depth + 1) for part in reversed(parts))
    return replace(model, tensors=tuple(tensors), operators=tuple(operators))
