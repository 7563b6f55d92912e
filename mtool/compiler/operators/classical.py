"""Operators of ai.onnx.ml, expanded to ONNX operators.

Linear models, encoders, support vector machines and tree ensembles. Only trees, LabelEncoder's table and libsvm's
coupling of pairwise probabilities have kernels. Where the standard is silent, semantics are onnxruntime's, and for
support vector machines libsvm's.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import Reduction, axis, call, choose, identity, load, number
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.lowering import Lower, Lowering, by_template, template_node
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import LIKE, Cases, Operator, case, constant, numbers
from mtool.compiler.operators.problems import CLASSICAL, OWN, Unsupported


class ClassicalNode(OnnxNode):
    """One node of a classical operator."""

    def numbers(self, key: str) -> list[float]:
        """Return an attribute that is a list, or a tensor named `<key>_as_tensor`; empty if it is not given."""
        if f"{key}_as_tensor" in self.attrs:
            return _list(self.attrs[f"{key}_as_tensor"])
        return list(self.attrs.get(key) or ())

    def narrowed(self, value: str) -> str:
        """Return a value as float32."""
        return value if self.dtype(value) == np.float32 else self("Cast", value, to=TensorProto.FLOAT)

    def matrix(self, *, keep_double: bool = False) -> str:
        """Return the input as a float32 matrix (or float64 with `keep_double`), one row per example.

        Results are float32 by the standard; onnxruntime converts the inputs of all operators except trees.
        """
        value: str = self.inputs[0]
        if not (keep_double and self.dtype(value) == np.float64):
            value = self.narrowed(value)
        shape = self.kind(value).shape
        if len(shape) == 1:
            value = self("Unsqueeze", value, [0])
        elif len(shape) != 2:
            raise Unsupported(f"its input has {plural.count(len(shape), 'dimension')}; expected [examples, features]")
        return value

    def label(self, chosen: str, labels: list[int]) -> None:
        """Set the first output to the label of the chosen class, [examples]."""
        if labels == list(range(len(labels))):
            self.set_output(chosen)
        else:
            self.set_output(self("Gather", labels, chosen))

    def label_of_two(self, above: str, yes: int, no: int) -> None:
        """Set the first output to one of two class labels, by a condition [examples, 1]."""
        self.set_output(self("Squeeze", self("Where", above, np.int64(yes), np.int64(no)), [1]))

    def integer_labels(self, key: str) -> list[int]:
        """Return the class labels.

        Raises:
            Unsupported: they are strings.
        """
        if self.attrs.get("classlabels_strings"):
            raise Unsupported("its class labels are strings; export it with integer labels")
        return list(map(int, self.attrs.get(key) or ()))


def _list(tensor: onnx.TensorProto) -> list[Any]:
    return list(numpy_helper.to_array(tensor).reshape(-1).tolist())


def classical(
    name: str,
    write: Callable[[ClassicalNode], None],
    cases: Cases | None,
    lower: Lower | None = None,
    attributes: type[Attributes] = Attributes,
) -> Operator:
    """Return the record of an operator of ai.onnx.ml that `write` expands, or that has a lowering."""
    expand = ClassicalNode.form(write)
    return Operator(name, domain=CLASSICAL, cases=cases, attributes=attributes, expand=expand, lower=lower)


def transformed(write: ClassicalNode, scores: str, transform: str) -> str:
    """Apply a post_transform along the last axis of scores [examples, classes].

    Raises:
        Unsupported: the transformation is unknown.
    """
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return write("Sigmoid", scores)
    if transform == "SOFTMAX":
        return write("Softmax", scores, axis=1)
    if transform == "SOFTMAX_ZERO":  # 0 stays 0
        top = write("ReduceMax", scores, [1], keepdims=1)
        zero = write("LessOrEqual", write("Abs", scores), 1e-7)
        small = write("Mul", scores, write("Exp", write("Neg", top)))
        power = write("Where", zero, small, write("Exp", write("Sub", scores, top)))
        total = write("ReduceSum", power, [1], keepdims=1)
        empty = write("Equal", total, 0)
        return write("Where", empty, 0.5, write("Div", power, write("Where", empty, 1, total)))
    if transform == "PROBIT":  # onnxruntime's approximation of the inverse error function
        x = write("Sub", write("Mul", scores, 2), 1)
        log = write("Log", write("Mul", write("Sub", 1, x), write("Add", 1, x)))
        v = write("Add", 2 / (np.pi * 0.147), write("Mul", log, 0.5))
        inner = write("Sub", write("Mul", v, v), write("Mul", log, 1 / 0.147))
        root = write("Sqrt", write("Sub", write("Sqrt", inner), v))
        return write("Mul", write("Mul", write("Sign", x), root), 1.41421356)
    raise Unsupported(f"its post_transform {transform!r} is unknown")


def _linear_product(write: ClassicalNode, x: str, rows: int) -> str:
    """Return x times the coefficients, plus the intercepts: [examples, rows]."""
    features = write.kind(x).shape[1]
    coefficients, intercepts = write.numbers("coefficients"), write.numbers("intercepts")
    if rows * features != len(coefficients) or len(intercepts) not in (0, 1, rows):
        raise Unsupported(
            f"its {plural.count(len(coefficients), 'coefficient')} and "
            f"{plural.count(len(intercepts), 'intercept')} do not fit {features} features"
        )
    inputs = [x, write.constant(np.reshape(coefficients, (rows, features)))]
    if intercepts:
        inputs.append(write.constant(intercepts))
    return write("Gemm", *inputs, transB=1)


def _linear_regressor(write: ClassicalNode) -> None:
    targets = write.attrs.get("targets", 1)
    write.set_output(transformed(write, _linear_product(write, write.matrix(), targets), write.word("post_transform")))


def _linear_classifier(write: ClassicalNode) -> None:
    labels = write.integer_labels("classlabels_ints")
    x, transform = write.matrix(), write.word("post_transform")
    features = write.kind(x).shape[1]
    rows = len(write.numbers("coefficients")) // max(features, 1)
    scores = _linear_product(write, x, rows)
    if rows > 1:
        write.set_output(transformed(write, scores, transform), 1)
        write.label(write("ArgMax", scores, axis=1, keepdims=0), labels or list(range(rows)))
        return
    if len(labels) == 2:
        both = write("Concat", write("Neg", scores), scores, axis=1)
        write.set_output(transformed(write, both, transform), 1)
        write.label_of_two(write("Greater", scores, 0), labels[1], labels[0])
        return
    scores = transformed(write, scores, transform)
    write.set_output(scores, 1)
    write.label_of_two(write("GreaterOrEqual", scores, 0 if transform == "NONE" else 0.5), (labels or [1])[0], 0)


def _scaler(write: ClassicalNode) -> None:
    """Scaler: (x - offset) * scale, each a single number or one per feature."""
    x = write.narrowed(write.inputs[0])  # the result is always float32
    offset, scale = write.numbers("offset"), write.numbers("scale")
    if offset and any(offset):
        x = write("Sub", x, write.constant(offset))
    write.set_output(write("Mul", x, write.constant(scale or [1.0])))


def _normalizer(write: ClassicalNode) -> None:
    """Normalizer: each row divided by its norm; a row with norm 0 stays unchanged."""
    x, kind = write.matrix(), write.word("norm", "MAX")
    operators = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if kind not in operators:
        raise Unsupported(f"its norm {kind!r} is unknown")
    norm = write(operators[kind], x, [1], keepdims=1)
    write.set_output(write("Div", x, write("Where", write("Equal", norm, 0), 1, norm)))


# Encoders: operators of ai.onnx.ml that prepare features and map labels.
#
# LabelEncoder 4, OneHotEncoder, Imputer, FeatureVectorizer, ArrayFeatureExtractor, ZipMap 1.
STRINGS = "strings are not supported"


def _table(write: ClassicalNode, side: str) -> Array:
    """Return the keys or the values of a label encoder.

    Raises:
        Unsupported: they are strings.
    """
    attrs = write.attrs
    if f"{side}_tensor" in attrs:
        data = numpy_helper.to_array(attrs[f"{side}_tensor"])
        if data.dtype.kind not in "biuf":
            raise Unsupported(STRINGS)
        return np.asarray(data).reshape(-1)
    for key, dtype in ((f"{side}_int64s", np.int64), (f"{side}_floats", np.float32)):
        if attrs.get(key):
            return np.asarray(attrs[key], dtype)
    raise Unsupported(STRINGS)


def _label_encoder(write: ClassicalNode) -> None:
    """LabelEncoder: the value of the first equal key, with NaN equal to NaN; otherwise the default."""
    if {"classes_strings", "keys_strings", "values_strings"} & write.attrs.keys():
        raise Unsupported(STRINGS)
    keys, values = _table(write, "keys"), _table(write, "values")
    if len(keys) != len(values):
        raise Unsupported(f"it has {plural.count(len(keys), 'key')} and {plural.count(len(values), 'value')}")
    if "default_tensor" in write.attrs:
        default = numpy_helper.to_array(write.attrs["default_tensor"]).reshape(-1)[0]
    elif values.dtype.kind == "f":
        default = write.attrs.get("default_float", 0.0)
    else:
        default = write.attrs.get("default_int64", -1)
    x, output = write.inputs[0], write.outputs[0]
    keys = keys.astype(write.dtype(x))
    _, first = np.unique(keys, return_index=True)  # the first of equal keys counts
    order = np.sort(first)
    state = write.state
    state.types[output] = TensorType(DType.of(values.dtype), write.kind(x).shape)
    tables = [write.constant(keys[order], keys.dtype)]
    tables.append(write.constant([*values[order], default], values.dtype))
    state.emit("LabelEncoder", write.origin, [x, *tables], [output])


def _one_hot(write: ClassicalNode) -> None:
    """OneHotEncoder: 1 for the equal category; an unknown value gives zeros."""
    categories = list(write.attrs.get("cats_int64s") or ())
    if not categories:
        raise Unsupported(STRINGS)
    x = write.inputs[0]
    raised = write("Unsqueeze", x, [-1])
    write.set_output(write("Cast", write("Equal", raised, write.constant(categories, write.dtype(x))), to=1))


def _imputer(write: ClassicalNode) -> None:
    """Imputer: replace missing numbers, which are NaN or a given number."""
    x, attrs = write.inputs[0], write.attrs
    dtype = write.dtype(x)
    values: list[Any] = list(attrs.get("imputed_value_floats") or attrs.get("imputed_value_int64s") or ())
    key = "replaced_value_float" if attrs.get("imputed_value_floats") else "replaced_value_int64"
    marked = attrs.get(key, 0)
    if len(values) not in (1, write.kind(x).shape[-1]):
        raise Unsupported(f"it has {plural.count(len(values), 'value')} for {write.kind(x).shape[-1]} features")
    missing = write("IsNaN", x) if np.isnan(marked) else write("Equal", x, marked)
    write.set_output(write("Where", missing, write.constant(values, dtype), x))


def _feature_vectorizer(write: ClassicalNode) -> None:
    """FeatureVectorizer: the inputs' columns side by side, each input cropped or padded to its width."""
    widths = list(write.attrs.get("inputdimensions") or ())
    parts = []
    for index, name in enumerate(write.inputs):
        value = write.narrowed(name)
        shape = write.kind(value).shape
        if len(shape) == 1:
            value = write("Unsqueeze", value, [1])
        elif len(shape) != 2:
            raise Unsupported(f"an input has {plural.count(len(shape), 'dimension')}; expected 1 or 2")
        columns = write.kind(value).shape[1]
        width = widths[index] if index < len(widths) else columns
        if width < columns:
            value = write("Slice", value, [0], [width], [1])
        elif width > columns:
            value = write("Pad", value, [0, 0, 0, width - columns])
        parts.append(value)
    write.set_output(write("Concat", *parts, axis=1))


