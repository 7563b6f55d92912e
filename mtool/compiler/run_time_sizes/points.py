"""Points: values of the run-time sizes at which a model is imported, brought to kernels, and its C compared."""

import itertools
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtool.base.errors import ModelError
from mtool.base.escaping import argument
from mtool.base.formulas import Point
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.parametric import DifferError

FEW = 4  # below it, other kernels may be chosen
STRUCTURE = 5
"""Values of a size at which a graph is brought to kernels."""
MORE_STRUCTURE = 18
"""The same, if those are too few to tell which quotient it is that numbers follow."""
_SMALL = (1, 2, 3, 5)  # at which the model is imported besides
_BETWEEN = 3  # sizes between the smallest and those near the largest, at which it is imported too
_DENSE = 64  # sizes at which a model is imported that follows no formula at the few
_SMALLEST = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64)  # that may be the least that a model takes
_EMITTED = (*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 80)  # for which C is compared besides
_EMITTED_BEYOND = 19  # whatever the largest size is


def with_size(point: Point, index: int, size: int) -> Point:
    """Return a point with another value of one of the sizes."""
    return (*point[:index], size, *point[index + 1 :])


def is_within(point: Point, top: Point) -> bool:
    """Return whether no size is larger than the largest that is asked for."""
    return all(size <= most for size, most in zip(point, top, strict=True))


