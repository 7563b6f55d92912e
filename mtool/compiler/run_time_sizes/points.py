"""Points: values of the run-time sizes at which a model is imported and lowered, and its C compared."""

import itertools
from collections.abc import Collection, Iterator

from mtool.base.formulas import Point

FEW = 4  # below it, other kernels may be chosen
STRUCTURE = 5
"""The number of values of a size at which a graph is lowered."""
MORE_STRUCTURE = 18
"""The same if those are too few to determine which quotient the numbers follow."""
_SMALL = (1, 2, 3, 5)  # at which the model is also imported
_BETWEEN = 3  # sizes between the smallest and those near the largest, at which it is imported too
_DENSE = 64  # sizes at which a model is imported if it follows no formula at the few
_SMALLEST = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64)  # candidates for a model's smallest size
_EMITTED = (*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 80)  # for which C is also compared
_EMITTED_BEYOND = 19  # for any largest size


def with_size(point: Point, index: int, size: int) -> Point:
    """Return a point with another value for one size."""
    return (*point[:index], size, *point[index + 1 :])


def is_within(point: Point, top: Point) -> bool:
    """Return whether no size is larger than the requested maximum."""
    return all(size <= most for size, most in zip(point, top, strict=True))


def smallest_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes to try, in order, to find the smallest that a model accepts."""
    return (*(size for size in _SMALLEST if size < most), most)


def small_points(top: Point, least: Point) -> Iterator[Point]:
    """Yield further points at which the model is imported to check its formulas: each size on its own."""
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        between = [low + (most - low) * part // (2 * _BETWEEN + 1) for part in range(1, _BETWEEN + 1)]
        for size in dict.fromkeys((*_SMALL, *between)):
            if low <= size < most:
                yield with_size(top, index, size)


def dense_points(top: Point, least: Point) -> Iterator[Point]:
    """Yield every size on its own, or many of them: a formula that is not simple has to hold at all of these."""
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        for part in range(min(most - low, _DENSE)):
            yield with_size(top, index, low + part * (most - low) // min(most - low, _DENSE))


def structural_points(top: Point, least: Point, taken: Collection[int], count: int = STRUCTURE) -> Iterator[Point]:
    """Yield points at which the graph is lowered: `count` of each size on its own, then several together."""
    values = [_values(most, low, taken)[:count] for most, low in zip(top, least, strict=True)]
    for index, sizes in enumerate(values):
        for size in sizes:
            yield with_size(top, index, size)
    if len(top) > 1:
        yield from itertools.product(*(sizes[:3] for sizes in values))


def _values(most: int, least: int, taken: Collection[int]) -> list[int]:
    """Return values of a size at which graphs are compared.

    They are near the largest, because passes may choose other kernels for a few rows; none equals the size of another
    dimension, for which it could be mistaken.
    """
    parts = [most - 1, most - 2, most // 2 + 1, most * 2 // 3, most * 3 // 4, most - 3, most // 2 - 1, most // 3]
    below = [size for size in dict.fromkeys([*parts, *range(most - 4, max(most - 40, 1), -1)]) if least <= size < most]
    beyond = [most + step for step in (1, 2, 3, 5, 7, 9, 10, 11, 13)]
    return [size for size in (*below, *beyond) if size not in taken and size >= FEW]


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
