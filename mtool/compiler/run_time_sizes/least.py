"""The smallest sizes from which on a model follows its formulas.

A slice of 5 rows is cut short where there are fewer, and a window that is wider than what it slides over is padded. So
the smallest sizes may have shapes of their own; then the run-time sizes begin above those.
"""

import itertools
import logging
from collections.abc import Mapping
from typing import Protocol

from mtool.base.errors import ModelError
from mtool.base.formulas import Point
from mtool.compiler.ir import Graph
from mtool.compiler.run_time_sizes.points import MORE_STRUCTURE, dense_points, is_within, with_size

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
