"""Support vector machines (ai.onnx.ml SVMRegressor, SVMClassifier 1), as libsvm computes them."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import Reduction, axis, call, load
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.template.node import Values
from mtool.compiler.operators.classical_node import ClassicalNode, classical, transformed
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import OWN, Unsupported
from mtool.compiler.operators.templates import template_node


def _kernel(write: ClassicalNode, x: str, count: int) -> str:
    """Return the kernel of each example with each support vector: [examples, vectors]."""
    features = write.kind(x).shape[1]
    vectors = write.numbers("support_vectors")
    if count < 1 or len(vectors) != count * features:
        raise Unsupported(f"{len(vectors)} numbers are not {count} support vectors of {features} features")
    dtype = write.dtype(x)
    rows = np.reshape(np.asarray(vectors, dtype), (count, features))
    gamma, offset, degree = [*write.numbers("kernel_params"), 0.0, 0.0, 0.0][:3]
    how = write.word("kernel_type", "LINEAR")
    if how == "RBF":
        raised = write("Unsqueeze", x, write.constant([1], np.int64))
        difference = write("Sub", raised, write.constant(rows[None], dtype))
        distance = write("ReduceSumSquare", difference, write.constant([2], np.int64), keepdims=0)
        return write("Exp", write("Mul", distance, write.constant(-gamma, dtype)))
    product = write("MatMul", x, write.constant(rows.T, dtype))
    if how == "LINEAR":
        return product
    line = write("Add", write("Mul", product, write.constant(gamma, dtype)), write.constant(offset, dtype))
    if how == "POLY":
        return write("Pow", line, write.constant(degree, dtype))
    if how == "SIGMOID":
        return write("Tanh", line)
    raise Unsupported(f"kernel {how!r} is not known")


def _regressor(write: ClassicalNode) -> None:
    x = write.matrix()
    dtype, count = write.dtype(x), write.attrs.get("n_supports", 0)
    coefficients, rho = write.numbers("coefficients"), write.numbers("rho")
    seen = _kernel(write, x, count) if count else x
    if len(coefficients) != write.kind(seen).shape[1] or not rho:
        raise Unsupported(f"it has {len(coefficients)} coefficients and {len(rho)} offsets")
    result = _decision(write, seen, np.reshape(np.asarray(coefficients, dtype), (1, -1)), rho[:1])
    if write.attrs.get("one_class"):
        above = write("Greater", result, write.constant(0, dtype))
        result = write("Where", above, write.constant(1, dtype), write.constant(-1, dtype))
    write.give(transformed(write, result, write.word("post_transform")))


def _classifier(write: ClassicalNode) -> None:
    """SVMClassifier: one machine a pair of classes, each with a vote; probabilities by Platt's sigmoid of each."""
    labels = write.integer_labels("classlabels_ints", "classlabels_strings")
    per_class = list(write.attrs.get("vectors_per_class") or ())
    if not per_class or len(per_class) != len(labels):
        raise Unsupported(f"it has support vectors of {len(per_class)} classes and {len(labels)} labels")
    x, classes, count = write.matrix(), len(labels), sum(per_class)
    pairs = list(itertools.combinations(range(classes), 2))
    rho, coefficients = write.numbers("rho"), write.numbers("coefficients")
    if len(coefficients) != (classes - 1) * count or len(rho) != len(pairs):
        raise Unsupported(f"it has {len(coefficients)} coefficients and {len(rho)} offsets for {classes} classes")
    dtype = write.dtype(x)
    decisions = _decisions(write, _kernel(write, x, count), coefficients, rho, per_class, pairs)
    for_first = write("Cast", write("Greater", decisions, write.constant(0, dtype)), to=1)
    share, start = np.zeros((len(pairs), classes), np.float32), np.zeros(classes, np.float32)
    for index, (i, j) in enumerate(pairs):
        share[index, i], share[index, j] = 1, -1
        start[j] += 1
    votes = write("Gemm", for_first, write.constant(share), write.constant(start))
    how = write.word("post_transform")
    a, b = write.numbers("prob_a"), write.numbers("prob_b")
    if a:
        if len(a) != len(pairs) or len(b) != len(pairs):
            raise Unsupported(f"it has {len(a)} and {len(b)} parameters of probabilities for {len(pairs)} pairs")
        scores = transformed(write, _probabilities(write, decisions, a, b, classes), how)
    elif classes == 2:
        scores = transformed(write, write("Concat", write("Neg", decisions), decisions, axis=1), how)
    else:
        scores = transformed(write, decisions, how)
    write.give(scores, 1)
    write.label(write("ArgMax", votes, axis=1, keepdims=0), labels)


