"""Checks where a model's tensors lie, from its manifest alone: nothing here is shared with the planner.

The operators are followed in their order, and for each byte of memory the tensor is noted that was written there last.
An operator must find in each tensor that it reads the bytes of that tensor; so no two tensors that are needed at the
same time overlap. What an operator accesses inside its tensors is not visible here, nor are the tensors of a branch's
or loop's own operators, which lie in its scratch.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mtool.base.errors import MtoolError
from mtool.manifest import Manifest, Operand, Operator

_Place = tuple[str, int]  # a memory and its number: a pool of the arena, an input or an output of the caller


class _Held(NamedTuple):
    """Bytes of a memory and the tensor that they belong to, which begins at `start`."""

    begin: int
    end: int
    tensor: str
    start: int


class _Memory:
    """The tensors of one memory; each of its bytes belongs to the one that was written there last."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: list[_Held] = []

    def between(self, begin: int, end: int) -> list[_Held]:
        return [value for value in self.held if value.begin < end and value.end > begin]

    def write(self, begin: int, end: int, tensor: str) -> None:
        remaining = []
        for value in self.held:
            remaining += [value] if value.end <= begin or value.begin >= end else []
            remaining += [value._replace(end=begin)] if value.begin < begin < value.end else []
            remaining += [value._replace(begin=end)] if value.begin < end < value.end else []
        self.held = [*remaining, _Held(begin, end, tensor, begin)]


def check_plans(models: Sequence[Manifest]) -> None:
    """Check the memory of all models of a firmware.

    Raises:
        MtoolError: a tensor lies outside of its memory or where it is not aligned; a tensor is overwritten before it
            was read for the last time; or an operator writes over an operand that it still reads.
    """
    for number, model in enumerate(models):
        sharing = [other for other in models if other is not model and other.symbols["arena"] == model.symbols["arena"]]
        others = [] if model.caller_has_arena or model.pools else sharing
        faults = [*_Check(model, others, [other for other in others if other in models[:number]]).faults()]
        if faults:
            more = [f"and {len(faults) - 5} more"] if len(faults) > 5 else []
            raise MtoolError(
                f"the memory plan of {model.model} is wrong: a bug in mtool",
                details=[*faults[:5], *more],
                hint="please report it with the model; other plans: --partial never, --io external",
            )


