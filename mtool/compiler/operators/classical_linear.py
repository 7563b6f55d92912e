"""Linear models and what stands before them: LinearRegressor, LinearClassifier, Scaler, Normalizer (ai.onnx.ml 1)."""

import numpy as np

from mtool.compiler.operators.classical_node import ClassicalNode, classical, transformed
from mtool.compiler.operators.problems import Unsupported


def _product(write: ClassicalNode, x: str, rows: int) -> str:
    """Return x times the coefficients, plus the intercepts: [examples, rows]."""
    dtype, features = write.dtype(x), write.kind(x).shape[1]
    coefficients, intercepts = write.numbers("coefficients"), write.numbers("intercepts")
    if rows * features != len(coefficients) or len(intercepts) not in (0, 1, rows):
        raise Unsupported(
            f"{len(coefficients)} coefficients and {len(intercepts)} intercepts do not fit {features} features"
        )
    inputs = [x, write.constant(np.reshape(coefficients, (rows, features)), dtype)]
    if intercepts:
        inputs.append(write.constant(intercepts, dtype))
    return write("Gemm", *inputs, transB=1)


def _regressor(write: ClassicalNode) -> None:
    targets = write.attrs.get("targets", 1)
    write.give(transformed(write, _product(write, write.matrix(), targets), write.word("post_transform")))


def _classifier(write: ClassicalNode) -> None:
    labels = write.integer_labels("classlabels_ints", "classlabels_strings")
    x, how = write.matrix(), write.word("post_transform")
    features = write.kind(x).shape[1]
    rows = len(write.numbers("coefficients")) // max(features, 1)
    scores = _product(write, x, rows)
    if rows > 1:
        write.give(transformed(write, scores, how), 1)
        write.label(write("ArgMax", scores, axis=1, keepdims=0), labels or list(range(rows)))
        return
    zero = write.constant(0.5 if how != "NONE" and len(labels) != 2 else 0, write.dtype(scores))
    if len(labels) == 2:
        both = write("Concat", write("Neg", scores), scores, axis=1)
        write.give(transformed(write, both, how), 1)
        yes, no = labels[1], labels[0]
        above = write("Greater", scores, zero)
    else:
        scores = transformed(write, scores, how)
        write.give(scores, 1)
        yes, no = (labels or [1])[0], 0
        above = write("GreaterOrEqual", scores, zero)
    chosen = write("Where", above, write.constant(yes, np.int64), write.constant(no, np.int64))
    write.give(write("Squeeze", chosen, write.constant([1], np.int64)))


def _scaler(write: ClassicalNode) -> None:
    """Scaler: (x - offset) * scale, each one number or one a feature."""
    x = write.inputs[0]
    if write.dtype(x) != np.float32:  # its result is float32, whatever goes in
        x = write("Cast", x, to=1)
    offset, scale = write.numbers("offset"), write.numbers("scale")
    if offset and any(offset):
        x = write("Sub", x, write.constant(offset))
    write.give(write("Mul", x, write.constant(scale or [1.0])))


def _normalizer(write: ClassicalNode) -> None:
    """Normalizer: each row over its norm; one without a length stays as it is."""
    x, how = write.matrix(), write.word("norm", "MAX")
    if write.dtype(x) != np.float32:
        x = write("Cast", x, to=1)
    axis = write.constant([1], np.int64)
    if how not in ("MAX", "L1", "L2"):
        raise Unsupported(f"norm {how!r} is not known")
    operator = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[how]
    norm = write(operator, x, axis, keepdims=1)
    none = write("Equal", norm, write.constant(0))
    write.give(write("Div", x, write("Where", none, write.constant(1), norm)))


OPERATORS = (
    classical("LinearRegressor", _regressor),
    classical("LinearClassifier", _classifier),
    classical("Scaler", _scaler),
    classical("Normalizer", _normalizer),
)
