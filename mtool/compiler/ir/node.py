"""Nodes: one operator each, with attributes in a class per kind."""

from dataclasses import field, fields
from typing import Protocol, Self, dataclass_transform

from mtool.base.frozen import frozen, frozen_with
from mtool.compiler.ir.expr import Expr


class _Bearer(Protocol):
    """Anything with attributes: a node."""

    @property
    def name(self) -> str: ...

    @property
    def attrs(self) -> "Attributes": ...


@dataclass_transform(frozen_default=True, kw_only_default=True)
@frozen
class Attributes:
    """The attributes of an operator. Each kind has its own class; kinds without attributes have this one.

    A class that derives from it is a dataclass, frozen and with keywords only; `dataclasses.replace` changes a field.
    """

    def __init_subclass__(cls) -> None:
        frozen_with(cls, kw_only=True)

    @classmethod
    def of(cls, node: _Bearer) -> Self:
        """Return a node's attributes as an instance of this class.

        Raises:
            AssertionError: the node is of another kind.
        """
        attrs = node.attrs
        assert isinstance(attrs, cls), f"{node.name} has {type(attrs).__name__}; expected {cls.__name__}"
        return attrs

    def __str__(self) -> str:
        values = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return " ".join(f"{name}={value}" for name, value, default in sorted(values) if value != default)


class Computation(Attributes):
    """An operator that computes each element of its output by an expression.

    expr: the value of an element: the body of a loop, or a kernel's epilogue. It loads the node's inputs by number.
    label: the ONNX operators that were fused into it, in lower case, joined by "+"; "": none.
    """

    expr: Expr
    label: str = ""


class WithEpilogue(Computation):
    """A kernel: it writes each element of its output through its epilogue, which reads the accumulator as `acc`.

    acc_bound: the largest magnitude of an accumulator; 0: unknown.
    """

    acc_bound: int = 0

    @property
    def epilogue(self) -> Expr:
        """The expression that is stored for each element."""
        return self.expr


class View(Attributes):
    """The same bytes with another shape, or those from element `first` on.

    Several inputs, which are adjacent in memory (mtool.compiler.plan.partial), are viewed as one.
    """

    first: int = 0


class Transpose(Attributes):
    """Dimensions in another order: dimension n of the output is dimension perm[n] of the input."""

    perm: tuple[int, ...]


@frozen
class Node:
    """One operator. `name` is unique in its graph; `origins` are the ONNX nodes that it came from.

    whole: the name of the operator that it computes some rows of (mtool.compiler.plan.partial); "": it computes all
    rows. parts: the number of nodes that compute that operator.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes = field(default_factory=Attributes)
    origins: tuple[str, ...] = ()
    whole: str = ""
    parts: int = 1

    @property
    def title(self) -> str:
        """The name of the operator that it computes, in whole or in part."""
        return self.whole or self.name

    def __str__(self) -> str:
        text = f"{', '.join(self.outputs)} = {self.op}({', '.join(self.inputs)}) {self.attrs}"
        return f"{text} whole={self.whole}" if self.whole else text.rstrip()


def expression_of(node: Node) -> Expr | None:
    """Return the expression that computes a node's elements; None: it has none."""
    return node.attrs.expr if isinstance(node.attrs, Computation) else None
