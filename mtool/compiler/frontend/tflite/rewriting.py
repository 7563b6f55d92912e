"""Rewrites of a model before its translation: composites become their parts, updates of a row one operator."""

from collections import Counter
from dataclasses import replace

import numpy as np

from mtool.base.errors import ModelError
from mtool.compiler.frontend.tflite.schema import TABLE, Model, Operator
from mtool.compiler.operators.budget import Budget

COPY = "COPY"
"""The kind of an inserted operator: its output is its input, as stored."""
_KIND = "STABLEHLO_COMPOSITE"
_TENSORS = ("inputs", "outputs", "intermediates")


def inlined(model: Model, title: str, budget: Budget) -> Model:
    """Return a model without composites; one whose subgraph does not match it stays.

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
            raise ModelError(f"{title} has a subgraph with the same input twice", details=[operator.name])
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
            replace(
                part,
                name=f"{operator.name}/{part.name}",
                **{key: tuple(names[inner] for inner in getattr(part, key)) for key in _TENSORS},
            )
            for part in body.operators
        ]
        budget.spend("work", sum(len(part.name) for part in parts), operator.name)
        parts += [Operator(COPY, operator.name, (names[inner],), (outer,), {}) for inner, outer in copies]
        waiting.extend((part, depth + 1) for part in reversed(parts))
    return replace(model, tensors=tuple(tensors), operators=tuple(operators))


ROW = "ROW"
"""The kind of an inserted operator: its output is its first input with one row, given by its number, replaced."""


def with_rows(model: Model) -> Model:
    """Return a model in which one operator replaces a row."""
    return _Search(model).model() if any(operator.kind == "SLICE" for operator in model.operators) else model


class _Search:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._makers = {output: operator for operator in model.operators for output in operator.outputs}
        self._reads = Counter([number for op in model.operators for number in op.inputs] + [*model.outputs])

    def model(self) -> Model:
        operators, gone = [], set[int]()
        for operator in self._model.operators:
            inputs = self._inputs_of_row(operator)
            if inputs is not None:
                gone |= {operator.inputs[index] for index in (0, 2) if self._reads[operator.inputs[index]] == 1}
                operator = Operator(ROW, operator.name, inputs, operator.outputs, {})
            operators.append(operator)
        return replace(self._model, operators=tuple(op for op in operators if not gone.intersection(op.outputs)))

    def _inputs_of_row(self, operator: Operator) -> tuple[int, int, int] | None:
        """Return the tensor, the number and the row; None if the operator is not such an update."""
        if operator.kind != "CONCATENATION" or len(operator.inputs) != 3 or operator.option("Axis"):
            return None
        if operator.option("FusedActivationFunction"):
            return None
        before, after = (self._output_of("SLICE", operator.inputs[index], 3) for index in (0, 2))
        if before is None or after is None or before[0] != after[0]:
            return None
        last, next_row = self._first_of(before[2], -1), self._first_of(after[1], 0)
        if last is None or next_row is None or not (self._is_all(before[1], 0) and self._is_all(after[2], -1)):
            return None
        sum_of = self._output_of("ADD", next_row, 2) or (-1, -1)
        pairs = (sum_of, sum_of[::-1])
        if not any(number == last and self._is_all(addend, 1) for number, addend in pairs):
            return None
        return before[0], last, operator.inputs[1]

    def _first_of(self, number: int, rest: int) -> int | None:
        """Return the scalar that is a tensor's first number, if all others are `rest`."""
        parts = self._output_of("CONCATENATION", number, 2)
        scalar = self._output_of("RESHAPE", parts[0], 2) if parts is not None and self._is_all(parts[1], rest) else None
        return None if scalar is None else scalar[0]

    def _output_of(self, kind: str, number: int, count: int) -> tuple[int, ...] | None:
        maker = self._makers.get(number)
        is_it = maker is not None and maker.kind == kind and len(maker.inputs) == count
        return maker.inputs if maker is not None and is_it else None

    def _is_all(self, number: int, value: int) -> bool:
        data = self._model.tensors[number].data if number >= 0 else None
        return data is not None and bool(np.all(data == value))
