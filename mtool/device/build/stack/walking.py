"""Follow the code of a function: what it pushes, and what it calls at which depth."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mtool.device.build.stack.image import Image
from mtool.device.build.stack.steps import Code, Kind, State, Step

Decoder = Callable[[Code, int, State], Step]
"""Returns what the instruction at an address does, and updates the state's registers."""
_MOST_VISITS = 64  # of an instruction, each with more on the stack
_END, _DEEPEST = -1, 1 << 32
_CALLS = (Kind.CALL, Kind.CALL_BY_POINTER)
_ENDS = (Kind.JUMP, Kind.JUMP_BY_POINTER, Kind.SWITCH, Kind.RETURN)


@dataclass(slots=True)
class Function:
    """A function.

    Attributes:
        name, start, end: its symbol's; all code between belongs to it.
        frame: the most that it pushes.
        calls: the largest depth of its calls, with what a call pushes, by their targets; None: through a pointer.
        unknown: why its frame is not known.
    """

    name: str
    start: int
    end: int
    frame: int = 0
    calls: dict[int | None, int] = field(default_factory=dict)
    unknown: str = ""


class Walk:
    """All paths through a function.

    Args:
        image: the file.
        decoder: its machine's.
        function: where it begins and ends; what it pushes and calls is entered there.
    """

    def __init__(self, image: Image, decoder: Decoder, function: Function) -> None:
        self._image, self._decoder, self._one = image, decoder, function
        self._code = Code(image.value, image.has_table, image.link)
        self._depths: dict[int, int] = {}
        self._visits: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._paths = [(function.start, State())]
        self._depths[_END] = _DEEPEST
        self._switch: State | None = None

    def run(self) -> None:
        """Follow all paths; after a switch also the code that nothing else leads to."""
        at = self._one.start
        while not self._one.unknown:
            while self._paths:
                self._follow(*self._paths.pop())
            while at < self._one.end and at in self._ends:
                at = self._image.after_data(self._ends[at])
            if self._switch is None or at >= self._one.end:
                return
            self._follow(at, self._switch.copy(), is_case=True)

    def _follow(self, at: int, state: State, *, is_case: bool = False) -> None:
        """Follow a path until it ends, or reaches what was reached with as much on the stack."""
        one, image = self._one, self._image
        while self._depths.get(at, -1) < state.depth and not one.unknown:
            if at != one.start and at in image.functions:  # a jump, or assembly code that goes on with the next one
                if not is_case:  # otherwise it is padding
                    self._call(at, state.depth)
                return
            if not image.has(at):
                one.unknown = f"{one.name} goes to 0x{at:x}, which is not in the file"
                return
            self._depths[at] = state.depth
            self._visits[at] = self._visits.get(at, 0) + 1
            at = self._take(at, state)

    def _take(self, at: int, state: State) -> int:
        """Take over what an instruction does, and return the address of the next one; -1: the path ends."""
        one, before, may_skip = self._one, state.depth, state.conditional > 0
        step = self._decoder(self._code, at, state)
        self._ends[at] = step.end
        if step.is_unknown:
            one.unknown = f"{one.name} sets the stack pointer to a value that depends on data"
        if self._visits[at] > _MOST_VISITS:
            one.unknown = f"{one.name} pushes in a loop"
        state.depth = max(before + step.pushed, 0)
        state.conditional = max(state.conditional - 1, 0)
        one.frame = max(one.frame, state.depth)
        if step.kind is Kind.SWITCH or (step.kind is Kind.JUMP and step.target in self._image.table_jumps):
            self._switch = state.copy()
        elif step.kind in (Kind.BRANCH, Kind.JUMP):
            self._paths.append((step.target, state.copy()))
        elif step.kind is Kind.JUMP_BY_POINTER:
            self._call(None, state.depth)
        elif step.kind in _CALLS:
            self._call(step.target if step.kind is Kind.CALL else None, state.depth + self._image.link)
            if self._image.after_data(step.end) != step.end:  # the table of a switch, which a function reads
                self._switch = state.copy()
        if step.kind is not Kind.ON:
            state.constants.clear()
        if may_skip:
            state.depth = before if step.kind in _ENDS else max(before, state.depth)
        elif step.kind in _ENDS:
            return _END
        is_end = step.kind in _CALLS and step.end >= one.end  # of a function that does not return
        return _END if is_end or self._image.after_data(step.end) != step.end else step.end

    def _call(self, target: int | None, depth: int) -> None:
        self._one.calls[target] = max(self._one.calls.get(target, 0), depth)