def smallest_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes that are tried, in their order, to find the smallest that a model takes."""
    return (*(size for size in _SMALLEST if size < most), most)


def small_points(top: Point, least: Point) -> Iterator[Point]:
    """Yield points at which the model is imported besides, to hold its formulas against: each size on its own."""
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        between = [low + (most - low) * part // (2 * _BETWEEN + 1) for part in range(1, _BETWEEN + 1)]
        for size in dict.fromkeys((*_SMALL, *between)):
            if low <= size < most:
                yield with_size(top, index, size)


def dense_points(top: Point, least: Point) -> Iterator[Point]:
    """Yield every size on its own, or many of them: at those a formula that is no simple one has to be right."""
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        for part in range(min(most - low, _DENSE)):
            yield with_size(top, index, low + part * (most - low) // min(most - low, _DENSE))


def structural_points(top: Point, least: Point, taken: Collection[int], count: int = STRUCTURE) -> Iterator[Point]:
    """Yield points at which the graph is brought to kernels: `count` of each size on its own, then several together."""
    values = [_values(most, low, taken)[:count] for most, low in zip(top, least, strict=True)]
    for index, sizes in enumerate(values):
        for size in sizes:
            yield with_size(top, index, size)
    if len(top) > 1:
        yield from itertools.product(*(sizes[:3] for sizes in values))


def _values(most: int, least: int, taken: Collection[int]) -> list[int]:
    """Return values of a size at which a graph's structure is looked at.

    They are near the largest, as passes may choose other kernels for a few rows; none is the size of another
    dimension, with which it could be mistaken.
    """
    parts = [most - 1, most - 2, most // 2 + 1, most * 2 // 3, most * 3 // 4, most - 3, most // 2 - 1, most // 3]
    below = [size for size in dict.fromkeys([*parts, *range(most - 4, max(most - 40, 1), -1)]) if least <= size < most]
    beyond = [most + step for step in (1, 2, 3, 5, 7, 9, 10, 11, 13)]
    good = [size for size in (*below, *beyond) if size not in taken and size >= FEW]
    return good


def emitted_points(graphs: Collection[Point], least: Point, top: Point) -> list[Point]:
    """Return the points for which C is compared, the largest first."""
    points = dict.fromkeys([top, *graphs])
    base = tuple(max(most, FEW) for most in top)
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        first = low if len(top) == 1 else max(low, 2)
        small = [size for size in _EMITTED if first <= size <= max(most, _EMITTED_BEYOND)]
        points |= dict.fromkeys(with_size(base, index, size) for size in small)
    if len(top) > 1:  # every remainder of one size with every one of the other
        firsts = [max(FEW, low + 1) for low in least]
        points |= dict.fromkeys(itertools.product(*(range(first, first + FEW) for first in firsts)))
    return list(points)


# Why a model has no form for all sizes, as an error that names the operator or the tensor.


@dataclass(frozen=True, slots=True)
class Refusals:
    """The errors for a model of some run-time sizes."""

    file: str
    names: tuple[str, ...]

    def error(self, reason: str, details: Sequence[str]) -> ModelError:
        """Return the error for a model that has no form for all sizes."""
        return ModelError(
            f"{self.file} can't be compiled for sizes known at run time ({', '.join(self.names)}): {reason}",
            details=details,
            hint="give such a dimension a size: " + " ".join(f"--dim {argument(name)}=N" for name in self.names),
        )

    def text_of(self, point: Point) -> str:
        """Return the values of the sizes as text."""
        return ", ".join(f"{name} = {size}" for name, size in zip(self.names, point, strict=True))

    def other_structure(self, graphs: Sequence[Graph], points: Sequence[Point], found: DifferError) -> ModelError:
        """Return the error for graphs that are not of one structure: which operator is not the same."""
        first = graphs[0]
        for graph, point in zip(graphs[1:], points[1:], strict=True):
            for node, other in zip(first.nodes, graph.nodes, strict=False):
                if outline(node) != outline(other):
                    return self.error(
                        "its operators are not the same at all sizes",
                        [
                            f"{self.text_of(points[0])}: {node.op} {node.name}",
                            f"{self.text_of(point)}: {other.op} {other.name}",
                        ],
                    )
        return self.error("an operator depends on its sizes in a way that no formula tells", [str(found)])


def outline(node: Node) -> tuple[object, ...]:
    """Return what of an operator has to be the same at all sizes."""
    return node.op, node.inputs, node.outputs, type(node.attrs)


def operator_of(graph: Graph, where: str) -> list[str]:
    """Return the operator that a difference is in, as far as that can be told from where it was found."""
    number = re.match(r"nodes\[(\d+)\]", where)
    readers = [
        node
        for index, node in enumerate(graph.nodes)
        if (number and index == int(number[1]))
        or any(where.startswith((f"constants {value}:", f"types {value}.")) for value in node.inputs)
    ]
    return [f"operator {', '.join(node.origins[:3]) or node.name}" for node in readers[:1]]


# The smallest sizes from which on a model follows its formulas.
#
# A slice of 5 rows is cut short where there are fewer, and a window that is wider than what it slides over is padded.
# So the smallest sizes may have shapes of their own; then the run-time sizes begin above those.


_FEWEST = 3  # sizes that have to be left
log = logging.getLogger(__name__)
Imports = dict[Point, Graph]


class Model(Protocol):
    """A model of run-time sizes (mtool.compiler.run_time_sizes.lowering)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its sizes."""

    @property
    def top(self) -> Point:
        """Their largest values."""

    def add(self, point: Point, imported: Imports) -> bool:
        """Import the model at some sizes."""

    def structural(self, least: Point, imported: Imports, count: int) -> list[Point]:
        """Import the model near the largest sizes."""

    def check_imports(self, imported: Mapping[Point, Graph]) -> None:
        """Check that what is imported follows formulas."""


def following(imported: Imports, least: Point, model: Model) -> tuple[Imports, Point]:
    """Return the imports that follow formulas, and the smallest sizes from which on all do.

    Raises:
        ModelError: there are none: also near the largest sizes the model follows no formulas.
    """
    if _follows(imported, model):
        return imported, least
    model.structural(least, imported, MORE_STRUCTURE)
    try:
        model.check_imports(imported)
    except ModelError as refused:
        found = _raised(imported, least, model)
        if found is None:
            raise refused from None
        model.structural(found, imported, MORE_STRUCTURE)
        raised = _lowest(imported, least, found, model)
    else:
        raised = least
    for point in dense_points(model.top, raised):
        model.add(point, imported)
    model.check_imports(_above(imported, raised))
    for name, before, size in zip(model.names, least, raised, strict=True):
        if size > before:
            log.warning("%s begins with %d: below, shapes or operators are others than from there on", name, size)
    return _above(imported, raised), raised


def _above(imported: Mapping[Point, Graph], least: Point) -> Imports:
    return {point: graph for point, graph in imported.items() if is_within(least, point)}


def _follows(imported: Mapping[Point, Graph], model: Model) -> bool:
    try:
        model.check_imports(imported)
    except ModelError:
        return False
    return True


def _raised(imported: Imports, least: Point, model: Model) -> Point | None:
    """Return the smallest of the sizes that were imported from which on all follow formulas; None: there are none."""
    choices = []
    for index, (low, most) in enumerate(zip(least, model.top, strict=True)):
        sizes = sorted({point[index] for point in imported})[: 1 - _FEWEST]
        choices.append(sorted({low, *(size for size in sizes if size <= most)}))
    for point in sorted(itertools.product(*choices), key=sum):
        if point != least and _follows(_above(imported, point), model):
            return point
    return None


def _lowest(imported: Imports, least: Point, found: Point, model: Model) -> Point:
    """Return the smallest sizes from which on the model follows formulas, between those that were imported."""
    for index, good in enumerate(found):
        low, high = max((point[index] for point in imported if point[index] < good), default=least[index] - 1), good
        while high - low > 1:
            size = (low + high) // 2
            model.add(with_size(model.top, index, size), imported)
            if _follows(_above(imported, with_size(found, index, size)), model):
                high = size
            else:
                low = size
        found = with_size(found, index, high)
    return found
