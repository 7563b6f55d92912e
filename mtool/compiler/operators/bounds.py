"""Values whose size depends on data, up to a stated maximum.

In C, such a value has the shape of its maximum, of which only the first elements along one dimension are valid. The
operator that computes it returns their count as another output. Elementwise operators, and those that work along other
dimensions, pass this on to their outputs. Operators that combine elements along that dimension would read invalid
elements, and are refused.
"""

from collections.abc import Callable, Mapping, Sequence

from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, TensorType


@frozen
class Bound:
    """Along `axis`, only the first `count` elements are valid; `count` is a value, int32[]."""

    axis: int
    count: str


@frozen
class Bounded:
    """A canonical node that reads such values.

    axes: the dimension whose size depends on data, by the number of the operand.
    name: the node's name.
    """

    axes: Mapping[int, int]
    types: Sequence[TensorType]
    result: TensorType
    attrs: Attributes
    name: str

    @property
    def operand(self) -> int:
        """The first operand with such a dimension."""
        return min(self.axes)

    @property
    def axis(self) -> int:
        """Its dimension."""
        return self.axes[self.operand]

    @property
    def single(self) -> bool:
        """Whether no other operand has such a dimension."""
        return len(self.axes) == 1


Carry = Callable[[Bounded], int | None]
"""Returns the position of that dimension in the output; None: it is unknown, or the operator works along it."""


def carry_elements(bounded: Bounded) -> int | None:
    """Carry a bound through elementwise operators with broadcasting."""
    rank = len(bounded.result.shape)
    axes = {axis + rank - len(bounded.types[index].shape) for index, axis in bounded.axes.items()}
    axis = axes.pop()
    if any(bounded.result.shape[axis] != bounded.types[index].shape[dim] for index, dim in bounded.axes.items()):
        return None
    for index, kind in enumerate(bounded.types):
        dim = axis - (rank - len(kind.shape))
        if index not in bounded.axes and dim >= 0 and kind.shape[dim] != 1:
            return None
    return axis if not axes else None