def _array_feature_extractor(write: ClassicalNode) -> None:
    """ArrayFeatureExtractor: columns of the last axis, by number; a vector is a row of one example."""
    x, indices = write.inputs
    if len(write.kind(x).shape) == 1:
        x = write("Unsqueeze", x, [0])
    write.set_output(write("Gather", x, write("Reshape", indices, [-1]), axis=-1))


def _zip_map(write: ClassicalNode) -> None:
    """ZipMap: C has no maps, so the result is the tensor [examples, classes] of their values, in the labels' order."""
    write.set_output(write.inputs[0])


def _look_up(ctx: Lowering, node: Node) -> None:
    """LabelEncoder: look up the values by the index of the equal key, or one after the last."""
    x, keys, values = node.inputs
    kind, count = ctx.types[x], ctx.types[keys].count
    rank = len(kind.shape)
    element, key = load(0, kind.dtype, identity(rank)), load(1, kind.dtype, (axis(rank),))
    equal = call("equal", element, key, dtype=DType.BOOL)
    if kind.dtype.is_float:
        both = call("and", *(call("isnan", side, dtype=DType.BOOL) for side in (element, key)))
        equal = call("or", equal, both)
    index = choose(equal, axis(rank), number(count))
    first_match = Expr("reduce", DType.INT32, (index,), Reduction("minimum", ((rank, count),)))
    at = ctx.value(f"{node.outputs[0]}.place", DType.INT32, kind.shape)
    ctx.loop(node, first_match, [x, keys], at)
    chosen = load(1, ctx.types[values].dtype, (load(0, DType.INT32, identity(rank)),))
    ctx.loop(node, chosen, [at, values])


