"""The operators of a trial by their names: all that a board's side needs to measure one task."""

from dataclasses import dataclass

from mtool.compiler.ir import TensorType

IDLE = "idle"
"""The operator that does nothing: its time is what calling an operator takes."""


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators of one task in a trial, and its inputs by their numbers in the model.

    Attributes:
        inputs: the numbers of its inputs.
        input_types: their types.
        reference: the operator that computes the right output.
        candidates: one operator each.
        spoil: what spoils the output before a candidate runs.
        compare: what counts the elements that differ.
        differences: the values with those counts, one for each output.
        elements: of all outputs together.
    """

    inputs: tuple[int, ...]
    input_types: tuple[TensorType, ...]
    reference: str
    candidates: tuple[str, ...]
    spoil: tuple[str, ...]
    compare: tuple[str, ...]
    differences: tuple[str, ...]
    elements: int