def _decisions(
    write: ClassicalNode,
    kernel: str,
    coefficients: list[float],
    rho: list[float],
    per_class: list[int],
    pairs: list[tuple[int, int]],
) -> str:
    """Return what each pair's machine says: [examples, pairs]."""
    dtype = write.dtype(kernel)
    rows = np.reshape(coefficients, (len(per_class) - 1, -1))
    begin = [0, *np.cumsum(per_class).tolist()]
    weights = np.zeros((len(pairs), rows.shape[1]), dtype)
    for index, (i, j) in enumerate(pairs):
        weights[index, begin[i] : begin[i + 1]] = rows[j - 1, begin[i] : begin[i + 1]]
        weights[index, begin[j] : begin[j + 1]] = rows[i, begin[j] : begin[j + 1]]
    return _decision(write, kernel, weights, rho)


def _decision(write: ClassicalNode, kernel: str, weights: Array, rho: list[float]) -> str:
    """Return the weighted sums of the kernels, [examples, sums], of terms that nearly cancel."""
    examples = write.kind(kernel).shape[0]
    output = write.state.unique(f"{write.origin}/decisions")
    write.state.types[output] = TensorType(DType.of(weights.dtype), (examples, len(weights)))
    inputs = [kernel, write.constant(weights), write.constant(rho, weights.dtype)]
    write.state.emit("CarefulProduct", write.origin, inputs, [output])
    return output


def _probabilities(write: ClassicalNode, decisions: str, a: list[float], b: list[float], classes: int) -> str:
    """Return the probability of each class from Platt's sigmoids of the pairs."""
    dtype = write.dtype(decisions)
    line = write("Add", write("Mul", decisions, write.constant(a, dtype)), write.constant(b, dtype))
    each = write("Sigmoid", write("Neg", line))
    low, high = write.constant(1e-7, dtype), write.constant(1 - 1e-7, dtype)
    each = write("Min", write("Max", each, low), high)
    examples = write.kind(each).shape[0]
    output = write.state.unique(f"{write.origin}/probabilities")
    write.state.types[output] = TensorType(DType.of(dtype), (examples, classes))
    assert math.comb(classes, 2) == write.kind(each).shape[1]
    write.state.emit("PairwiseCoupling", write.origin, [each], [output])
    return output


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseCouplingValues(Values):
    """iterations: the most that are made."""

    rows: int
    classes: int
    iterations: int


def _pairwise_coupling(ctx: Lowering, node: Node) -> None:
    """Wu, Lin and Weng (2004), second method, as libsvm iterates it: at most 100 iterations, or one a class."""
    rows, classes = ctx.types[node.outputs[0]].shape
    dtype = ctx.types[node.inputs[0]].dtype
    values = PairwiseCouplingValues(rows=rows, classes=classes, iterations=max(100, classes))
    scratch = dtype.size * (2 * classes * classes + classes)
    inputs, outputs = {"input": node.inputs[0]}, {"output": node.outputs[0]}
    template_node(
        ctx, node, "pairwise_coupling", inputs, outputs, values, scratch=scratch, scratch_type=dtype.c, math=True
    )


def _careful_product(ctx: Lowering, node: Node) -> None:
    """CarefulProduct: x [M, K] times the rows of w [N, K], plus b [N], where terms nearly cancel."""
    kind, depth = ctx.types[node.outputs[0]], ctx.types[node.inputs[0]].shape[1]
    x, w = (load(n, kind.dtype, (axis(n), axis(2))) for n in (0, 1))
    total = Expr("reduce", kind.dtype, (call("mul", x, w),), Reduction("add", ((2, depth),), careful=True))
    ctx.loop(node, call("add", total, load(2, kind.dtype, (axis(1),))), node.inputs)


OPERATORS = (
    classical("SVMRegressor", _regressor),
    classical("SVMClassifier", _classifier),
    Operator("PairwiseCoupling", domain=OWN, lower=_pairwise_coupling),
    Operator("CarefulProduct", domain=OWN, lower=_careful_product),
)
