"""Operators of ai.onnx.ml against onnxruntime: the output of scikit-learn's converter, and each attribute."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, compiled, reference, run_c
from onnx import TensorProto, helper

RNG = np.random.default_rng(5)
F = np.float32
X = RNG.standard_normal((40, 5)).astype(F)
KINDS = {
    np.dtype(F): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.float64): TensorProto.DOUBLE,
}


def ml(op: str, feeds: dict[str, Any], outputs: dict[str, tuple[int, Any]], version: int = 3, **attrs: Any) -> Any:
    node = helper.make_node(op, [*feeds], [*outputs], domain="ai.onnx.ml", **attrs)
    inputs = [helper.make_tensor_value_info(n, KINDS[d.dtype], d.shape) for n, d in feeds.items()]
    made = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in outputs.items()]
    graph = helper.make_graph([node], "g", inputs, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(proto: onnx.ModelProto, feeds: dict[str, Any], folder: Path, tolerance: float = 1e-5) -> None:
    for mine, theirs in zip(run_c(compiled(proto, HOST), feeds, folder), reference(proto, feeds), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(mine, theirs)


def converted(estimator: Any, labels: Any, **options: Any) -> onnx.ModelProto:
    from skl2onnx import to_onnx

    estimator.fit(X, labels)
    chosen = {id(estimator): options} if options else None
    proto = to_onnx(estimator, X, target_opset={"": 17, "ai.onnx.ml": 3}, options=chosen)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = len(X)
    return proto


THREE = (X[:, 0] + X[:, 1] > 0).astype(np.int64) + (X[:, 2] > 0.5)
TWO = (X[:, 0] * X[:, 1] > 0).astype(np.int64) * 3 + 2
SMOOTH = (X[:, 0] - 2 * X[:, 3] + 0.5).astype(F)


ESTIMATORS = (
    "tree", "forest", "forest_two", "boosting", "boosting_three", "extra", "forest_regressor", "isolation", "logistic",
    "logistic_two", "ridge", "svc", "svc_linear", "svr", "one_class", "perceptron",
)  # fmt: skip


@functools.cache
def estimators() -> dict[str, tuple[Any, Any, bool]]:
    """Return estimators, what they learn, and whether that is classes; scikit-learn takes seconds to import."""
    from sklearn import ensemble, linear_model, neural_network, svm, tree

    return {
        "tree": (tree.DecisionTreeClassifier(max_depth=4, random_state=0), THREE, True),
        "forest": (ensemble.RandomForestClassifier(n_estimators=7, max_depth=4, random_state=0), THREE, True),
        "forest_two": (ensemble.RandomForestClassifier(n_estimators=7, max_depth=4, random_state=0), TWO, True),
        "boosting": (ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0), TWO, True),
        "boosting_three": (ensemble.GradientBoostingClassifier(n_estimators=5, random_state=0), THREE, True),
        "extra": (ensemble.ExtraTreesRegressor(5, max_depth=4, random_state=0), SMOOTH, False),
        "forest_regressor": (ensemble.RandomForestRegressor(5, max_depth=5, random_state=0), SMOOTH, False),
        "isolation": (ensemble.IsolationForest(n_estimators=5, random_state=0), None, False),
        "logistic": (linear_model.LogisticRegression(), THREE, True),
        "logistic_two": (linear_model.LogisticRegression(), TWO, True),
        "ridge": (linear_model.Ridge(), SMOOTH, False),
        "svc": (svm.SVC(), THREE, True),
        "svc_linear": (svm.SVC(kernel="linear"), TWO, True),
        "svr": (svm.SVR(kernel="poly"), SMOOTH, False),
        "one_class": (svm.OneClassSVM(), None, False),
        "perceptron": (neural_network.MLPClassifier((8,), max_iter=20, random_state=0), THREE, True),
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_estimator_is_tried() -> None:
    assert set(ESTIMATORS) == set(estimators())


@pytest.mark.product(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_of_scikit_learn(name: str, tmp_path: Path) -> None:
    estimator, labels, classifies = estimators()[name]
    check(converted(estimator, labels, **({"zipmap": False} if classifies else {})), {"X": X}, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["svr", "svc", "logistic_two", "ridge", "forest_regressor"])
def test_doubles_give_float32(name: str, tmp_path: Path) -> None:
    """onnxruntime has no kernel for doubles of some: its results for the same numbers as float32 are the reference."""
    estimator, labels, is_classifier = estimators()[name]
    proto = converted(estimator, labels, **({"zipmap": False} if is_classifier else {}))
    expected = reference(proto, {"X": X})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    for mine, theirs in zip(run_c(compiled(proto, HOST), {"X": X.astype(np.float64)}, tmp_path), expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("labels", [TWO, THREE])
def test_platt_probabilities(labels: Any, tmp_path: Path) -> None:
    from sklearn.svm import SVC

    proto = converted(SVC(probability=True, random_state=0), labels, zipmap=False)
    check(proto, {"X": X}, tmp_path, tolerance=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_zip_map_gives_the_tensor_of_its_values(tmp_path: Path) -> None:
    from sklearn.tree import DecisionTreeClassifier

    proto = converted(DecisionTreeClassifier(max_depth=3, random_state=0), TWO)
    labels, scores = run_c(compiled(proto, HOST), {"X": X}, tmp_path)
    theirs, maps = reference(proto, {"X": X})
    np.testing.assert_array_equal(labels, theirs)
    np.testing.assert_allclose(scores, [[row[2], row[5]] for row in maps], rtol=1e-6)


def branches(mode: str) -> dict[str, Any]:
    """Return two trees of branches that all compare in one way, for NaN too."""
    return {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 0, 1, 2, 0, 0, 0], "nodes_values": [0.5, 0, 0, 1.0, -0.5, 0, 0, 0.0],
        "nodes_modes": [mode, "LEAF", "LEAF", mode, mode, "LEAF", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0, 1, 2, 0, 0, 0], "nodes_falsenodeids": [2, 0, 0, 4, 3, 0, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 1, 0, 0, 0],
    }  # fmt: skip


TARGETS = {
    "target_treeids": [0, 0, 0, 0, 1, 1, 1], "target_nodeids": [1, 1, 2, 2, 2, 3, 4],
    "target_ids": [0, 1, 0, 1, 1, 0, 1],
    "target_weights": [0.3, -1.0, 2.0, 0.75, 0.7, 1.25, -0.125],
}  # fmt: skip
HALVES = np.round(X * 2)[:, :3].astype(F) / 2
HALVES[::5, 0] = np.nan


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ"])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE"])
def test_branches(mode: str, how: str, tmp_path: Path) -> None:
    attrs = {**branches(mode), **TARGETS, "aggregate_function": how, "n_targets": 2, "base_values": [0.5, -1.0]}
    proto = ml("TreeEnsembleRegressor", {"x": HALVES}, {"y": (1, (40, 2))}, **attrs)
    check(proto, {"x": HALVES}, tmp_path)


@pytest.mark.parametrize("how", ["MIN", "MAX"])
def test_smallest_and_largest_of_the_trees(how: str, tmp_path: Path) -> None:
    single = {**TARGETS, "target_ids": [0] * 5, "target_treeids": [0, 0, 1, 1, 1], "target_nodeids": [1, 2, 2, 3, 4]}
    single["target_weights"] = [0.3, 2.0, 0.7, 1.25, -0.125]
    attrs = {**branches("BRANCH_LEQ"), **single, "aggregate_function": how, "n_targets": 1}
    check(ml("TreeEnsembleRegressor", {"x": HALVES}, {"y": (1, (40, 1))}, **attrs), {"x": HALVES}, tmp_path)


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_post_transforms(how: str, tmp_path: Path) -> None:
    attrs = {"coefficients": RNG.random(15).tolist(), "intercepts": [0.1, 0.2, 0.3], "post_transform": how}
    x = (np.abs(X) / 20).astype(F)
    outputs = {"label": (TensorProto.INT64, (40,)), "y": (1, (40, 3))}
    check(ml("LinearClassifier", {"x": x}, outputs, classlabels_ints=[4, 9, 1], **attrs), {"x": x}, tmp_path, 1e-4)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str, tmp_path: Path) -> None:
    x = X.copy()
    x[3] = 0
    check(ml("Normalizer", {"x": x}, {"y": (1, x.shape)}, norm=norm), {"x": x}, tmp_path)


@pytest.mark.parametrize("dtype", [F, np.int64])
def test_scaler(dtype: Any, tmp_path: Path) -> None:
    x = (X * 10).astype(dtype)
    attrs = {"offset": [0.5, 1.0, -2.0, 0.0, 3.0], "scale": [2.0, 0.1, 1.0, 3.0, -1.0]}
    check(ml("Scaler", {"x": x}, {"y": (1, x.shape)}, **attrs), {"x": x}, tmp_path)


def test_imputer(tmp_path: Path) -> None:
    x = X.copy()
    x[::3, 1] = np.nan
    attrs = {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0, 5.0], "replaced_value_float": float("nan")}
    check(ml("Imputer", {"x": x}, {"y": (1, x.shape)}, **attrs), {"x": x}, tmp_path)


def test_imputer_of_integers(tmp_path: Path) -> None:
    x = RNG.integers(-2, 3, (6, 4))
    attrs = {"imputed_value_int64s": [7], "replaced_value_int64": -1}
    check(ml("Imputer", {"x": x}, {"y": (TensorProto.INT64, x.shape)}, **attrs), {"x": x}, tmp_path)


def test_feature_vectorizer(tmp_path: Path) -> None:
    feeds = {"a": X[:4, :2].copy(), "b": X[:4, :3].copy()}
    check(ml("FeatureVectorizer", feeds, {"y": (1, (4, 5))}, inputdimensions=[2, 3]), feeds, tmp_path)


def test_one_hot_encoder(tmp_path: Path) -> None:
    x = RNG.integers(0, 6, (3, 4))
    check(ml("OneHotEncoder", {"x": x}, {"y": (1, (3, 4, 4))}, cats_int64s=[1, 5, 2, 0], zeros=1), {"x": x}, tmp_path)


@pytest.mark.parametrize(
    ("x", "kind", "attrs"),
    [
        (np.array([3, 1, 9, 2, 3]), TensorProto.FLOAT, {"keys_int64s": [1, 2, 3], "values_floats": [0.5, 1.5, -2.0]}),
        (np.array([0.5, 7, 2], F), TensorProto.INT64, {"keys_floats": [2.0, 0.5], "values_int64s": [8, 9]}),
        (np.array([[3, 4]]), TensorProto.INT64, {"keys_int64s": [3], "values_int64s": [5], "default_int64": 77}),
        (np.array([np.nan, 1], F), TensorProto.INT64, {"keys_floats": [float("nan"), 3.0], "values_int64s": [5, 6]}),
    ],
)
def test_label_encoder(x: Any, kind: int, attrs: dict[str, Any], tmp_path: Path) -> None:
    check(ml("LabelEncoder", {"x": x}, {"y": (kind, x.shape)}, version=4, **attrs), {"x": x}, tmp_path)


def test_a_tree_that_is_a_circle_is_refused() -> None:
    from mtool.base.errors import ModelError

    attrs = {**branches("BRANCH_LEQ"), **TARGETS, "n_targets": 2}
    attrs["nodes_falsenodeids"] = [0, 0, 0, 4, 3, 0, 0, 0]
    proto = ml("TreeEnsembleRegressor", {"x": HALVES}, {"y": (1, (40, 2))}, **attrs)
    with pytest.raises(ModelError) as refused:
        compiled(proto, HOST)
    assert "two parents" in str(refused.value.details)
