"""Weighted sums, the common part of convolutions and dense layers: inputs times constant weights, plus a bias."""

from dataclasses import dataclass

from mtool.ir.node import WithEpilogue


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSum(WithEpilogue):
    """A kernel whose operands are its input, its weights (output channels first) and a bias for each channel.

    pad_value: what an integer input is where it is 0 in reality: its zero point.
    float_bias: the epilogue adds a float bias of the model's, which may be rounded to whole steps of the accumulator
        where the result is an integer (mtool.passes.fold_bias).
    macs: the multiply-accumulates of the model as given, if channels were removed since; None: those of its shapes.
    """

    pad_value: int = 0
    float_bias: bool = False
    macs: int | None = None

    def macs_of_rows(self, rows: int, of: int) -> int | None:
        """Return the part of `macs` that some of all rows have."""
        return None if self.macs is None else self.macs * rows // of
