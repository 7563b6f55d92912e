"""Operations: what a backend sees of a network, one for each operator of the user's model.

A quantised operator stands in the graph as a dequantisation of each operand, the operator in float, an activation and
a quantisation, with transpositions to and fro if the model's layout has the channels last. Here it is one operation
with typed operands.
"""

from dataclasses import dataclass, field

from mtool.compiler.ir.node import Attributes
from mtool.compiler.ir.types import Array, DType, Quant, TensorType


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that an operation reads or writes.

    value: its name in the graph, which is unique.
    tensor: its name in the user's model.
    type: its element type and shape, as it is stored.
    quant: the grid on which its integers stand; None: it is what it says.
    data: the elements of a constant.
    """

    value: str
    tensor: str
    type: TensorType
    quant: Quant | None = None
    data: Array | None = field(default=None, compare=False, repr=False)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.type.shape

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant."""
        return self.data is not None

    @property
    def is_per_tensor(self) -> bool:
        """Whether it is quantised with one scale and one zero point."""
        return self.quant is not None and len(self.quant.scale) == 1


@dataclass(frozen=True, slots=True)
class Activation:
    """What an operation does to its result before it stores it: between which real numbers it clips it.

    None: there is no limit on that side.
    """

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator of the user's model.

    kind: the operator, as ONNX calls it; "Pool" is every pooling, whose attributes say which.
    name: unique, made of the model's own.
    origins: the nodes of the model that it comes from.
    inputs: its operands; None: an optional one that is not given.
    outputs: its results.
    attrs: its attributes, of the class that the kind has (mtool.compiler.operators).
    activation: what clips its result; None: nothing does.
    layout: "NHWC" or "NCHW" of an operator on images and sequences (the channels last, or behind the batch); "": it
        heeds no layout. Constants are as in ONNX: the weights of a Conv are OIHW.
    macs: its multiply-accumulates.
    """

    kind: str
    name: str
    origins: tuple[str, ...]
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand, ...]
    attrs: Attributes
    activation: Activation | None = None
    layout: str = ""
    macs: int = 0

    @property
    def output(self) -> Operand:
        """The first result."""
        return self.outputs[0]

    @property
    def variables(self) -> tuple[Operand, ...]:
        """The operands that are no constants."""
        return tuple(one for one in self.inputs if one is not None and not one.is_constant)

    def operand(self, number: int) -> Operand:
        """Return an operand that is given.

        Raises:
            IndexError: it is not.
        """
        found = self.inputs[number]
        if found is None:
            raise IndexError(f"{self.kind} {self.name} has no operand {number}")
        return found
