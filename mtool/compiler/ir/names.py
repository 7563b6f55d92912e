"""Names that are not taken yet: a stem, then the stem with the smallest number that makes it new."""

import heapq
from collections.abc import Callable


class Names:
    """Gives names; how many of a stem there are makes none of them slower to find.

    Names that were taken once are held to be so until they are released.
    """

    def __init__(self, is_taken: Callable[[str], bool]) -> None:
        self._is_taken = is_taken
        self._next: dict[str, int] = {}
        self._released: dict[str, list[int]] = {}

    def take(self, stem: str) -> str:
        """Return the first of `stem`, `stem.1`, `stem.2`, … that is not taken."""
        released = self._released.get(stem, [])
        while released:
            name = _numbered(stem, heapq.heappop(released))
            if not self._is_taken(name):
                return name
        number = self._next.get(stem, 0)
        while self._is_taken(name := _numbered(stem, number)):
            number += 1
        self._next[stem] = number + 1
        return name

    def release(self, name: str) -> None:
        """Let a name be given once more."""
        stem, dot, number = name.rpartition(".")
        if name in self._next:
            heapq.heappush(self._released.setdefault(name, []), 0)
        if dot and number.isdecimal() and number == str(int(number)) and int(number) < self._next.get(stem, 0):
            heapq.heappush(self._released.setdefault(stem, []), int(number))


def _numbered(stem: str, number: int) -> str:
    return f"{stem}.{number}" if number else stem
