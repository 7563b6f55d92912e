"""The loss by quantisation: distance of outputs and layers from the float model's, and classes that stay right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool.stages.samples import Array, Sample
from mtool.verification.oracles import ort, process
from mtool.verification.oracles.layer_loss import flat, sqnr_db

LAYER_SAMPLES = 16  # samples that layers are compared over: every activation of each is held in memory


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """The distance of an output from the float model's, over all samples.

    `max_abs` and `mean_abs` are in the output's own unit. `sqnr_db` is the power of the signal over that of the
    difference; None: no difference, or no signal. `cosine` is that of the angle between the two; None: one is zero.
    """

    name: str
    max_abs: float
    mean_abs: float
    sqnr_db: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Classes:
    """The number of `samples` with the right class, and with the same before and after; None: no labels."""

    samples: int
    right_before: int | None
    right_after: int | None
    same: int


@dataclass(frozen=True, slots=True)
class LayerLoss:
    """The distance of a layer from the float model's: its output with the loss of all before it, and its weights.

    `node` is what `exclude` takes. Signal over difference in decibels; None: no difference, or no weights.
    """

    node: str
    op: str
    sqnr_db: float | None
    weights_sqnr_db: float | None


def of_outputs(before: Sequence[Sample], after: Sequence[Sample]) -> tuple[OutputLoss, ...]:
    """Compare each output of the float model with the quantised one's, a dictionary a sample."""
    return tuple(
        _output(name, flat([sample[name] for sample in before]), flat([sample[name] for sample in after]))
        for name in before[0]
    )


def of_classes(before: Sequence[Sample], after: Sequence[Sample], labels: Array | None) -> Classes | None:
    """Compare classes: the largest element of a model's only output; None if that is not one row of scores."""
    scores = list(before[0].values())
    if len(scores) != 1 or scores[0].size < 2 or scores[0].size != scores[0].shape[-1]:
        return None
    first, second = (np.array([int(np.argmax(*sample.values())) for sample in run]) for run in (before, after))
    return Classes(
        samples=len(before),
        right_before=None if labels is None else int(np.count_nonzero(first == labels)),
        right_after=None if labels is None else int(np.count_nonzero(second == labels)),
        same=int(np.count_nonzero(first == second)),
    )


def of_layers(before: Path, after: Path, samples: Sequence[Sample], source: Path) -> tuple[LayerLoss, ...]:
    """Compare activations and weights layer by layer; the worst come first.

    Args:
        before: the float model that was quantised, in a folder where others may be written.
        after: the QDQ model that came of it.
        samples: inputs; the first `LAYER_SAMPLES` are used.
        source: the user's file, for messages.
    """
    found = process.call(
        ort.NAME,
        source,
        "layer_loss.of_layers",
        before=str(before),
        after=str(after),
        samples=samples[:LAYER_SAMPLES],
        title=source.name,
    )
    losses = [LayerLoss(*layer) for layer in found]
    return tuple(sorted(losses, key=lambda loss: math.inf if loss.sqnr_db is None else loss.sqnr_db))


def _output(name: str, before: Array, after: Array) -> OutputLoss:
    distance = np.abs(after - before)
    norms = float(np.linalg.norm(before) * np.linalg.norm(after))
    return OutputLoss(
        name,
        float(distance.max(initial=0.0)),
        float(distance.mean()) if distance.size else 0.0,
        sqnr_db(before, after),
        float(before @ after) / norms if norms else None,
    )
