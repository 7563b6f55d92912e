"""The metrics: recorded values of scikit-learn, ties, intervals, and labels that don't suit."""

from typing import Any

import numpy as np
import pytest

from mtool.base.errors import ModelError, UsageError
from mtool.quantization.metrics import Figures, Output, Scoring, check, classes_of, figures, rows, top, wilson

LABELS = [0, 2, 1, 1, 0, 2]
SCORES = np.array(
    [[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.7, 0.1], [0.4, 0.35, 0.25], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]
)


def of(scores: Any, labels: Any, **how: Any) -> Figures:
    rows = np.asarray(scores, np.float64)
    return figures(rows, np.asarray(labels), Scoring(**how), Output("y", rows.shape[1]))


def test_classes_are_judged_as_scikit_learn_does() -> None:
    """f1_score(average="macro"), roc_auc_score(multi_class="ovr"), average_precision_score, confusion_matrix."""
    found = of(SCORES, LABELS, top_k=2)
    assert found.by_name == {
        "top1": pytest.approx(4 / 6), "topk": 1.0, "f1": pytest.approx(0.655556, abs=1e-6),
        "auc": pytest.approx(0.958333, abs=1e-6), "map": pytest.approx(0.944444, abs=1e-6),
        "confusion": [[2, 0, 0], [1, 1, 0], [0, 1, 1]],
    }  # fmt: skip
    assert found.kind == "classes" and found.missing == () and found.interval == wilson(4, 6)
    assert [*of(SCORES, LABELS).by_name] == ["top1", "f1", "auc", "map", "confusion"], "top-5 of 3 classes says nothing"


def test_labels_of_0_and_1_have_a_threshold() -> None:
    one = of([[0.9], [0.4], [0.6], [0.1]], [1, 1, 0, 0])
    assert one.by_name == {"accuracy": 0.5, "f1": 0.5, "auc": 0.75, "map": pytest.approx(5 / 6),
                           "confusion": [[1, 1], [1, 1]]}  # fmt: skip
    assert of([[0.9], [0.4], [0.6], [0.1]], [1, 1, 0, 0], threshold=0.3).by_name["f1"] == 0.8
    several = of([[0.9, 0.2], [0.4, 0.8]], [[True, False], [True, True]])
    assert several.by_name["accuracy"] == 0.5 and several.by_name["auc"] is None, "the first label is always 1"
    assert np.shape(several.by_name["confusion"]) == (2, 2, 2)


@pytest.mark.parametrize("kind", [bool, np.int64, np.float32])
def test_one_hot_labels_are_classes(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    labels, output = np.eye(3)[LABELS].astype(kind), Output("y", 3)
    assert classes_of(labels, Scoring(), output).tolist() == LABELS and "one-hot" in caplog.text
    assert classes_of(labels, Scoring(metrics=("accuracy",)), output) is labels, "a metric for 0 or 1 for each score"
    for other in (labels[:, :2], labels * 0, np.ones((6, 3), kind), np.array(LABELS), labels[:0]):
        assert classes_of(other, Scoring(), output) is other
    assert classes_of(np.ones((6, 1), kind), Scoring(), Output("y", 1)).ndim == 2


def test_real_values_have_errors() -> None:
    found = of([[1, 10], [2, 14], [6, 12]], np.float32([[1, 11], [3, 13], [5, 12]]))
    assert found.by_name == {"mae": pytest.approx(4 / 6), "rmse": pytest.approx((4 / 6) ** 0.5),
                             "r2": pytest.approx((1 - 2 / 8 + 1 - 2 / 2) / 2)}  # fmt: skip
    assert found.interval is None and of([[1], [2]], np.float32([3, 3])).by_name["r2"] is None


def test_of_equal_scores_the_first_is_higher() -> None:
    scores = np.array([[1.0, 1.0, 1.0]] * 3)
    assert [top(scores, np.array([0, 1, 2]), k) for k in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1])


@pytest.mark.parametrize(
    ("right", "number", "least", "most"), [(902, 1000, 0.8820, 0.9189), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1)]
)
def test_intervals(right: int, number: int, least: float, most: float) -> None:
    """As statsmodels' proportion_confint(method="wilson")."""
    assert wilson(right, number) == pytest.approx((least, most), abs=1e-4)