def _kernel(write: ClassicalNode, x: str, count: int) -> str:
    """Return the kernel function of each example and each support vector: [examples, vectors]."""
    features = write.kind(x).shape[1]
    vectors = write.numbers("support_vectors")
    if count < 1 or len(vectors) != count * features:
        raise Unsupported(
            f"its support vectors have {plural.count(len(vectors), 'number')}; expected {count} times {features}"
        )
    rows = np.reshape(np.asarray(vectors, np.float32), (count, features))
    gamma, offset, degree = [*write.numbers("kernel_params"), 0.0, 0.0, 0.0][:3]
    kernel_type = write.word("kernel_type", "LINEAR")
    if kernel_type == "RBF":
        difference = write("Sub", write("Unsqueeze", x, [1]), rows[None])
        distance = write("ReduceSumSquare", difference, [2], keepdims=0)
        return write("Exp", write("Mul", distance, -gamma))
    product = write("MatMul", x, rows.T)
    if kernel_type == "LINEAR":
        return product
    line = write("Add", write("Mul", product, gamma), offset)
    if kernel_type == "POLY":
        return write("Pow", line, degree)
    if kernel_type == "SIGMOID":
        return write("Tanh", line)
    raise Unsupported(f"its kernel {kernel_type!r} is unknown")


