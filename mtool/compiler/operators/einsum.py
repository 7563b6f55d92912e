"""Einsum 12 of any number of operands, as one reduction over the letters that the output lacks."""

import math
import re

from mtool.base.errors import ModelError
from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import Reduction, axis, call, const, load
from mtool.compiler.ir.types import DType
from mtool.compiler.operators.folding import Folded, Folding
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import Unsupported

MOST = 32  # operands


class Einsum(Attributes):
    """The letters of the operands' dimensions and of the result's: "ij,jk->ik"."""

    equation: str


def _einsum(ctx: Lowering, node: Node) -> None:
    if len(node.inputs) > MOST:
        raise ModelError(
            f"Einsum {node.name!r} has {len(node.inputs)} operands: mtool computes up to {MOST}",
            hint="write it as several",
        )
    terms, result = _letters(Einsum.of(node).equation.replace(" ", ""), [len(ctx.types[v].shape) for v in node.inputs])
    dtype = ctx.types[node.outputs[0]].dtype
    sizes: dict[str, int] = {}
    for term, value in zip(terms, node.inputs, strict=True):
        for letter, size in zip(term, ctx.types[value].shape, strict=True):
            if 1 != size != sizes.get(letter, size) != 1:
                raise ModelError(
                    f"Einsum {node.name!r} has operands that differ in {letter!r}",
                    details=[Einsum.of(node).equation],
                )
            sizes[letter] = max(sizes.get(letter, 1), size)
    if len({*result}) < len(result):
        raise ModelError(f"Einsum {node.name!r} has a letter twice in its output", details=[Einsum.of(node).equation])
    summed = [letter for letter in sizes if letter not in result]
    dims = {letter: dim for dim, letter in enumerate([*result, *summed])}
    product: Expr | None = None
    for number, (term, value) in enumerate(zip(terms, node.inputs, strict=True)):
        index = tuple(
            const(0, DType.INT32) if size == 1 else axis(dims[letter])
            for letter, size in zip(term, ctx.types[value].shape, strict=True)
        )
        element = load(number, dtype, index)
        product = element if product is None else call("mul", product, element)
    assert product is not None
    if summed:
        axes = tuple((dims[letter], sizes[letter]) for letter in summed)
        product = Expr("reduce", dtype, (product,), Reduction("add", axes))
    ctx.loop(node, product, node.inputs)


def _letters(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Return the letters of each operand and of the output; those of an ellipsis are "0", "1", …, the last is "0"."""
    left, arrow, right = equation.partition("->")
    terms = []
    for term, rank in zip(left.split(","), ranks, strict=True):
        spread = [str(number) for number in reversed(range(rank - len(term.replace("...", ""))))]
        before, dots, after = term.partition("...")
        terms.append([*before, *(spread if dots else []), *after])
    every = [letter for term in terms for letter in term]
    spread_all = sorted({letter for letter in every if letter.isdigit()}, key=int, reverse=True)
    if arrow:
        before, mark, after = right.partition("...")
        return terms, [*before, *(spread_all if mark else []), *after]
    return terms, [*spread_all, *sorted({letter for letter in every if every.count(letter) == 1 and letter.isalpha()})]


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def _check_equation(node: OnnxNode) -> None:
    equation, shapes = node.attrs["equation"].replace(" ", ""), node.shapes
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes) or not all(_TERM.fullmatch(term) for term in (*terms, right)):
        raise Unsupported(f"its equation {equation!r} is not one of {len(shapes)} inputs")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        letters = term.replace("...", "")
        if len(letters) != len(shape) and not ("..." in term and len(letters) < len(shape)):
            raise Unsupported(f"its equation {equation!r} has {term!r} for an input of {len(shape)} dimensions")
        before = len(term.partition("...")[0])
        axes = [*range(before), *range(before - len(letters), 0)]
        for letter, dim in zip(letters, axes, strict=True):
            known = sizes.setdefault(letter, shape[dim])
            if 1 not in (known, shape[dim]) and known != shape[dim]:
                raise Unsupported(
                    f"its equation {equation!r} has {letter!r} for dimensions of {known} and {shape[dim]}"
                )
            sizes[letter] = max(known, shape[dim])
    made = right.replace("...", "")
    if arrow and (len(set(made)) != len(made) or not set(made) <= set(sizes)):
        raise Unsupported(f"its equation {equation!r} makes {right!r}")


def _cost(node: Folded) -> int:
    """Each letter is a dimension of what is multiplied."""
    equation, sizes = node.attrs.get("equation", ""), dict[str, int]()
    for term, shape in zip(equation.replace(" ", "").partition("->")[0].split(","), node.shapes, strict=False):
        if len(term) != len(shape) or "." in term:
            return node.every + math.prod(max(size, 1) for other in node.shapes for size in other)
        sizes |= {letter: max(size, sizes.get(letter, 1)) for letter, size in zip(term, shape, strict=True)}
    return node.every + math.prod(sizes.values())


def _cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=draw.rng.choice((2, 3)))
    letters = "ijk"[: value.rank]
    equations = (f"{letters},{letters[-1]}m->{letters[:-1]}m", f"{letters}->{letters[::-1]}", f"{letters}->")
    equation = draw.rng.choice(equations)
    more = [draw.normal((value.shape[-1], 4))] if "," in equation else []
    return Case([value.name, *more], {"equation": equation})


OPERATORS = (
    Operator("Einsum", cases=_cases, attributes=Einsum, check=_check_equation, folding=Folding(_cost), lower=_einsum),
)
