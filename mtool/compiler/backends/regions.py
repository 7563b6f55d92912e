"""Partitioning: which operations form regions, each convex and none of two waiting for one another."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from mtool.compiler.backends.operation import Operation

MayJoin = Callable[[Sequence[int]], bool]
"""Whether operations, by their numbers in order, may be one region."""


class Groups:
    """Operations in groups that grow, such that the groups can always be computed one after another.

    Args:
        operations: in an order in which they can be computed.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        made = {one.value: number for number, operation in enumerate(operations) for one in operation.outputs}
        self.members: dict[int, tuple[int, ...]] = {number: (number,) for number in range(len(operations))}
        self._group: list[int] = [*range(len(operations))]
        self._after: dict[int, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)
        for number, operation in enumerate(operations):
            for value in {one.value for one in operation.variables} & made.keys():
                self._after[made[value]].add(number)
                self._before[number].add(made[value])

    def group_of(self, operation: int) -> int:
        """Return the group of an operation."""
        return self._group[operation]

    def before(self, group: int) -> set[int]:
        """Return the groups whose results a group reads."""
        return self._before[group]

    def can_join(self, one: int, other: int) -> bool:
        """Return whether no third group waits for one of two groups while the other waits for it."""
        return not (self._waits_through(one, other) or self._waits_through(other, one))

    def _waits_through(self, first: int, last: int) -> bool:
        """Whether there is a way from a group to another by a third."""
        waiting = [one for one in self._after[first] if one != last]
        seen = {*waiting}
        while waiting:
            group = waiting.pop()
            for after in self._after[group]:
                if after == last:
                    return True
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        return False

    def join(self, one: int, other: int) -> int:
        """Make one group of two, and return it."""
        self.members[one] = tuple(sorted((*self.members[one], *self.members.pop(other))))
        for number in self.members[one]:
            self._group[number] = one
        for forward, backward in ((self._after, self._before), (self._before, self._after)):
            for neighbour in forward.pop(other, set()):
                backward[neighbour].discard(other)
                if neighbour != one:
                    forward[one].add(neighbour)
                    backward[neighbour].add(one)
        return one


def grown(
    operations: Sequence[Operation], claimed: Mapping[int, str], grows: Iterable[str], may_join: MayJoin
) -> list[tuple[int, ...]]:
    """Return the regions of claimed operations, as large as they can be, each as the numbers of its operations.

    Args:
        operations: in an order in which they can be computed.
        claimed: the backend of each operation that has one, by number.
        grows: the backends whose regions may have several operations.
        may_join: whether a backend takes these operations as one region.
    """
    groups, growing = Groups(operations), {*grows}
    for number in range(len(operations)):
        backend = claimed.get(number)
        if backend not in growing:
            continue
        own = groups.group_of(number)
        tried: set[int] = set()
        while True:
            near = (one for one in sorted(groups.before(own)) if one not in tried)
            other = next((one for one in near if claimed.get(groups.members[one][0]) == backend), None)
            if other is None:
                break
            tried.add(other)
            joined = sorted((*groups.members[own], *groups.members[other]))
            if groups.can_join(own, other) and may_join(joined):
                own = groups.join(other, own)
    return sorted(members for members in groups.members.values() if members[0] in claimed)
