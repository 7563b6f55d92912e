"""Which input of an LSTM is what: kernels/lstm_shared.h, bidirectional_sequence_lstm.cc."""

from dataclasses import dataclass

from mtool.compiler.frontend.tflite.translation import Translation

_NAMES = ("input", "forget", "cell", "output")


@dataclass(frozen=True, slots=True)
class Gates:
    """The inputs of an operator that are a tensor of each gate.

    Where the input gate has no weights, it is 1 less the forget gate.
    """

    input: int
    forget: int
    cell: int
    output: int

    @classmethod
    def at(cls, first: int) -> "Gates":
        """Four inputs in a row."""
        return cls(first, first + 1, first + 2, first + 3)

    def names(self, t: Translation) -> list[str]:
        """Return the gates that have such a tensor."""
        return [name for name in _NAMES if t.has(getattr(self, name))]

    def present(self, t: Translation) -> list[int]:
        """Return their inputs of the operator."""
        return [getattr(self, name) for name in self.names(t)]


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of an operator that are the tensors of an LSTM.

    A projection's bias is behind its weights. A cell has no peephole: -1.
    """

    weights: Gates
    recurrent: Gates
    peepholes: Gates
    biases: Gates
    projection: int
    state: int
    cell: int
    norms: Gates | None = None

    def gates(self, t: Translation, sums: str) -> dict[str, str]:
        """Append the split of the sums of all gates; return those of each gate, by its name."""
        names = self.weights.names(t)
        parts = t.several("Split", [sums], len(names), axis=1, num_outputs=len(names))
        return dict(zip(names, parts, strict=True))

    def is_coupled(self, t: Translation) -> bool:
        """Whether the input gate is 1 less the forget gate."""
        return not t.has(self.weights.input)

    def is_normalised(self, t: Translation) -> bool:
        """Whether the sums of its gates are normalised."""
        return self.norms is not None and t.has(self.norms.output)


ONE = Operands(Gates.at(1), Gates.at(5), Gates(9, 10, -1, 11), Gates.at(12), 16, 18, 19, Gates.at(20))
FORWARD = Operands(Gates.at(1), Gates.at(5), Gates(9, 10, -1, 11), Gates.at(12), 16, 35, 36)
BACKWARD = Operands(Gates.at(18), Gates.at(22), Gates(26, 27, -1, 28), Gates.at(29), 33, 37, 38)