class _Check:
    """Follows one model. `sharing` are the others in its arena, `urgent` those that run in its pauses."""

    def __init__(self, model: Manifest, sharing: Sequence[Manifest], urgent: Sequence[Manifest]) -> None:
        self.model, self.urgent = model, urgent
        sizes = [pool.bytes - pool.constant_bytes for pool in model.pools] or [model.arena_bytes]
        self.memories: dict[_Place, _Memory] = {("arena", n): _Memory(size) for n, size in enumerate(sizes)}
        self.memories |= {("inputs", n): _Memory(tensor.bytes) for n, tensor in enumerate(model.inputs)}
        self.memories |= {("outputs", n): _Memory(tensor.bytes) for n, tensor in enumerate(model.outputs)}
        pairs = [(other.model, state) for other in sharing for state in other.states]
        self.states = [(s.arena_offset, s.arena_offset + s.bytes, f"{name}'s state {s.input}") for name, s in pairs]

    def faults(self) -> Iterator[str]:
        """Yield each fault, in the order of the operators."""
        model = self.model
        for number, tensor in enumerate(model.inputs):
            place = ("inputs", number) if tensor.arena_offset is None else ("arena", tensor.pool)
            yield from self._write(f"input {tensor.name}", place, tensor.arena_offset or 0, tensor.bytes, tensor.name)
        for state in model.states:
            yield from self._write(
                f"state {state.input}", ("arena", state.pool), state.arena_offset, state.bytes, state.value
            )
        for operator in model.operators:
            if operator.index in model.pauses:
                self._run_urgent()
            yield from self._operator(operator)
        for number, tensor in enumerate(model.outputs):
            place = ("outputs", number) if tensor.arena_offset is None else ("arena", tensor.pool)
            parts = tensor.parts or (tensor.name,)
            yield from self._read(f"output {tensor.name}", place, tensor.arena_offset or 0, tensor.bytes, parts)
        for state in model.states:
            what, place = f"the next state {state.input}", ("arena", state.pool)
            yield from self._read(what, place, state.arena_offset, state.bytes, state.parts)

    def _operator(self, operator: Operator) -> Iterator[str]:
        where = f"operator {operator.index}, {operator.name}:"
        scratch = operator.scratch_offset, operator.scratch_offset + operator.scratch_bytes
        place = "arena", operator.scratch_pool
        for value in (*operator.reads, *operator.writes):
            expected = math.prod(value.shape) * _size_of(value.stored)
            if value.bytes != expected:
                yield f"{where} {value.value} has {value.bytes} bytes; its type and shape need {expected}"
            if value.offset % min(_size_of(value.stored), 8):
                yield f"{where} {value.value} lies at {value.offset}, which is not aligned for {value.dtype}"
            if _place(value) == place and _overlap(_range(value), scratch):
                yield f"{where} its scratch overlaps {value.value}"
        for value in operator.reads:
            yield from self._read(
                f"{where} {value.value}", _place(value), value.offset, value.bytes, value.parts or (value.value,)
            )
        for number, value in enumerate(operator.writes):
            for other in operator.writes[:number]:
                if _share(value, other):
                    yield f"{where} its outputs {other.value} and {value.value} overlap"
            for which, read in enumerate(operator.reads):
                if _share(value, read) and not ((which, number) in operator.in_place and value.offset <= read.offset):
                    yield f"{where} {value.value} is written over {read.value}, which it still reads"
        if operator.scratch_bytes:
            yield from self._write(f"{where} its scratch", place, scratch[0], operator.scratch_bytes, "")
        for value in operator.writes:
            if value.memory == "inputs":
                yield f"{where} it writes to the caller's input {value.index}"
            yield from self._write(f"{where} {value.value}", _place(value), value.offset, value.bytes, value.value)

    def _fault_of_range(self, what: str, place: _Place, begin: int, size: int) -> str:
        memory = self.memories.get(place)
        if memory is None:
            return f"{what} lies in {place[0]} {place[1]}, which does not exist"
        if begin < 0 or begin + size > memory.size:
            return f"{what} lies at {begin} to {begin + size} of {place[0]} {place[1]}, which has {memory.size} bytes"
        return ""

    def _read(self, what: str, place: _Place, begin: int, size: int, parts: Sequence[str]) -> Iterator[str]:
        """Yield the faults of a read: each byte must be of one of `parts`; if there is only one, at its own place."""
        if fault := self._fault_of_range(what, place, begin, size):
            yield fault
            return
        found = self.memories[place].between(begin, begin + size)
        for part in found:
            if part.tensor not in parts:
                yield f"{what} is read where {part.tensor or 'scratch'} was written: bytes {part.begin} to {part.end}"
        if sum(min(part.end, begin + size) - max(part.begin, begin) for part in found) < size:
            yield f"{what} is read where nothing was written: within {begin} to {begin + size}"

    def _write(self, what: str, place: _Place, begin: int, size: int, tensor: str) -> Iterator[str]:
        if fault := self._fault_of_range(what, place, begin, size):
            yield fault
            return
        for first, end, name in self.states if place[0] == "arena" else ():
            if _overlap((begin, begin + size), (first, end)):
                yield f"{what} is written over {name}"
        if size:
            self.memories[place].write(begin, begin + size, tensor)

    def _run_urgent(self) -> None:
        """Write what the more urgent models may write between two operators."""
        for model in self.urgent:
            written = [value for operator in model.operators for value in operator.writes if value.memory == "arena"]
            ranges = [(operand.offset, operand.bytes) for operand in written]
            ranges += [(operator.scratch_offset, operator.scratch_bytes) for operator in model.operators]
            ranges += [(value.arena_offset, value.bytes) for value in model.inputs if value.arena_offset is not None]
            for begin, size in ranges:
                if size:
                    self.memories["arena", 0].write(begin, begin + size, f"a tensor of {model.model}")


def _place(operand: Operand) -> _Place:
    return operand.memory, operand.index


def _range(operand: Operand) -> tuple[int, int]:
    return operand.offset, operand.offset + operand.bytes


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def _share(a: Operand, b: Operand) -> bool:
    return _place(a) == _place(b) and _overlap(_range(a), _range(b))


def _size_of(dtype: str) -> int:
    """Return the bytes of an element of a type: bool, uint16, float8_e5m2; those of 4 bits take a byte."""
    bits = re.findall(r"\d+", dtype) or ["8"]
    return max(int(bits[0]) // 8, 1)
