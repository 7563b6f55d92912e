"""The figures of MLPerf Tiny: throughput, top-1 accuracy, the area under the receiver's curve."""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]


def accuracy(scores: Scores, labels: Labels) -> float:
    """Return the percentage of samples whose largest score is their class's.

    Of one score a sample (ad01) it is the best mean of precision and recall over 100 thresholds, as in the runner.
    """
    if scores.shape[1] > 1:
        return float(100 * np.mean(scores.argmax(axis=1) == labels))
    values, best = scores[:, 0], 0.0
    for share in np.arange(0.0, 1.0, 0.01):
        found = values > values.min() + share * (values.max() - values.min())
        right = np.sum(found & (labels == 1))
        precision = right / (np.sum(found) + 1e-8)
        recall = right / (np.sum(labels == 1) + 1e-8)
        best = max(best, float(50 * (precision + recall)))
    return best


def auc(scores: Scores, labels: Labels) -> float | None:
    """Return the area under the curve: of two classes that of the second; of more the mean of each against the others.

    None where a class has no sample, or all: then there is no such curve.
    """
    if scores.shape[1] <= 2:
        return _area(scores[:, -1], labels == 1)
    areas = [_area(scores[:, index], labels == index) for index in range(scores.shape[1])]
    known = [area for area in areas if area is not None]
    return float(np.mean(known)) if len(known) == len(areas) else None


def _area(values: NDArray[np.float64], is_one: NDArray[np.bool_]) -> float | None:
    """Return the share of pairs, one of each kind, that are in order; ties count half (Mann and Whitney, 1947)."""
    ones, others = values[is_one], values[~is_one]
    if not len(ones) or not len(others):
        return None
    ordered = np.sort(others)
    below = np.searchsorted(ordered, ones, side="left") + np.searchsorted(ordered, ones, side="right")
    return float(np.mean(below) / 2 / len(others))
