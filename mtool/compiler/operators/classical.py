"""Operators of ai.onnx.ml that are not made of others: the traversal of tree ensembles, libsvm's coupling of pairwise
probabilities, and the table of LabelEncoder 4.
"""

from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import Reduction, axis, call, choose, identity, load, number
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.templates import template_node

COMPARISONS = ("<=", "<", ">=", ">", "==", "!=")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnsemble(Attributes):
    """Trees as arrays.

    names: what the operands after the first are.
    modes: the comparisons that occur, by their numbers in `COMPARISONS`.
    aggregate: what becomes of the leaves' weights.
    """

    names: tuple[str, ...]
    modes: tuple[int, ...]
    aggregate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEnsembleValues(Values):
    """operands: the C names of the arrays; comparisons: number and C of those that occur.

    per_leaf: the weights of each leaf; 0: that differs, or there are none.
    """

    rows: int
    features: int
    targets: int
    operands: tuple[str, ...]
    aggregate: str
    trees: int
    comparisons: tuple[tuple[int, str], ...]
    per_leaf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseCouplingValues(Values):
    """iterations: the most that are made."""

    rows: int
    classes: int
    iterations: int


def _tree_ensemble(ctx: Lowering, node: Node) -> None:
    x, *arrays = node.inputs
    names = TreeEnsemble.of(node).names
    inputs = {"input": x, **dict(zip(names, arrays, strict=True))}
    (rows, features), (_, targets) = ctx.types[x].shape, ctx.types[node.outputs[0]].shape
    leaves = ctx.types[inputs["weight"]].count if "weight" in inputs else 0
    attrs = TreeEnsemble.of(node)
    values = TreeEnsembleValues(
        rows=rows, features=features, targets=targets, operands=names, aggregate=attrs.aggregate,
        trees=ctx.types[inputs["roots"]].count, comparisons=tuple((n, COMPARISONS[n]) for n in attrs.modes),
        per_leaf=_per_leaf(ctx, inputs, leaves),
    )  # fmt: skip
    template_node(ctx, node, "tree_ensemble", inputs, {"output": node.outputs[0]}, values)


def _per_leaf(ctx: Lowering, inputs: dict[str, str], weights: int) -> int:
    """Return how many weights each leaf has; 0: that differs, or there are none."""
    if "first" in inputs or not weights:
        return 0
    children = [ctx.constants[inputs[name]] for name in ("roots", "yes", "no") if name in inputs]
    return weights // max(-int(data.min(initial=0)) for data in children)


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


def _label_encoder(ctx: Lowering, node: Node) -> None:
    """LabelEncoder: the index of the key that is equal, or one behind the last, into the table of values."""
    x, keys, values = node.inputs
    kind, count = ctx.types[x], ctx.types[keys].count
    rank = len(kind.shape)
    element, key = load(0, kind.dtype, identity(rank)), load(1, kind.dtype, (axis(rank),))
    equal = call("equal", element, key, dtype=DType.BOOL)
    if kind.dtype.is_float:
        both = call("and", *(call("isnan", side, dtype=DType.BOOL) for side in (element, key)))
        equal = call("or", equal, both)
    index = choose(equal, axis(rank), number(count))
    found = Expr("reduce", DType.INT32, (index,), Reduction("minimum", ((rank, count),)))
    at = ctx.value(f"{node.outputs[0]}.place", DType.INT32, kind.shape)
    ctx.loop(node, found, [x, keys], at)
    chosen = load(1, ctx.types[values].dtype, (load(0, DType.INT32, identity(rank)),))
    ctx.loop(node, chosen, [at, values])


LOWERINGS: dict[str, Operator] = {
    "TreeEnsemble": Operator(_tree_ensemble, TreeEnsemble),
    "PairwiseCoupling": Operator(_pairwise_coupling),
    "CarefulProduct": Operator(_careful_product),
    "LabelEncoder": Operator(_label_encoder),
}
