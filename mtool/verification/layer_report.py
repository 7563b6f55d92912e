"""The comparison of all operators' results with the model's own: its summary, its JSON, its error."""

from dataclasses import asdict, dataclass
from typing import Any

from mtool.base.errors import MismatchError
from mtool.base.escaping import short_name
from mtool.device.session.verify import Difference
from mtool.manifest import Operator
from mtool.stages.formatting import count
from mtool.stages.formatting import samples as samples_of
from mtool.verification.translation import Mistranslation


@dataclass(frozen=True, slots=True)
class Layer:
    """The comparison of an operator's result over all samples.

    `difference` is None where the model has no such tensor. `ties` counts elements that are rounded the other way
    because the reference's float sum is not exact (mtool.verification.rounding_ties); they don't count as differing.
    `inside` is the comparison of what a control node computed, where its result differs
    (mtool.verification.control_flow_check): one for each sample.
    """

    operator: Operator
    tensor: str
    difference: Difference | None
    ties: int
    inside: tuple["Layers", ...] = ()

    def describe(self) -> str:
        """Return the operator as a person would name it."""
        origins = f' "{short_name(self.operator.origins[-1])}"' if self.operator.origins else ""
        by = f"{'backend' if self.operator.backend else 'schedule'} {self.operator.by}"
        return f"operator {self.operator.index}, {self.operator.label}{origins} ({by})"


@dataclass(frozen=True, slots=True)
class Layers:
    """The comparison of all operators over `samples` samples; `sequence`: the state went on from each to the next.

    `has_rounding`: the model rounds to integers, so that what differs within its tolerance may be steps apart later.
    `complete`: all that the model's outputs are made of is compared. `mistranslated`: operators of a TFLite model that
    are compared with another network than LiteRT computes.
    """

    samples: int
    reference: str
    layers: tuple[Layer, ...]
    sequence: bool = False
    has_rounding: bool = False
    complete: bool = True
    mistranslated: tuple[Mistranslation, ...] = ()

    @property
    def ties(self) -> int:
        """Return how many elements are rounded the other way, of all operators."""
        return sum(layer.ties for layer in self.layers)

    @property
    def explain(self) -> bool:
        """Tell whether nothing but rounding makes outputs differ: each operator does right by what it is given."""
        compared = [layer.difference for layer in self.layers if layer.difference]
        inexact = any(one.differing for one in compared)
        right = self.complete and not self.diverging and not self.mistranslated
        return right and self.has_rounding and (self.ties > 0 or inexact)

    @property
    def diverging(self) -> tuple[Layer, ...]:
        """Return the layers that differ by more than is allowed, in the order of execution."""
        return tuple(layer for layer in self.layers if layer.difference and not layer.difference.within)

    def summary(self) -> str:
        """Return in a line how many operators are equal, within the tolerance, or have nothing to be compared with."""
        each: dict[int, list[Difference | None]] = {}  # the results of an operator
        for layer in self.layers:
            each.setdefault(layer.operator.index, []).append(layer.difference)
        compared = [[one for one in results if one is not None] for results in each.values()]
        equal = sum(1 for results in compared if results and not any(one.differing for one in results))
        within = sum(1 for results in compared if any(one.differing for one in results))
        lacking = sum(1 for results in each.values() if None in results)
        parts = [f"{count(equal, 'operator')} equal, bit for bit"]
        if within:
            parts.append(f"{within} within what is allowed")
        if lacking:
            parts.append(f"{lacking} with a result that the model does not have")
        if self.ties:
            parts.append(f"but for {count(self.ties, 'tie')}, halfway between two steps")
        return f"{', '.join(parts)}, over {samples_of(self.samples, sequence=self.sequence)}"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        rows = [
            {
                "index": layer.operator.index,
                "name": layer.operator.name,
                "tensor": layer.tensor,
                "schedule": layer.operator.by,
                "ties": layer.ties,
                "inside": [one.as_json() for one in layer.inside],
                "difference": None if layer.difference is None else asdict(layer.difference),
            }
            for layer in self.layers
        ]
        return {
            "ok": not self.diverging and not self.mistranslated,
            "samples": self.samples,
            "sequence": self.sequence,
            "reference": self.reference,
            "ties": self.ties,
            "mistranslated": [asdict(one) for one in self.mistranslated],
            "layers": rows,
        }

    def check(self) -> None:
        """Raise unless every operator is within its tolerance.

        Raises:
            MismatchError: naming the first operator that diverges, with its histogram, or that is mistranslated.
        """
        if self.mistranslated:
            raise MismatchError(
                f"{self.mistranslated[0].operator} does not compute what it does in LiteRT",
                details=[one.words for one in self.mistranslated],
                hint="report it, with the model; --rounding tflite may have its own form of the operator",
            )
        if not self.diverging:
            return
        first = self.diverging[0]
        assert first.difference is not None
        found = first.difference
        details = [
            f"{found.differing:,} of {found.elements:,} elements of {first.tensor} differ, allowed: {found.allowed}",
            "  " + ", ".join(f"{number:,} {label}" for label, number in found.histogram),
            f"  {found.worst}",
        ]
        inner = next((one for one in first.inside if one.diverging), None)
        if inner is not None:
            worst = inner.diverging[0]
            assert worst.difference is not None
            details.append(f"inside it, {worst.describe()} is the first that diverges:")
            details.append(f"  {worst.difference.worst}")
        others = len(self.diverging) - 1
        if others:
            details.append(f"so do {count(others, 'other operator')}, each given what the model has before it")
        raise MismatchError(f"{first.describe()} is the first that diverges from {self.reference}", details=details)