def _svm_regressor(write: ClassicalNode) -> None:
    x = write.matrix()
    count = write.attrs.get("n_supports", 0)
    coefficients, rho = write.numbers("coefficients"), write.numbers("rho")
    seen = _kernel(write, x, count) if count else x
    if len(coefficients) != write.kind(seen).shape[1] or not rho:
        raise Unsupported(
            f"it has {plural.count(len(coefficients), 'coefficient')} and {plural.count(len(rho), 'offset')}"
        )
    result = _decision(write, seen, np.reshape(np.asarray(coefficients, np.float32), (1, -1)), rho[:1])
    if write.attrs.get("one_class"):
        result = write("Where", write("Greater", result, 0), 1, -1)
    write.set_output(transformed(write, result, write.word("post_transform")))


def _svm_classifier(write: ClassicalNode) -> None:
    """SVMClassifier: one machine per pair of classes, each with a vote; probabilities by Platt's sigmoids."""
    labels = write.integer_labels("classlabels_ints")
    per_class = list(write.attrs.get("vectors_per_class") or ())
    if not per_class or len(per_class) != len(labels):
        raise Unsupported(
            f"it has support vectors of {len(per_class)} classes, but {plural.count(len(labels), 'label')}"
        )
    x, classes, count = write.matrix(), len(labels), sum(per_class)
    pairs = list(itertools.combinations(range(classes), 2))
    rho, coefficients = write.numbers("rho"), write.numbers("coefficients")
    if len(coefficients) != (classes - 1) * count or len(rho) != len(pairs):
        raise Unsupported(
            f"it has {plural.count(len(coefficients), 'coefficient')} and {plural.count(len(rho), 'offset')} "
            f"for {classes} classes"
        )
    decisions = _decisions(write, _kernel(write, x, count), coefficients, rho, per_class, pairs)
    for_first = write("Cast", write("Greater", decisions, 0), to=1)
    share, start = np.zeros((len(pairs), classes), np.float32), np.zeros(classes, np.float32)
    for index, (i, j) in enumerate(pairs):
        share[index, i], share[index, j] = 1, -1
        start[j] += 1
    votes = write("Gemm", for_first, share, start)
    transform = write.word("post_transform")
    a, b = write.numbers("prob_a"), write.numbers("prob_b")
    if a:
        if len(a) != len(pairs) or len(b) != len(pairs):
            raise Unsupported(
                f"it has {len(a)} and {plural.count(len(b), 'probability parameter')} "
                f"for {plural.count(len(pairs), 'pair')} of classes"
            )
        scores = transformed(write, _probabilities(write, decisions, a, b, classes), transform)
    else:
        both = write("Concat", write("Neg", decisions), decisions, axis=1) if classes == 2 else decisions
        scores = transformed(write, both, transform)
    write.set_output(scores, 1)
    write.label(write("ArgMax", votes, axis=1, keepdims=0), labels)


def _decisions(
    write: ClassicalNode,
    kernel: str,
    coefficients: list[float],
    rho: list[float],
    per_class: list[int],
    pairs: list[tuple[int, int]],
) -> str:
    """Return the decision of each pair's machine: [examples, pairs]."""
    rows = np.reshape(coefficients, (len(per_class) - 1, -1))
    begin = [0, *np.cumsum(per_class).tolist()]
    weights = np.zeros((len(pairs), rows.shape[1]), np.float32)
    for index, (i, j) in enumerate(pairs):
        weights[index, begin[i] : begin[i + 1]] = rows[j - 1, begin[i] : begin[i + 1]]
        weights[index, begin[j] : begin[j + 1]] = rows[i, begin[j] : begin[j + 1]]
    return _decision(write, kernel, weights, rho)


def _decision(write: ClassicalNode, kernel: str, weights: Array, rho: list[float]) -> str:
    """Return the weighted sums of the kernels, [examples, sums], whose terms nearly cancel."""
    decisions = write.value("decisions", TensorType(DType.FLOAT32, (write.kind(kernel).shape[0], len(weights))))
    return write.canonical("CarefulProduct", [kernel, write.constant(weights), write.constant(rho)], decisions)


def _probabilities(write: ClassicalNode, decisions: str, a: list[float], b: list[float], classes: int) -> str:
    """Return the probability of each class from Platt's sigmoids of the pairs."""
    line = write("Add", write("Mul", decisions, write.constant(a)), write.constant(b))
    pairwise = write("Min", write("Max", write("Sigmoid", write("Neg", line)), 1e-7), 1 - 1e-7)
    assert math.comb(classes, 2) == write.kind(pairwise).shape[1]
    probabilities = write.value("probabilities", TensorType(DType.FLOAT32, (write.kind(pairwise).shape[0], classes)))
    return write.canonical("PairwiseCoupling", [pairwise], probabilities)


