"""What a decoder reports of an instruction: how it moves the stack pointer, and where it goes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto


class Kind(Enum):
    """Where an instruction goes."""

    ON = auto()  # to the next one
    BRANCH = auto()  # to `target` or to the next one
    JUMP = auto()  # to `target`
    CALL = auto()  # to `target`, and back
    JUMP_BY_POINTER = auto()
    CALL_BY_POINTER = auto()
    SWITCH = auto()  # to an address in a table, in this function
    RETURN = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction.

    Attributes:
        end: the address after it.
        kind, target: where it goes.
        pushed: the bytes by which it moves the stack pointer down; negative: up.
        is_unknown: it sets the stack pointer to a value that the decoder does not follow.
    """

    end: int
    kind: Kind = Kind.ON
    target: int = 0
    pushed: int = 0
    is_unknown: bool = False


@dataclass(slots=True)
class State:
    """What is known before an instruction, on one path to it.

    Attributes:
        depth: the bytes on the stack.
        constants: numbers in registers.
        frames: addresses in the stack that are in registers, each as the depth there.
        sums: registers with the sum of two others: to jump there is to jump by a table of offsets.
        conditional: the number of instructions that follow and may not be executed (Thumb's IT).
    """

    depth: int = 0
    constants: dict[int, int] = field(default_factory=dict)
    frames: dict[int, int] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)
    conditional: int = 0

    def copy(self) -> "State":
        """Return a copy for another path: frames are kept."""
        return State(self.depth, {}, {**self.frames})

    def overwrite(self, *registers: int) -> None:
        """Forget the numbers in registers. A register from which the stack pointer is restored has no other use."""
        for register in registers:
            self.constants.pop(register, None)
            self.sums.discard(register)

    def added(self, to: int, of: int, number: int, *, sp: int, saved: range, end: int) -> Step:
        """Read an instruction to = of + number.

        Args:
            to, of: registers.
            number: the number.
            sp: the stack pointer's register.
            saved: the registers from which the stack pointer is restored.
            end: the address after the instruction.
        """
        if to == sp:
            if of == sp:
                return Step(end, pushed=-number)
            if of in saved and of in self.frames:
                return Step(end, pushed=self.frames[of] - number - self.depth)
            return Step(end, is_unknown=True)
        if of == sp:
            self.frames[to] = self.depth - number
        elif of in self.frames:
            self.frames[to] = self.frames[of] - number
        else:
            self.frames.pop(to, None)
        if of in self.constants:
            self.constants[to] = self.constants[of] + number
        else:
            self.overwrite(to)
        return Step(end)

    def sp_plus(self, register: int, sign: int, end: int) -> Step:
        """Read an instruction sp = sp + sign * register."""
        number = self.constants.get(register)
        return Step(end, is_unknown=True) if number is None else Step(end, pushed=-sign * number)


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code.

    Attributes:
        read: returns the number of `count` bytes at an address; 0 outside of the file.
        has_table: returns whether a table has addresses inside of the function that contains an address.
        link: the bytes that a call pushes.
    """

    read: Callable[[int, int], int]
    has_table: Callable[[int], bool]
    link: int = 0


def signed(value: int, bits: int) -> int:
    """Return the signed value of a field of `bits` bits."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value
