"""Metrics of a model's outputs for labelled samples, defined as in scikit-learn.

The kind of the labels determines the metrics: a class for each sample, 0 or 1 for each score, or real values.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mtool.base import checked, spelling
from mtool.base.errors import ModelError, UsageError
from mtool.base.plural import count
from mtool.manifest import Tensor
from mtool.stages.samples import Array

log = logging.getLogger(__name__)
Scores = NDArray[np.float64]
"""A row for each sample."""
Labels = NDArray[np.int64]
Kind = Literal["classes", "binary", "values"]
_MANY = 3  # classes
_Z = 1.959964  # the standard normal distribution's 97.5th percentile


@dataclass(frozen=True, slots=True)
class Scoring:
    """How outputs are compared with labels.

    metrics: names of `METRICS`; empty: all that suit the labels.
    top_k: a sample counts for "topk" if its class is among this number of highest scores.
    threshold: the least score that means 1, where labels are 0 or 1.
    output: the output that has the scores or values; empty: the model has only one.
    """

    metrics: tuple[str, ...] = ()
    top_k: checked.Count = 5
    threshold: float = 0.5
    output: str = ""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one has the wrong type or is out of range, or a metric is unknown.
        """
        checked.fields(self, {"metrics": tuple})
        for name in self.metrics:
            if name not in METRICS:
                hint = spelling.did_you_mean(name, [*METRICS], otherwise="leave --metrics out for all that suit")
                raise UsageError(f"--metrics: unknown metric {name!r}", details=[", ".join(METRICS)], hint=hint)


@dataclass(frozen=True, slots=True)
class Output:
    """A model's output: its name, its number of values, and whether they are a row, which may be scores of classes."""

    name: str
    size: int
    is_row: bool = True


def output_of(tensor: Tensor) -> Output:
    """Return the requirement on a model's output."""
    size = math.prod(tensor.shape)
    return Output(tensor.name, size, bool(tensor.shape) and size == tensor.shape[-1])


@dataclass(frozen=True, slots=True)
class Figures:
    """Metrics of labelled samples.

    kind: "classes", "binary" (labels of 0 or 1), or "values".
    samples: the number of samples.
    classes: the number of scores or values of a sample.
    by_name: each metric. "top1", "topk": the share of samples whose class has the highest score, or one of the k
        highest. "accuracy": the share of samples with every score on the right side of the threshold. "f1", "auc",
        "map": the mean over the classes, each against the others (of two classes, "auc" is the second's).
        "confusion": numbers of samples, a row for each label, a column for each prediction. "mae", "rmse": over all
        values. "r2": the mean over a sample's values. None: it is not defined, as a class has no sample, or all.
    interval: the 95% confidence interval of "top1" or "accuracy".
    missing: the classes without a sample.
    top_k: the number of highest scores for "topk".
    """

    kind: Kind
    samples: int
    classes: int
    by_name: Mapping[str, Any]
    interval: tuple[float, float] | None = None
    missing: tuple[int, ...] = ()
    top_k: int = 5

    def as_json(self) -> dict[str, Any]:
        """Return the metrics as plain values."""
        more: dict[str, Any] = {} if self.interval is None else {"interval_95": list(self.interval)}
        more |= {"top_k": self.top_k} if "topk" in self.by_name else {}
        return {"kind": self.kind, "samples": self.samples, "classes": self.classes, **self.by_name, **more}