def _pairwise_values(ctx: Lowering, node: Node) -> dict[str, Any]:
    """Wu, Lin and Weng (2004), second method, as in libsvm: at most max(100, classes) iterations."""
    rows, classes = ctx.types[node.outputs[0]].shape
    return {"rows": rows, "classes": classes, "iterations": max(100, classes)}


def _pairwise_scratch(ctx: Lowering, node: Node) -> tuple[int, str]:
    dtype, classes = ctx.types[node.inputs[0]].dtype, ctx.types[node.outputs[0]].shape[1]
    return dtype.size * (2 * classes * classes + classes), dtype.c


_COUPLING = by_template("pairwise_coupling", "input", "output", _pairwise_values, _pairwise_scratch, math=True)


def _careful_product(ctx: Lowering, node: Node) -> None:
    """CarefulProduct: x [M, K] times the rows of w [N, K], plus b [N], where terms nearly cancel."""
    kind, depth = ctx.types[node.outputs[0]], ctx.types[node.inputs[0]].shape[1]
    x, w = (load(n, kind.dtype, (axis(n), axis(2))) for n in (0, 1))
    total = Expr("reduce", kind.dtype, (call("mul", x, w),), Reduction("add", ((2, depth),), careful=True))
    ctx.loop(node, call("add", total, load(2, kind.dtype, (axis(1),))), node.inputs)


_AFTER = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
_MACHINE: dict[str, Any] = {
    "kernel_type": ("LINEAR", "RBF", "SIGMOID"), "kernel_params": ([0.5, 0.1, 3.0],),
    "support_vectors": numbers(lambda shape: 3 * shape[1]),
}  # fmt: skip


# Tree ensembles: TreeEnsemble 5, TreeEnsembleClassifier and TreeEnsembleRegressor 1 to 5 (ai.onnx.ml).
#
# All versions become the same arrays, one per property of the branches, numbered tree by tree in the order of a
# traversal that takes the true branch first. A negative child is leaf -1 - child. A branch that tests for membership in
# a set becomes a chain of branches that test for equality.


MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
EQ = MODES.index("BRANCH_EQ")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@frozen
class Branch:
    """A branch in the file: it goes to `yes` if feature `mode` any of `splits`, or if the feature is NaN and `nan`."""

    feature: int
    mode: int
    splits: tuple[float, ...]
    nan: bool
    yes: Any
    no: Any


Leaf = list[tuple[int, float]]  # (target, weight)


@dataclass(slots=True)
class Forest:
    """The arrays of all trees."""

    features: int
    feature: list[int] = field(default_factory=list)
    mode: list[int] = field(default_factory=list)
    split: list[float] = field(default_factory=list)
    nan: list[bool] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def grow(self, root: Any, at: Callable[[Any], Branch | Leaf]) -> None:
        """Add the tree below a node; `at` returns a node's branch or leaf.

        Raises:
            Unsupported: a node has two parents, or a feature that the input does not have.
        """
        self.roots.append(0)
        seen = set()
        open_nodes: list[tuple[Any, list[tuple[list[int], int]]]] = [(root, [(self.roots, len(self.roots) - 1)])]
        while open_nodes:
            name, readers = open_nodes.pop()
            if name in seen:
                raise Unsupported(f"node {name} of a tree has two parents")
            seen.add(name)
            node = at(name)
            if isinstance(node, list):
                number = -1 - len(self.leaves)
                self.leaves.append(node)
            else:
                number = len(self.feature)
                numbers = self._add(node)
                open_nodes.append((node.no, [(self.no, numbers[-1])]))
                open_nodes.append((node.yes, [(self.yes, index) for index in numbers]))
            for children, index in readers:
                children[index] = number

    def _add(self, branch: Branch) -> list[int]:
        if not 0 <= branch.feature < self.features:
            raise Unsupported(f"a tree reads feature {branch.feature}, but the input has {self.features}")
        numbers = list(range(len(self.feature), len(self.feature) + len(branch.splits)))
        for index, split in zip(numbers, branch.splits, strict=True):
            self.feature.append(branch.feature)
            self.mode.append(branch.mode)
            self.split.append(split)
            self.nan.append(branch.nan)
            self.yes.append(0)
            self.no.append(index + 1)  # the next of a chain; the last one's is set below
        return numbers


