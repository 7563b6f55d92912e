"""What float32 costs on a core without an FPU, where each product and each sum is a call of the compiler's library."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from mtool.boards import Board
from mtool.compiler.kernels.target import THUMB1
from mtool.manifest import Manifest, Operator
from mtool.stages.formatting import amount

# Instructions a multiply-accumulate of MLPerf Tiny's models, by the core: of float32, and of the same models in int8
# (docs/benchmarks.md; float32 of Armv6-M on sim_m0).
_MEASURED: tuple[tuple[str | tuple[str, ...], float, float], ...] = (
    (THUMB1, 165, 6.3),
    ("cortex-m", 74, 2.1),
    ("rv32", 162, 3.1),
)


@dataclass(frozen=True, slots=True)
class SoftwareFloat:
    """Products of float32 that a core without an FPU computes.

    Attributes:
        cpu: the core.
        macs: the multiply-accumulates.
        float_per_mac: instructions of each.
        int8_per_mac: the same if the model were quantised.
    """

    cpu: str
    macs: int
    float_per_mac: float
    int8_per_mac: float

    def line(self) -> str:
        """Return it in words."""
        return (
            f"float32 is computed in software, as {self.cpu} has no FPU: about {self.float_per_mac:.0f} instructions "
            f"per MAC, {amount(round(self.macs * self.float_per_mac))} an inference; in int8, by mtool quantize, about "
            f"{self.int8_per_mac:g} and {amount(round(self.macs * self.int8_per_mac))}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def software_float(manifest: Manifest, board: Board) -> SoftwareFloat | None:
    """Return what a model's products of float32 cost; None: it has none, or the core an FPU or no figures."""
    macs = sum(operator.macs for operator in float_operators(manifest.operators))
    if not macs or "fpu" in board.features:
        return None
    known = (figures for cores, *figures in _MEASURED if board.cpu.startswith(cores))
    return next((SoftwareFloat(board.cpu, macs, *figures) for figures in known), None)


def float_operators(operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators that multiply floating-point numbers."""
    return [one for one in operators if one.macs and any(read.dtype.startswith("float") for read in one.reads)]