def figures(scores: Scores, labels: Array, how: Scoring, output: Output) -> Figures:
    """Compute the metrics that suit the labels, or the chosen ones, from a row of scores or values for each sample.

    Raises:
        UsageError: as `check`.
        ModelError: a score or value is not finite.
    """
    kind, labels = check(labels, len(scores), how, output)
    wrong = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if len(wrong):
        raise ModelError(
            f"{output.name} is not finite for {count(len(wrong), 'sample')}",
            details=[f"the first is sample {wrong[0]}: {scores[wrong[0]][:8]}"],
            hint="check that the data are scaled as in training; mtool verify compares the model with its reference",
        )
    is_all = kind == "classes" and output.size <= how.top_k  # every class is among the k highest then
    names = how.metrics or [name for name in _of_kind(kind) if not (is_all and name == "topk")]
    metrics = _all(scores, labels, kind, how)
    by_name = {name: metrics[name] for name in names}
    share = next((by_name[name] for name in ("top1", "accuracy") if name in by_name), None)
    missing = [] if kind != "classes" else [label for label in range(output.size) if not (labels == label).any()]
    interval = None if share is None else wilson(round(share * len(scores)), len(scores))
    return Figures(kind, len(scores), output.size, by_name, interval, tuple(missing), how.top_k)


def classes_of(labels: Array, how: Scoring, output: Output) -> Array:
    """Return the classes of one-hot labels, unless a chosen metric is not for classes; other labels as they are."""
    if labels.dtype.kind not in "biuf" or not output.is_row or not 1 < output.size == labels.size / max(len(labels), 1):
        return labels
    if any("classes" not in METRICS[name].kinds for name in how.metrics):
        return labels
    rows = labels.reshape(-1, output.size)
    is_one = rows == 1
    if not ((is_one | (rows == 0)).all() and (is_one.sum(axis=1) == 1).all()):
        return labels
    log.warning("each sample's labels are one 1 among 0s (one-hot): they are taken as its class, of %d", output.size)
    return np.asarray(is_one.argmax(axis=1))


def check(labels: Array, samples: int, how: Scoring, output: Output) -> tuple[Kind, Array]:
    """Return the labels' kind, and the labels: a vector of classes, else a row for each sample.

    Args:
        labels: integers, one for each sample (its class, from 0; or 0 or 1, for a model with one score) or one for
            each score (0 or 1); or floats, one for each value.
        samples: their number.
        how: the metrics.
        output: the model's output.

    Raises:
        UsageError: the labels don't suit the output, or the metrics don't suit the labels.
    """
    kind, labels = _checked(classes_of(labels, how, output), samples, output)
    unsuited = [name for name in how.metrics if kind not in METRICS[name].kinds]
    if unsuited:
        texts = {"classes": "classes", "binary": "0 or 1 for each score", "values": "real values"}
        expected = " or ".join(texts[kind] for kind in METRICS[unsuited[0]].kinds)
        raise UsageError(
            f"--metrics: {', '.join(unsuited)} can't be computed for these labels",
            details=[f"expected  {expected}", f"found     {labels.dtype}: {texts[kind]}"],
            hint=f"for these labels: {', '.join(_of_kind(kind))}",
        )
    return kind, labels


def doubts_of_labels(labels: Array | None, output: Output) -> tuple[str, ...]:
    """Return a line if labels of classes are only 0 and 1, and the model has more outputs."""
    if labels is None or labels.dtype.kind not in "biu" or labels.size != len(labels):
        return ()
    if output.size < _MANY or (labels > 1).any():
        return ()
    return (
        f"all labels are 0 or 1, as for normal and anomalous, but {output.name} has {output.size} values: "
        "the metrics are those of a classifier",
    )


def _of_kind(kind: Kind) -> list[str]:
    return [name for name, metric in METRICS.items() if kind in metric.kinds]