def _summed(write: ClassicalNode, x: str, forest: Forest, targets: int, aggregate: str, base: list[float]) -> str:
    """Return the combined results of the trees, [examples, targets], as float32 (float64 where x is)."""
    dtype = write.dtype(x)
    if any(not 0 <= target < targets for leaf in forest.leaves for target, _ in leaf):
        raise Unsupported(f"a leaf's target is out of range; there are {targets}")
    if len(base) not in (0, 1, targets):
        raise Unsupported(f"it has {plural.count(len(base), 'base value')} for {targets} targets")
    index = np.int16 if max(len(forest.feature), len(forest.leaves), forest.features) < 2**15 else np.int32
    lists: dict[str, tuple[list[Any], Any]] = {
        "roots": (forest.roots, index), "feature": (forest.feature, index), "split": (forest.split, dtype),
        "yes": (forest.yes, index), "no": (forest.no, index),
    }  # fmt: skip
    if len(set(forest.mode)) > 1:
        lists["mode"] = (forest.mode, np.uint8)
    if any(forest.nan):
        lists["nan"] = (forest.nan, np.uint8)
    lists |= _leaves(forest, targets, dtype)
    inputs = {name: write.constant(data, kind) for name, (data, kind) in lists.items() if len(data)}
    output = write.value("trees", TensorType(DType.of(dtype), (write.kind(x).shape[0], targets)))
    attrs = TreeEnsemble(names=tuple(inputs), modes=tuple(sorted(set(forest.mode))), aggregate=aggregate)
    write.emit(attrs, op="TreeEnsemble", inputs=[x, *inputs.values()], outputs=[output])
    if aggregate == "AVERAGE":
        output = write("Div", output, len(forest.roots))
    return write("Add", output, write.constant(base, dtype)) if any(base) else output


def _leaves(forest: Forest, targets: int, dtype: Any) -> dict[str, tuple[list[Any], Any]]:
    """Return the arrays of the leaves: a leaf's weights begin at `first`, which is omitted if all have equal counts."""
    lists: dict[str, tuple[list[Any], Any]] = {}
    lengths = {len(leaf) for leaf in forest.leaves}
    pairs = [pair for leaf in forest.leaves for pair in leaf]
    lists["weight"] = ([weight for _, weight in pairs], dtype)
    if len(lengths) > 1:
        lists["first"] = (np.cumsum([0, *map(len, forest.leaves)]).tolist(), np.int32)
    if not all([target for target, _ in leaf] == list(range(targets)) for leaf in forest.leaves):
        lists["target"] = ([target for target, _ in pairs], np.uint8 if targets <= 256 else np.int32)
    return lists


