"""Patterns: which operations a backend can compute."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtool.compiler.backends.operation import Operation


@dataclass(frozen=True, slots=True)
class Pattern:
    """Operations of one kind that meet constraints.

    kind: the operator's, as ONNX calls it.
    dtypes: the element types that its variable operands and results may have (int8, float32); none: any.
    layout: the layout that it has to have; "": any.
    quantised: whether all variable operands and results stand on a grid with one scale; None: either.
    where: further constraints: each returns why an operation does not meet it, "" if it does.
    """

    kind: str
    dtypes: tuple[str, ...] = ()
    layout: str = ""
    quantised: bool | None = None
    where: tuple[Callable[[Operation], str], ...] = ()

    def refusal(self, operation: Operation) -> str:
        """Return why an operation of this kind does not match; "": it does."""
        tensors = (*operation.variables, *operation.outputs)
        wrong = next((one for one in tensors if self.dtypes and one.dtype.label not in self.dtypes), None)
        if wrong is not None:
            return f"{wrong.tensor} is {wrong.dtype.label}; it takes {' or '.join(self.dtypes)}"
        if self.layout and operation.layout not in ("", self.layout):
            return f"its layout is {operation.layout}; it takes {self.layout}"
        off = next((one for one in tensors if not one.is_per_tensor), None)
        if self.quantised and off is not None:
            return f"{off.tensor} is not quantised with one scale"
        if self.quantised is False and any(one.quant is not None for one in tensors):
            return "it is quantised"
        return next((why for check in self.where if (why := check(operation))), "")


def refusal(patterns: Sequence[Pattern], operation: Operation) -> str:
    """Return why no pattern matches an operation, as the one says that comes nearest; "": one matches."""
    same = [pattern for pattern in patterns if pattern.kind == operation.kind]
    if not same:
        return f"it has no {operation.kind}"
    reasons = [pattern.refusal(operation) for pattern in same]
    return "" if "" in reasons else reasons[-1]
