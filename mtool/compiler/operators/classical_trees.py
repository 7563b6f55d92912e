"""Tree ensembles: TreeEnsemble 5, TreeEnsembleClassifier and TreeEnsembleRegressor 1 to 5 (ai.onnx.ml).

Whatever the attributes are spelt like, what is left is one array an aspect of the branches, renumbered tree by tree
in the order of a traversal that takes the true branch first. A child below zero is leaf -1 - child. A branch that
tests for membership in a set is a chain of branches that test for equality.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import numpy_helper

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.operators.classical import ClassicalNode, classical, transformed
from mtool.compiler.operators.lowering import Lowering, template_node
from mtool.compiler.operators.operator import case
from mtool.compiler.operators.problems import Unsupported

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
EQ = MODES.index("BRANCH_EQ")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch as a file has it: it goes to `yes` if feature `mode` any of `splits`, or if that is NaN and `nan`."""

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
        """Add the tree below a node; `at` gives what a node is.

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
            found = at(name)
            if isinstance(found, list):
                number = -1 - len(self.leaves)
                self.leaves.append(found)
            else:
                number = len(self.feature)
                numbers = self._add(found)
                open_nodes.append((found.no, [(self.no, numbers[-1])]))
                open_nodes.append((found.yes, [(self.yes, index) for index in numbers]))
            for children, index in readers:
                children[index] = number

    def _add(self, branch: Branch) -> list[int]:
        if not 0 <= branch.feature < self.features:
            raise Unsupported(f"a tree reads feature {branch.feature} of {self.features}")
        numbers = list(range(len(self.feature), len(self.feature) + len(branch.splits)))
        for index, split in zip(numbers, branch.splits, strict=True):
            self.feature.append(branch.feature)
            self.mode.append(branch.mode)
            self.split.append(split)
            self.nan.append(branch.nan)
            self.yes.append(0)
            self.no.append(index + 1)  # the next of a chain; the last one's is set when it is known
        return numbers


def _summed(write: ClassicalNode, x: str, forest: Forest, targets: int, how: str, base: list[float]) -> str:
    """Return what the trees give together, [examples, targets], as float32 (float64 where x is)."""
    state, dtype = write.state, write.dtype(x)
    if any(not 0 <= target < targets for leaf in forest.leaves for target, _ in leaf):
        raise Unsupported(f"a leaf has a target that is not one of {targets}")
    if len(base) not in (0, 1, targets):
        raise Unsupported(f"it has {len(base)} base values for {targets} targets")
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
    output = state.unique(f"{write.origin}/trees")
    state.types[output] = TensorType(DType.of(dtype), (write.kind(x).shape[0], targets))
    attrs = TreeEnsemble(names=tuple(inputs), modes=tuple(sorted(set(forest.mode))), aggregate=how)
    state.emit("TreeEnsemble", write.origin, [x, *inputs.values()], [output], attrs)
    if how == "AVERAGE":
        output = write("Div", output, write.constant(len(forest.roots), dtype))
    return write("Add", output, write.constant(base, dtype)) if any(base) else output


def _leaves(forest: Forest, targets: int, dtype: Any) -> dict[str, tuple[list[Any], Any]]:
    """Return the arrays of the leaves: each leaf's weights begin at `first`, which is left out if all are as long."""
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
    """Return the trees of the older operators, whose nodes go by tree and number."""
    attrs = write.attrs
    names = list(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"], strict=True))
    nodes = {name: index for index, name in enumerate(names)}
    weights: dict[tuple[int, int], Leaf] = {}
    entries = zip(attrs[f"{leaf_prefix}_treeids"], attrs[f"{leaf_prefix}_nodeids"], attrs[target_key], strict=True)
    for (tree, node, target), weight in zip(entries, write.numbers(f"{leaf_prefix}_weights"), strict=True):
        weights.setdefault((tree, node), []).append((target, weight))
    modes = [mode.decode() if isinstance(mode, bytes) else mode for mode in attrs["nodes_modes"]]
    values, nan = write.numbers("nodes_values"), list(attrs.get("nodes_missing_value_tracks_true") or ())

    def at(name: tuple[int, int]) -> Branch | Leaf:
        if name not in nodes:
            raise Unsupported(f"tree {name[0]} has no node {name[1]}")
        index = nodes[name]
        if modes[index] == "LEAF":
            return sorted(weights.get(name, []))
        if modes[index] not in MODES[:6]:
            raise Unsupported(f"a branch of mode {modes[index]!r} is not known")
        yes, no = ((name[0], attrs[key][index]) for key in ("nodes_truenodeids", "nodes_falsenodeids"))
        missing = bool(nan[index]) if nan else False
        mode = MODES.index(modes[index])
        return Branch(attrs["nodes_featureids"][index], mode, (values[index],), missing, yes, no)

    forest = Forest(features)
    roots: dict[int, tuple[int, int]] = {}
    for name in names:
        roots.setdefault(name[0], name)
    for tree in sorted(roots):
        forest.grow(roots[tree], at)
    return forest


def _checked(write: ClassicalNode, features: int, leaf_prefix: str, target_key: str) -> Forest:
    try:
        return _forest(write, features, leaf_prefix, target_key)
    except (KeyError, IndexError, ValueError) as broken:
        raise Unsupported(f"its lists of nodes do not fit each other ({broken})") from None


def _regressor(write: ClassicalNode) -> None:
    x, targets = write.matrix(keep_double=True), int(write.attrs.get("n_targets", 1))
    forest = _checked(write, write.kind(x).shape[1], "target", "target_ids")
    how = write.word("aggregate_function", "SUM")
    if how not in AGGREGATES:
        raise Unsupported(f"aggregate_function {how!r} is not known")
    result = _summed(write, x, forest, targets, how, write.numbers("base_values"))
    if write.dtype(result) != np.float32:
        result = write("Cast", result, to=1)
    write.give(transformed(write, result, write.word("post_transform")))


def _classifier(write: ClassicalNode) -> None:
    """TreeEnsembleClassifier: with the weights of one class only, the other's score follows from it."""
    labels = write.integer_labels("classlabels_int64s", "classlabels_strings")
    x, how = write.matrix(keep_double=True), write.word("post_transform")
    ids, weights, base = set(write.attrs["class_ids"]), write.numbers("class_weights"), write.numbers("base_values")
    forest = _checked(write, write.kind(x).shape[1], "class", "class_ids")
    if len(ids) > 1 or len(labels) > 2:
        scores = _summed(write, x, forest, len(labels), "SUM", base)
        if write.dtype(scores) != np.float32:
            scores = write("Cast", scores, to=1)
        write.label(write("ArgMax", scores, axis=1, keepdims=0), labels)
        write.give(transformed(write, scores, how), 1)
        return
    forest.leaves = [[(0, weight) for _, weight in leaf] for leaf in forest.leaves]
    score = _summed(write, x, forest, 1, "SUM", base[-1:])
    if write.dtype(score) != np.float32:
        score = write("Cast", score, to=1)
    positive = min(weights, default=0.0) >= 0
    yes, no = (labels[1], labels[0]) if len(labels) == 2 else (1, 0)
    above = write("Greater", score, write.constant(0.5 if positive else 0))
    chosen = write("Where", above, write.constant(yes, np.int64), write.constant(no, np.int64))
    write.give(write("Squeeze", chosen, write.constant([1], np.int64)))
    if how == "PROBIT":
        write.give(transformed(write, score, how), 1)
        return
    other = write("Sub", write.constant(1), score) if positive else write("Neg", score)
    both = write("Concat", other, score, axis=1)
    write.give(transformed(write, both, how if how == "LOGISTIC" and not positive else "NONE"), 1)


def _ensemble(write: ClassicalNode) -> None:
    """TreeEnsemble 5: branches and leaves apart, modes and splits as tensors."""
    x = write.matrix(keep_double=True)
    try:
        forest = _numbered_forest(write.attrs, write.kind(x).shape[1])
    except (KeyError, IndexError, ValueError) as broken:
        raise Unsupported(f"its lists of nodes do not fit each other ({broken})") from None
    how = write.attrs.get("aggregate_function", 1)
    targets = int(write.attrs.get("n_targets", 1 + max(write.attrs["leaf_targetids"], default=0)))
    result = _summed(write, x, forest, targets, AGGREGATES[how], [])
    after = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[write.attrs.get("post_transform", 0)]
    write.give(transformed(write, result, after))


def _numbered_forest(attrs: Mapping[str, Any], features: int) -> Forest:
    modes = numpy_helper.to_array(attrs["nodes_modes"]).reshape(-1).tolist()
    splits = numpy_helper.to_array(attrs["nodes_splits"]).reshape(-1).tolist()
    weights = numpy_helper.to_array(attrs["leaf_weights"]).reshape(-1).tolist()
    nan = list(attrs.get("nodes_missing_value_tracks_true") or ())
    member = MODES.index("BRANCH_MEMBER")
    sets: list[list[float]] = [[]]
    if "membership_values" in attrs:  # the sets one after another, a NaN behind each
        for value in numpy_helper.to_array(attrs["membership_values"]).reshape(-1).tolist():
            sets.append([]) if value != value else sets[-1].append(value)
    order = [index for index, mode in enumerate(modes) if mode == member]
    members = dict(zip(order, sets, strict=False))

    def at(name: tuple[bool, int]) -> Branch | Leaf:
        is_leaf, index = name
        if is_leaf:
            return [(attrs["leaf_targetids"][index], weights[index])]
        mode = modes[index]
        tests: tuple[float, ...] = (splits[index],)
        if mode == member:  # an empty set is equal to nothing, as NaN is
            mode, tests = EQ, tuple(members[index]) or (float("nan"),)
        if not 0 <= mode < member:
            raise Unsupported(f"a branch of mode {mode} is not known")
        yes = (bool(attrs["nodes_trueleafs"][index]), attrs["nodes_truenodeids"][index])
        no = (bool(attrs["nodes_falseleafs"][index]), attrs["nodes_falsenodeids"][index])
        return Branch(attrs["nodes_featureids"][index], mode, tests, bool(nan[index]) if nan else False, yes, no)

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

    names: what the operands after the first are.
    modes: the comparisons that occur, by their numbers in `COMPARISONS`.
    aggregate: what becomes of the leaves' weights.
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
    """Return how many weights each leaf has; 0: that differs, or there are none."""
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
    classical("TreeEnsemble", _ensemble, case(rank=2, **_ENSEMBLE), _tree_ensemble, TreeEnsemble),
    classical(
        "TreeEnsembleClassifier", _classifier,
        case(rank=2, outputs=2, classlabels_int64s=([4, 0, 2],), **_leaves_of("class", "ids")),
    ),
    classical("TreeEnsembleRegressor", _regressor, case(rank=2, n_targets=(3,), **_leaves_of("target", "ids"))),
)  # fmt: skip
