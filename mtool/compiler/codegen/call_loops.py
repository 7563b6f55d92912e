"""Loops of calls: calls that repeat, each time a little further on, as those of row-wise execution."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool.compiler.codegen.addresses import address_of
from mtool.compiler.codegen.function import Call
from mtool.compiler.plan import Plan

LONGEST = 96  # steps of a loop's body
LEAST = 3  # iterations that are worth a loop


@dataclass(frozen=True, slots=True)
class CallLoop:
    """A loop over calls: `times` iterations of the `length` steps from `first` on; a step by itself is one of one.

    In each iteration after the first, the arguments of the steps lie `moves` elements further on than in the one
    before: a row for each step, a number for each of its arguments.
    """

    first: int
    length: int = 1
    times: int = 1
    moves: tuple[tuple[int, ...], ...] = ()

    @property
    def end(self) -> int:
        """The step after them."""
        return self.first + self.length * self.times


@dataclass(frozen=True, slots=True)
class _Call:
    """The call of a step: all that has to be the same in every iteration, where its arguments lie, and their sizes."""

    same: tuple[object, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def call_loops(plan: Plan, calls: Sequence[Call], first: int = 0) -> tuple[CallLoop, ...]:
    """Return the steps from `first` on as loops, in order; without row-wise execution each step is by itself."""
    if not plan.graph.line_buffers:
        return tuple(CallLoop(number) for number in range(first, len(plan.steps)))
    described = [_call(plan, call, number) for number, call in enumerate(calls)]
    found: list[CallLoop] = []
    number = first
    while number < len(described):
        found.append(_longest(described, number))
        number = found[-1].end
    return tuple(found)


def _call(plan: Plan, call: Call, number: int) -> _Call:
    node = plan.steps[number].node
    same: list[object] = [call.function.name]
    offsets, sizes = [], []
    for argument in call.function.kernel.arguments:
        value, source = "", argument.source
        if source == "output":
            value = node.outputs[0]
        elif source == "scratch":
            same.append(plan.scratch[number])
        elif source == "resource":
            pass
        elif source[0] == "constant":
            same.append(call.constants[str(source[1])])
        else:
            value = (node.outputs if source[0] == "output" else node.inputs)[int(source[1])]
        if not value:
            offsets.append(0)
            sizes.append(1)
            continue
        address, dtype = address_of(plan, value), plan.graph.types[value].dtype
        same += [address.memory, address.index, dtype.c]
        offsets.append(address.offset)
        sizes.append(dtype.size)
    return _Call(tuple(same), tuple(offsets), tuple(sizes))


def _longest(calls: Sequence[_Call], first: int) -> CallLoop:
    """Return the loop that begins with a step and saves most calls."""
    best, saved = CallLoop(first), 0
    for length in range(1, min(LONGEST, (len(calls) - first) // LEAST) + 1):
        moves = _moves(calls, first, length, None)
        if moves is None:
            continue
        times = 2
        while first + (times + 1) * length <= len(calls) and _moves(calls, first + (times - 1) * length, length, moves):
            times += 1
        if times >= LEAST and (times - 1) * length > saved:
            best, saved = CallLoop(first, length, times, moves), (times - 1) * length
    return best


def _moves(
    calls: Sequence[_Call], first: int, length: int, wanted: tuple[tuple[int, ...], ...] | None
) -> tuple[tuple[int, ...], ...] | None:
    """Return how far on the next `length` calls are than those from `first`; None: they are others, or not `wanted`."""
    moves = []
    for position in range(length):
        one, other = calls[first + position], calls[first + position + length]
        if one.same != other.same:
            return None
        moved = tuple(b - a for a, b in zip(one.offsets, other.offsets, strict=True))
        if any(by % size for by, size in zip(moved, one.sizes, strict=True)):
            return None
        moves.append(tuple(by // size for by, size in zip(moved, one.sizes, strict=True)))
    return None if wanted is not None and tuple(moves) != wanted else tuple(moves)


def moved(arguments: Sequence[str], moves: Sequence[int]) -> list[str]:
    """Return arguments of a call in a loop, which `n` counts: each so many elements further on."""
    return [f"{argument}{_further(step)}" for argument, step in zip(arguments, moves, strict=True)]


def _further(step: int) -> str:
    if not step:
        return ""
    return f" {'-' if step < 0 else '+'} " + ("n" if abs(step) == 1 else f"{abs(step)} * n")
