"""Models that scikit-learn fits to random data and skl2onnx exports, one small function each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from skl2onnx import to_onnx
from sklearn import cluster, ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.base import BaseEstimator, is_classifier
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

FEATURES = 6
ROWS = 120
OPSET = {"": 17, "ai.onnx.ml": 3}

Array = np.ndarray[Any, Any]


def features(rows: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32)


def classes(x: Array) -> Array:
    """Three classes, by two directions."""
    return (x[:, 0] + x[:, 1] > 0.3).astype(int) + (x[:, 2] * x[:, 3] > 0).astype(int)


def targets(x: Array) -> Array:
    return 2 * x[:, 0] - x[:, 1] + np.sin(x[:, 2]) * x[:, 3]


def one_row(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of any number of rows as one of a row."""
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model


def export(model: BaseEstimator, *, regression: bool = False) -> onnx.ModelProto:
    """Fit a model and export it for one row; probabilities as a tensor, which a ZipMap makes a sequence of maps."""
    x = features(ROWS, seed=1)
    model.fit(x, targets(x) if regression else classes(x))
    options = {"zipmap": False} if is_classifier(model) else None
    return one_row(to_onnx(model, x[:1], options=options, target_opset=OPSET))


def logistic_regression() -> onnx.ModelProto:
    return export(linear_model.LogisticRegression())


def ridge() -> onnx.ModelProto:
    return export(linear_model.Ridge(), regression=True)


def svc_rbf() -> onnx.ModelProto:
    return export(svm.SVC(kernel="rbf"))


def svr() -> onnx.ModelProto:
    return export(svm.SVR(), regression=True)


def decision_tree() -> onnx.ModelProto:
    return export(tree.DecisionTreeClassifier(max_depth=6, random_state=0))


def random_forest() -> onnx.ModelProto:
    return export(ensemble.RandomForestClassifier(n_estimators=12, max_depth=5, random_state=0))


def gradient_boosting() -> onnx.ModelProto:
    return export(ensemble.GradientBoostingClassifier(n_estimators=10, max_depth=3, random_state=0))


def extra_trees_regressor() -> onnx.ModelProto:
    return export(ensemble.ExtraTreesRegressor(n_estimators=10, max_depth=5, random_state=0), regression=True)


def nearest_neighbours() -> onnx.ModelProto:
    return export(neighbors.KNeighborsClassifier(n_neighbors=5))


def perceptron() -> onnx.ModelProto:
    return export(neural_network.MLPClassifier((16, 8), max_iter=40, random_state=0))


def scaled_pca_logistic() -> onnx.ModelProto:
    return export(make_pipeline(StandardScaler(), PCA(4, random_state=0), linear_model.LogisticRegression()))


def gaussian_naive_bayes() -> onnx.ModelProto:
    return export(naive_bayes.GaussianNB())


def k_means() -> onnx.ModelProto:
    return export(cluster.KMeans(4, n_init=1, random_state=0))


def isolation_forest() -> onnx.ModelProto:
    return export(ensemble.IsolationForest(n_estimators=8, max_samples=32, random_state=0))


def scaled_descent() -> onnx.ModelProto:
    return export(make_pipeline(MinMaxScaler(), linear_model.SGDClassifier(loss="log_loss", random_state=0)))


def with_text_classes() -> onnx.ModelProto:
    """Return a classifier whose labels are strings."""
    model, x = linear_model.LogisticRegression(), features(ROWS, seed=1)
    model.fit(x, np.array(["low", "middle", "high"])[classes(x)])
    return one_row(to_onnx(model, x[:1], options={"zipmap": False}, target_opset=OPSET))


MODELS: tuple[Callable[[], onnx.ModelProto], ...] = (
    logistic_regression, ridge, svc_rbf, svr, decision_tree, random_forest, gradient_boosting, extra_trees_regressor,
    nearest_neighbours, perceptron, scaled_pca_logistic, gaussian_naive_bayes, k_means, isolation_forest,
    scaled_descent,
)  # fmt: skip
