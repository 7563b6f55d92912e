"""Einsum 12 with any number of operands, as one reduction over the letters that are not in the output."""

import functools
import math
import re
from collections.abc import Sequence

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import Reduction, axis, call, const, load
from mtool.compiler.ir.types import DType
from mtool.compiler.operators.folding import Folded, Folding
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import Unsupported

MAX_INPUTS = 32  # operands


class Einsum(Attributes):
    """The letters of the operands' and the result's dimensions; those of an ellipsis are "0", "1", … from the end."""

    terms: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


def _einsum(ctx: Lowering, node: Node) -> None:
    if len(node.inputs) > MAX_INPUTS:
        raise ModelError(
            f"Einsum {node.name!r} has {plural.count(len(node.inputs), 'operand')}; at most {MAX_INPUTS} are supported",
            hint="split it into several",
        )
    attrs, dtype = Einsum.of(node), ctx.types[node.outputs[0]].dtype
    sizes: dict[str, int] = {}
    for term, value in zip(attrs.terms, node.inputs, strict=True):
        for letter, size in zip(term, ctx.types[value].shape, strict=True):
            sizes[letter] = max(sizes.get(letter, 1), size)
    summed = [letter for letter in sizes if letter not in attrs.result]
    dims = {letter: dim for dim, letter in enumerate([*attrs.result, *summed])}
    factors = []
    for number, (term, value) in enumerate(zip(attrs.terms, node.inputs, strict=True)):
        shape = ctx.types[value].shape
        index = (const(0, DType.INT32) if n == 1 else axis(dims[letter]) for letter, n in zip(term, shape, strict=True))
        factors.append(load(number, dtype, tuple(index)))
    product = functools.reduce(lambda a, b: call("mul", a, b), factors)
    if summed:
        axes = tuple((dims[letter], sizes[letter]) for letter in summed)
        product = Expr("reduce", dtype, (product,), Reduction("add", axes))
    ctx.loop(node, product, node.inputs)


def _letters(equation: str, ranks: Sequence[int]) -> Einsum:
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = []
    for term, rank in zip(left.split(","), ranks, strict=True):
        spread = [str(number) for number in reversed(range(rank - len(term.replace("...", ""))))]
        before, dots, after = term.partition("...")
        terms.append((*before, *(spread if dots else []), *after))
    every = [letter for term in terms for letter in term]
    spread_all = sorted({letter for letter in every if letter.isdigit()}, key=int, reverse=True)
    if not arrow:
        once = sorted({letter for letter in every if every.count(letter) == 1 and letter.isalpha()})
        return Einsum(terms=tuple(terms), result=(*spread_all, *once))
    before, mark, after = right.partition("...")
    return Einsum(terms=tuple(terms), result=(*before, *(spread_all if mark else []), *after))


_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def _check_equation(node: OnnxNode) -> None:
    equation, shapes = node.attrs["equation"].replace(" ", ""), node.shapes
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes) or not all(_TERM.fullmatch(term) for term in (*terms, right)):
        raise Unsupported(f"its equation {equation!r} does not match its {plural.count(len(shapes), 'input')}")
    for term, shape in zip(terms, shapes, strict=True):
        count = len(term.replace("...", ""))
        if count != len(shape) and not ("..." in term and count < len(shape)):
            raise Unsupported(f"its equation {equation!r} has {term!r} for an input of {len(shape)} dimensions")
    sizes: dict[str, int] = {}
    for letters, shape in zip(_letters(equation, [*map(len, shapes)]).terms, shapes, strict=True):
        for letter, size in zip(letters, shape, strict=True):
            previous = sizes.setdefault(letter, size)
            if 1 not in (previous, size) and previous != size:
                raise Unsupported(f"its equation {equation!r} has {letter!r} for two sizes, {previous} and {size}")
            sizes[letter] = max(previous, size)
    output = right.replace("...", "")
    if arrow and (len(set(output)) != len(output) or not set(output) <= set(sizes)):
        raise Unsupported(f"its equation {equation!r} has the invalid output {right!r}")


def _form(node: OnnxNode) -> None:
    node.emit(_letters(node.attrs["equation"], [*map(len, node.shapes)]))


def _cost(node: Folded) -> int:
    """Return the number of products: each letter is a dimension."""
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
    Operator(
        "Einsum", cases=_cases, attributes=Einsum, canonical=_form, check=_check_equation, folding=Folding(_cost),
        lower=_einsum,
    ),
)  # fmt: skip
