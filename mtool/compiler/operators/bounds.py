"""Values whose size depends on data, up to a stated maximum.

Such a value has its maximum as its shape in C, and along one dimension only the first so many elements are there: its
count, which the operator that makes it gives as another output. What works element by element, or along other
dimensions, carries that on to what it makes. What mixes elements of that dimension would mix in what is not there,
and is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, TensorType


@dataclass(frozen=True, slots=True)
class Bound:
    """Along `axis` only the first `count` elements are there; `count` is a value, int32[]."""

    axis: int
    count: str


@dataclass(frozen=True, slots=True)
class Bounded:
    """A canonical node that reads such values.

    axes: the dimension whose size depends on data, by the number of the operand.
    name: of the node.
    """

    axes: Mapping[int, int]
    types: Sequence[TensorType]
    result: TensorType
    attrs: Attributes
    name: str

    @property
    def operand(self) -> int:
        """The first operand that has such a dimension."""
        return min(self.axes)

    @property
    def axis(self) -> int:
        """Its dimension."""
        return self.axes[self.operand]

    @property
    def single(self) -> bool:
        """Whether no other operand has one."""
        return len(self.axes) == 1


Carry = Callable[[Bounded], int | None]
"""Returns where that dimension is in the output; None: it can't be told, or the operator works along it."""


def carry_elements(bounded: Bounded) -> int | None:
    """Of operators that compute each element by itself, and broadcast."""
    rank = len(bounded.result.shape)
    axes = {axis + rank - len(bounded.types[index].shape) for index, axis in bounded.axes.items()}
    axis = axes.pop()
    if any(bounded.result.shape[axis] != bounded.types[index].shape[own] for index, own in bounded.axes.items()):
        return None
    for index, kind in enumerate(bounded.types):
        own = axis - (rank - len(kind.shape))
        if index not in bounded.axes and own >= 0 and kind.shape[own] != 1:
            return None
    return axis if not axes else None