def _checked(labels: Array, samples: int, output: Output) -> tuple[Kind, Array]:
    name, size = output.name, output.size
    found = f"found     {labels.dtype}[{','.join(map(str, labels.shape))}]"
    each = f", or one for each of the {size} scores of {name}" if size > 1 else ""

    def refused(what: str, hint: str = "") -> UsageError:
        expected = f"expected  an integer for each of {count(samples, 'sample')}{each}; or floats, {size} a sample"
        return UsageError(what, details=[expected, found], hint=hint)

    if len(labels) != samples or labels.dtype.kind not in "biuf" or not labels.size:
        raise refused("the labels have the wrong type or number")
    rows = labels.reshape(samples, -1)
    if rows.dtype.kind == "f":
        if rows.shape[1] != size:
            raise refused(
                f"labels that are floats need {count(size, 'value')} for each sample",
                "if they are classes, write integers: labels.astype(int)" if rows.shape[1] == 1 else "",
            )
        _refuse(rows, ~np.isfinite(rows), "a finite number")
        return "values", rows
    integers = rows.astype(np.int64)
    if integers.shape[1] == size:
        _refuse(rows, (integers != 0) & (integers != 1), f"0 or 1, for each score of {name}", _REAL)
        return "binary", integers
    if integers.shape[1] != 1:
        raise refused(f"the labels have {integers.shape[1]} integers for each sample")
    if not output.is_row:
        raise refused(f"{name} is not a row of scores, one for each class")
    hint = "classes count from 0" if integers.max() == size else ""
    _refuse(rows, (integers < 0) | (integers >= size), f"a class from 0 to {size - 1}: {name} has {size} scores", hint)
    return "classes", integers[:, 0]


_REAL = "for real values to be predicted, write floats: labels.astype('float32')"


def _refuse(rows: Array, is_wrong: NDArray[np.bool_], expected: str, hint: str = "") -> None:
    if is_wrong.any():
        sample, place = (int(axis[0]) for axis in np.nonzero(is_wrong))
        where = f"sample {sample}" + f", label {place}" * (rows.shape[1] > 1)
        wrong = count(int(is_wrong.sum()), "label")
        details = [f"expected  {expected}", f"found     {rows[sample, place]} for {where}"]
        raise UsageError(f"{wrong} of {is_wrong.size:,} can't be used", details=details, hint=hint)


# The formulas.


def wilson(right: int, number: int) -> tuple[float, float]:
    """Return the 95% confidence interval of a share of samples (Wilson, 1927)."""
    share, square = right / number, _Z**2 / number
    middle, half = share + square / 2, _Z * math.sqrt(share * (1 - share) / number + square / number / 4)
    return max((middle - half) / (1 + square), 0.0), min((middle + half) / (1 + square), 1.0)


def top(scores: Scores, labels: Labels, k: int) -> float:
    """Return the share of samples whose class is among the k highest scores; of equal ones the first is higher."""
    label_scores = np.take_along_axis(scores, labels[:, None], 1)
    is_before = np.arange(scores.shape[1]) < labels[:, None]
    ahead = (scores > label_scores).sum(axis=1) + ((scores == label_scores) & is_before).sum(axis=1)
    return float(np.mean(ahead < k))


def confusion(labels: Labels, predicted: Labels, classes: int) -> Labels:
    """Return the number of samples with each label (row) and each prediction (column)."""
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def auc(scores: Scores, labels: Labels) -> float | None:
    """Return the area under the ROC curve: for two classes the second's; for more the mean of each against the others.

    None if a class has no samples or all of them: then the curve is not defined.
    """
    is_class = labels[:, None] == np.arange(scores.shape[1])
    return _mean(_area, scores, is_class) if scores.shape[1] > 2 else _area(scores[:, -1], labels == 1)


def _mean(of: Callable[[Scores, NDArray[np.bool_]], float | None], scores: Scores, is_one: Array) -> float | None:
    values = [of(*columns) for columns in zip(scores.T, is_one.T, strict=True)]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if len(defined) == len(values) else None


def _area(values: Scores, is_one: NDArray[np.bool_]) -> float | None:
    """Return the share of pairs, one of each kind, that are in order; ties count half (Mann and Whitney, 1947)."""
    ones, others = values[is_one], values[~is_one]
    if not len(ones) or not len(others):
        return None
    ordered = np.sort(others)
    below = np.searchsorted(ordered, ones, side="left") + np.searchsorted(ordered, ones, side="right")
    return float(np.mean(below) / 2 / len(others))