def test_a_class_without_samples_has_no_curve() -> None:
    found = of(SCORES[:, :3], [0, 1, 1, 1, 0, 1])
    assert found.by_name["auc"] is None and found.by_name["map"] is None and found.missing == (2,)
    (*_, last) = rows([found, of(SCORES[:, :1], [0, 1, 1, 1, 0, 1])])
    assert last[0] == "mAP" and last[1] == "not defined" and float(last[2]) > 0
    assert rows([found, of(SCORES[:, :1], [0, 1, 1, 1, 0, 1])])[0][2] == "", "a metric of one model alone"


@pytest.mark.parametrize(
    ("labels", "size", "expected"),
    [
        ([0, 1, 10], 10, ["1 label of 3 can't be used", "a class from 0 to 9", "10 for sample 2", "count from 0"]),
        ([-1, 1, -1], 10, ["2 labels of 3", "found     -1 for sample 0"]),
        ([0, 1, 3], 1, ["0 or 1", "found     3 for sample 2", "labels.astype('float32')"]),
        ([[0, 1], [1, 2], [0, 0]], 2, ["2 for sample 1, label 1"]),
        ([[0, 1], [1, 0], [0, 0]], 3, ["2 integers for each sample", "int64[3,2]"]),
        ([0.0, 1.0, 2.0], 10, ["10 values for each sample", "labels.astype(int)"]),
        ([[0.5], [np.nan], [1.0]], 1, ["a finite number", "nan for sample 1"]),
        ([0, 1], 10, ["wrong type or number", "int64[2]"]),
        (["a", "b", "c"], 10, ["wrong type or number"]),
    ],
)
def test_labels_that_do_not_suit(labels: Any, size: int, expected: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        check(np.array(labels), 3, Scoring(), Output("y", size))
    assert all(words in str(caught.value) for words in expected), str(caught.value)


def test_metrics_that_do_not_suit() -> None:
    with pytest.raises(UsageError, match="did you mean auc"):
        Scoring(metrics=("au",))
    with pytest.raises(UsageError, match="rmse can't be computed for these labels"):
        of(SCORES, LABELS, metrics=("top1", "rmse"))
    with pytest.raises(UsageError, match="not a row of scores"):
        check(np.array([0, 1]), 2, Scoring(), Output("y", 12, is_row=False))
    with pytest.raises(ModelError, match="y is not finite for 1 sample"):
        of([[0.1, np.inf], [0.2, 0.3]], [0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
    from sklearn import metrics  # takes seconds, in each process that collects this file

    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, 80)
    scores = np.round(random.dirichlet(np.ones(4), 80) + 0.5 * np.eye(4)[labels], 1)
    scores /= scores.sum(axis=1, keepdims=True)
    found, best = of(scores, labels, top_k=2).by_name, scores.argmax(axis=1)
    assert found["top1"] == metrics.accuracy_score(labels, best)
    assert found["confusion"] == metrics.confusion_matrix(labels, best).tolist()
    assert found["f1"] == pytest.approx(metrics.f1_score(labels, best, average="macro"))
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(labels, scores, multi_class="ovr"))
    one_hot = np.eye(4)[labels]
    assert found["map"] == pytest.approx(metrics.average_precision_score(one_hot, scores))
    smooth = random.random((80, 4))
    assert of(smooth, labels, top_k=2).by_name["topk"] == metrics.top_k_accuracy_score(labels, smooth, k=2)

    names = ("accuracy", "f1", "auc", "map", "confusion")  # "accuracy" is not for classes: one-hot labels stay rows
    several, is_one = of(scores, one_hot.astype(int), threshold=0.3, metrics=names).by_name, scores >= 0.3
    assert several["accuracy"] == metrics.accuracy_score(one_hot, is_one)
    assert several["f1"] == pytest.approx(metrics.f1_score(one_hot, is_one, average="macro"))
    assert several["auc"] == pytest.approx(metrics.roc_auc_score(one_hot, scores))
    assert several["map"] == found["map"]
    assert several["confusion"] == metrics.multilabel_confusion_matrix(one_hot, is_one).tolist()
    one = of(scores[:, :1], labels == 0).by_name
    assert one["auc"] == pytest.approx(metrics.roc_auc_score(labels == 0, scores[:, 0]))
    assert one["f1"] == pytest.approx(metrics.f1_score(labels == 0, scores[:, 0] >= 0.5))

    values, targets = random.normal(size=(2, 80, 3))
    errors = of(values, targets).by_name
    assert errors["mae"] == pytest.approx(metrics.mean_absolute_error(targets, values))
    assert errors["rmse"] == pytest.approx(metrics.mean_squared_error(targets, values) ** 0.5)
    assert errors["r2"] == pytest.approx(metrics.r2_score(targets, values))