def _forest(write: ClassicalNode, features: int, leaf_prefix: str, target_key: str) -> Forest:
    """Return the trees of the older operators, whose nodes are identified by tree and number."""
    attrs = write.attrs
    names = list(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"], strict=True))
    nodes = {name: index for index, name in enumerate(names)}
    weights: dict[tuple[int, int], Leaf] = {}
    entries = zip(attrs[f"{leaf_prefix}_treeids"], attrs[f"{leaf_prefix}_nodeids"], attrs[target_key], strict=True)
    for (tree, node, target), weight in zip(entries, write.numbers(f"{leaf_prefix}_weights"), strict=True):
        weights.setdefault((tree, node), []).append((target, weight))
    modes, values, nan = (
        attrs["nodes_modes"],
        write.numbers("nodes_values"),
        list(attrs.get("nodes_missing_value_tracks_true") or ()),
    )

    def at(name: tuple[int, int]) -> Branch | Leaf:
        if name not in nodes:
            raise Unsupported(f"tree {name[0]} has no node {name[1]}")
        index = nodes[name]
        if modes[index] == "LEAF":
            return sorted(weights.get(name, []))
        if modes[index] not in MODES[:6]:
            raise Unsupported(f"a branch has the unknown mode {modes[index]!r}")
        yes, no = ((name[0], attrs[key][index]) for key in ("nodes_truenodeids", "nodes_falsenodeids"))
        mode = MODES.index(modes[index])
        return Branch(attrs["nodes_featureids"][index], mode, (values[index],), bool(nan and nan[index]), yes, no)

    forest = Forest(features)
    roots: dict[int, tuple[int, int]] = {}
    for name in names:
        roots.setdefault(name[0], name)
    for tree in sorted(roots):
        forest.grow(roots[tree], at)
    return forest


def _checked(forest: Callable[..., Forest], *args: Any) -> Forest:
    try:
        return forest(*args)
    except (KeyError, IndexError, ValueError) as broken:
        raise Unsupported(f"its lists of nodes do not match ({broken})") from None


def _regressor(write: ClassicalNode) -> None:
    x, targets = write.matrix(keep_double=True), int(write.attrs.get("n_targets", 1))
    forest = _checked(_forest, write, write.kind(x).shape[1], "target", "target_ids")
    aggregate = write.word("aggregate_function", "SUM")
    if aggregate not in AGGREGATES:
        raise Unsupported(f"its aggregate_function {aggregate!r} is unknown")
    result = write.narrowed(_summed(write, x, forest, targets, aggregate, write.numbers("base_values")))
    write.set_output(transformed(write, result, write.word("post_transform")))


def _classifier(write: ClassicalNode) -> None:
    """TreeEnsembleClassifier; with weights of only one class, the other's score is derived from it."""
    labels = write.integer_labels("classlabels_int64s")
    x, transform = write.matrix(keep_double=True), write.word("post_transform")
    ids, weights, base = set(write.attrs["class_ids"]), write.numbers("class_weights"), write.numbers("base_values")
    forest = _checked(_forest, write, write.kind(x).shape[1], "class", "class_ids")
    if len(ids) > 1 or len(labels) > 2:
        scores = write.narrowed(_summed(write, x, forest, len(labels), "SUM", base))
        write.label(write("ArgMax", scores, axis=1, keepdims=0), labels)
        write.set_output(transformed(write, scores, transform), 1)
        return
    forest.leaves = [[(0, weight) for _, weight in leaf] for leaf in forest.leaves]
    score = write.narrowed(_summed(write, x, forest, 1, "SUM", base[-1:]))
    positive = min(weights, default=0.0) >= 0
    yes, no = (labels[1], labels[0]) if len(labels) == 2 else (1, 0)
    write.label_of_two(write("Greater", score, 0.5 if positive else 0), yes, no)
    if transform == "PROBIT":
        write.set_output(transformed(write, score, transform), 1)
        return
    other = write("Sub", 1, score) if positive else write("Neg", score)
    both = write("Concat", other, score, axis=1)
    write.set_output(transformed(write, both, transform if transform == "LOGISTIC" and not positive else "NONE"), 1)


def _ensemble(write: ClassicalNode) -> None:
    """TreeEnsemble 5: separate branches and leaves, with modes and splits as tensors."""
    x = write.matrix(keep_double=True)
    forest = _checked(_numbered_forest, write.attrs, write.kind(x).shape[1])
    aggregate = write.attrs.get("aggregate_function", 1)
    targets = int(write.attrs.get("n_targets", 1 + max(write.attrs["leaf_targetids"], default=0)))
    result = _summed(write, x, forest, targets, AGGREGATES[aggregate], [])
    after = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[write.attrs.get("post_transform", 0)]
    write.set_output(transformed(write, result, after))


def _numbered_forest(attrs: Mapping[str, Any], features: int) -> Forest:
    modes, splits, weights = (_list(attrs[key]) for key in ("nodes_modes", "nodes_splits", "leaf_weights"))
    nan = attrs.get("nodes_missing_value_tracks_true") or ()
    member = MODES.index("BRANCH_MEMBER")
    sets: list[list[float]] = [[]]
    if "membership_values" in attrs:  # all sets, each followed by a NaN
        for value in _list(attrs["membership_values"]):
            sets.append([]) if value != value else sets[-1].append(value)
    order = [index for index, mode in enumerate(modes) if mode == member]
    members = dict(zip(order, sets, strict=False))

    def at(name: tuple[bool, int]) -> Branch | Leaf:
        is_leaf, index = name
        if is_leaf:
            return [(attrs["leaf_targetids"][index], weights[index])]
        mode = modes[index]
        tests: tuple[float, ...] = (splits[index],)
        if mode == member:  # an empty set equals nothing, and neither does NaN
            mode, tests = EQ, tuple(members[index]) or (float("nan"),)
        if not 0 <= mode < member:
            raise Unsupported(f"a branch has the unknown mode {mode}")
        yes = (bool(attrs["nodes_trueleafs"][index]), attrs["nodes_truenodeids"][index])
        no = (bool(attrs["nodes_falseleafs"][index]), attrs["nodes_falsenodeids"][index])
        return Branch(attrs["nodes_featureids"][index], mode, tests, bool(nan and nan[index]), yes, no)

    forest = Forest(features)
    for root in attrs["tree_roots"]:
        both = attrs["nodes_trueleafs"][root] and attrs["nodes_falseleafs"][root]
        child = attrs["nodes_truenodeids"][root]
        alone = both and child == attrs["nodes_falsenodeids"][root]
        forest.grow((True, child) if alone else (False, root), at)
    return forest


COMPARISONS = ("<=", "<", ">=", ">", "==", "!=")


class TreeEnsemble(Attributes):
    """Trees as arrays.

    names: the names of the operands after the first.
    modes: the comparisons used, by their numbers in `COMPARISONS`.
    aggregate: how the leaves' weights are combined.
    """

    names: tuple[str, ...]
    modes: tuple[int, ...]
    aggregate: str


def _tree_ensemble(ctx: Lowering, node: Node) -> None:
    x, *arrays = node.inputs
    names = TreeEnsemble.of(node).names
    inputs = {"input": x, **dict(zip(names, arrays, strict=True))}
    (rows, features), (_, targets) = ctx.types[x].shape, ctx.types[node.outputs[0]].shape
    leaves = ctx.types[inputs["weight"]].count if "weight" in inputs else 0
    attrs = TreeEnsemble.of(node)
    values = {
        "rows": rows, "features": features, "targets": targets, "operands": names, "aggregate": attrs.aggregate,
        "trees": ctx.types[inputs["roots"]].count, "comparisons": tuple((n, COMPARISONS[n]) for n in attrs.modes),
        "per_leaf": _per_leaf(ctx, inputs, leaves),
    }  # fmt: skip
    template_node(ctx, node, "tree_ensemble", inputs, {"output": node.outputs[0]}, values)


def _per_leaf(ctx: Lowering, inputs: dict[str, str], weights: int) -> int:
    """Return the number of weights of each leaf; 0 if it differs, or there are none."""
    if "first" in inputs or not weights:
        return 0
    children = [ctx.constants[inputs[name]] for name in ("roots", "yes", "no") if name in inputs]
    return weights // max(-int(data.min(initial=0)) for data in children)


_BRANCHES: dict[str, Any] = {
    "nodes_treeids": ([0] * 5,), "nodes_nodeids": ([0, 1, 2, 3, 4],), "nodes_featureids": ([1, 0, 0, 0, 0],),
    "nodes_modes": (["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],), "nodes_truenodeids": ([1, 0, 3, 0, 0],),
    "nodes_values": ([0.1, 0.0, -0.3, 0.0, 0.0],), "nodes_falsenodeids": ([2, 0, 4, 0, 0],),
}  # fmt: skip
_ENSEMBLE: dict[str, Any] = {
    "tree_roots": ([0],), "nodes_featureids": ([1, 0],), "nodes_truenodeids": ([0, 1],), "nodes_trueleafs": ([1, 1],),
    "nodes_falsenodeids": ([1, 2],), "nodes_falseleafs": ([0, 1],), "leaf_targetids": ([0, 1, 0],), "n_targets": (2,),
    "nodes_modes": (numpy_helper.from_array(np.array([0, 3], np.uint8)),),
    "nodes_splits": (numpy_helper.from_array(np.array([0.1, -0.3], np.float32)),),
    "leaf_weights": (numpy_helper.from_array(np.array([1.5, -2.0, 0.3], np.float32)),),
}  # fmt: skip


def _leaves_of(kind: str, ids: str) -> dict[str, Any]:
    return {
        f"{kind}_treeids": ([0, 0, 0],), f"{kind}_nodeids": ([1, 3, 4],), f"{kind}_{ids}": ([0, 1, 2],),
        f"{kind}_weights": ([1.5, 2.0, 0.25],), **_BRANCHES,
    }  # fmt: skip


OPERATORS = (
    classical(
        "LinearRegressor", _linear_regressor,
        case(rank=2, coefficients=numbers(lambda shape: shape[1]), intercepts=([0.5],)),
    ),
    classical(
        "LinearClassifier", _linear_classifier,
        case(
            rank=2, outputs=2, coefficients=numbers(lambda shape: 3 * shape[1]), intercepts=([0.5, 0.1, -0.2],),
            classlabels_ints=([3, 1, 2],), post_transform=_AFTER,
        ),
    ),
    classical("Scaler", _scaler, case(rank=2, offset=([0.1],), scale=([2.0],))),
    classical("Normalizer", _normalizer, case(rank=2, norm=("MAX", "L1", "L2"))),
    classical(
        "LabelEncoder", _label_encoder, case(dtype=np.int64, keys_int64s=([1, 5, 3],), values_int64s=([7, -2, 9],)),
        _look_up,
    ),
    classical("OneHotEncoder", _one_hot, case(dtype=np.int64, cats_int64s=([1, 5, 3],))),
    classical(
        "Imputer", _imputer, case(rank=2, imputed_value_floats=([1.5],), replaced_value_float=(0.0, float("nan"))),
    ),
    classical(
        "FeatureVectorizer", _feature_vectorizer, case(LIKE, rank=2, inputdimensions=lambda draw, x: [x.shape[1]] * 2),
    ),
    classical("ArrayFeatureExtractor", _array_feature_extractor, case(constant([1, 0, 1]), rank=2)),
    classical("ZipMap", _zip_map, None),  # onnxruntime's result is a list of maps
    classical(
        "SVMRegressor", _svm_regressor,
        case(rank=2, n_supports=(3,), coefficients=([1.0, -1.0, 0.5],), rho=([0.2],), **_MACHINE),
    ),
    classical(
        "SVMClassifier", _svm_classifier,
        case(
            rank=2, outputs=2, vectors_per_class=([2, 1],), coefficients=([1.0, 0.5, -1.0],), rho=([0.2],),
            classlabels_ints=([0, 1],), **_MACHINE,
        ),
    ),
    Operator("PairwiseCoupling", domain=OWN, lower=_COUPLING),
    Operator("CarefulProduct", domain=OWN, lower=_careful_product),
    classical("TreeEnsemble", _ensemble, case(rank=2, **_ENSEMBLE), _tree_ensemble, TreeEnsemble),
    classical(
        "TreeEnsembleClassifier", _classifier,
        case(rank=2, outputs=2, classlabels_int64s=([4, 0, 2],), **_leaves_of("class", "ids")),
    ),
    classical("TreeEnsembleRegressor", _regressor, case(rank=2, n_targets=(3,), **_leaves_of("target", "ids"))),
)  # fmt: skip