def _average_precision(values: Scores, is_one: NDArray[np.bool_]) -> float | None:
    """Return the mean precision over the ones, each at the threshold of its score; equal scores share one."""
    if not is_one.any():
        return None
    thresholds, place = np.unique(-values, return_inverse=True)
    ones, totals = (np.bincount(place, some, len(thresholds)) for some in (is_one, None))
    return float(np.sum(ones * np.cumsum(ones) / np.cumsum(totals)) / is_one.sum())


def _all(scores: Scores, labels: Array, kind: Kind, how: Scoring) -> Mapping[str, Any]:
    """Return all metrics for a kind of labels by name, each as scikit-learn defines it (average="macro")."""
    if kind == "values":
        off, variance = scores - labels, labels.var(axis=0)
        r2 = float(np.mean(1 - np.square(off).mean(axis=0) / variance)) if variance.all() else None
        return {"mae": float(np.abs(off).mean()), "rmse": math.sqrt(np.square(off).mean()), "r2": r2}
    result: dict[str, Any]
    if kind == "classes":
        predicted, classes = scores.argmax(axis=1), scores.shape[1]
        is_one, is_said = (of[:, None] == np.arange(classes) for of in (labels, predicted))
        result = {"top1": top(scores, labels, 1), "topk": top(scores, labels, how.top_k)}
        result |= {"auc": auc(scores, labels), "confusion": confusion(labels, predicted, classes).tolist()}
    else:
        is_one, is_said = labels == 1, scores >= how.threshold
        result = {"accuracy": float((is_one == is_said).all(axis=1).mean()), "auc": _mean(_area, scores, is_one)}
        tables = [confusion(*pair, 2).tolist() for pair in zip(labels.T, is_said.T.astype(np.int64), strict=True)]
        result["confusion"] = tables[0] if len(tables) == 1 else tables
    # F1 is 2 TP / (2 TP + FP + FN); of classes, those without a sample and a prediction are left out.
    right, both = (is_one & is_said).sum(axis=0), is_one.sum(axis=0) + is_said.sum(axis=0)
    f1 = (2 * right / np.maximum(both, 1))[(both > 0) | (kind == "binary")].mean()
    return {**result, "f1": float(f1), "map": _mean(_average_precision, scores, is_one)}


class Metric(NamedTuple):
    """A metric: its title, and the kinds of labels that it is for."""

    title: str
    kinds: tuple[Kind, ...]


METRICS: Mapping[str, Metric] = {
    "top1": Metric("top-1", ("classes",)),
    "topk": Metric("top-{k}", ("classes",)),
    "accuracy": Metric("accuracy", ("binary",)),
    "f1": Metric("F1", ("classes", "binary")),
    "auc": Metric("AUC", ("classes", "binary")),
    "map": Metric("mAP", ("classes", "binary")),
    "confusion": Metric("confusion", ("classes", "binary")),
    "mae": Metric("mean absolute error", ("values",)),
    "rmse": Metric("root of mean square error", ("values",)),
    "r2": Metric("R²", ("values",)),
}


def rows(runs: Sequence[Figures]) -> list[list[str]]:
    """Return a row of text for each metric but "confusion": its title, and its value for each of several models."""

    def written(result: Figures, name: str) -> str:
        value = result.by_name.get(name)
        if value is None:
            return "not defined" if name in result.by_name else ""
        if name not in ("top1", "topk", "accuracy"):
            return f"{value:.4g}"
        limits = result.interval if name != "topk" else None
        return f"{value:.1%}" + (f" ({limits[0]:.1%} to {limits[1]:.1%})" if limits else "")

    names = [name for name in METRICS if name != "confusion" and any(name in figures.by_name for figures in runs)]
    return [[METRICS[name].title.format(k=runs[0].top_k), *(written(row, name) for row in runs)] for name in names]
