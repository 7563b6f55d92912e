"""The most stack that a function needs, with everything that it calls, read from the machine code of an ELF file.

The code is what runs, whatever compiler, options and libraries it comes from; a compiler's own files (GCC's
`-fstack-usage`) lack the libraries' functions. Each function is followed on all of its paths: what it pushes, and what
it calls at which depth. Interrupts are not included.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from mtool.base.errors import BuildError
from mtool.device.build.stack import avr, riscv, thumb
from mtool.device.build.stack.image import ARM, AVR, RISCV, Image
from mtool.device.build.stack.steps import Code, Kind, State, Step
from mtool.manifest import StackBound

# Follow the code of a function: what it pushes, and what it calls at which depth.

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
        self._image, self._decoder, self._function = image, decoder, function
        self._code = Code(image.value, image.has_table, image.link)
        self._depths: dict[int, int] = {}
        self._visits: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._paths = [(function.start, State())]
        self._depths[_END] = _DEEPEST
        self._switch: State | None = None

    def run(self) -> None:
        """Follow all paths; after a switch also the code that nothing else leads to."""
        at = self._function.start
        while not self._function.unknown:
            while self._paths:
                self._follow(*self._paths.pop())
            while at < self._function.end and at in self._ends:
                at = self._image.after_data(self._ends[at])
            if self._switch is None or at >= self._function.end:
                return
            self._follow(at, self._switch.copy(), is_case=True)

    def _follow(self, at: int, state: State, *, is_case: bool = False) -> None:
        """Follow a path until it ends, or reaches what was reached with as much on the stack."""
        code, image = self._function, self._image
        while self._depths.get(at, -1) < state.depth and not code.unknown:
            if at != code.start and at in image.functions:  # a jump, or assembly code that goes on with the next one
                if not is_case:  # otherwise it is padding
                    self._call(at, state.depth)
                return
            if not image.has(at):
                code.unknown = f"{code.name} goes to 0x{at:x}, which is not in the file"
                return
            self._depths[at] = state.depth
            self._visits[at] = self._visits.get(at, 0) + 1
            at = self._take(at, state)

    def _take(self, at: int, state: State) -> int:
        """Take over what an instruction does, and return the address of the next one; -1: the path ends."""
        function, before, may_skip = self._function, state.depth, state.conditional > 0
        step = self._decoder(self._code, at, state)
        self._ends[at] = step.end
        if step.is_unknown:
            function.unknown = f"{function.name} sets the stack pointer to a value that depends on data"
        if self._visits[at] > _MOST_VISITS:
            function.unknown = f"{function.name} pushes in a loop"
        state.depth = max(before + step.pushed, 0)
        state.conditional = max(state.conditional - 1, 0)
        function.frame = max(function.frame, state.depth)
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
        is_end = step.kind in _CALLS and step.end >= function.end  # of a function that does not return
        return _END if is_end or self._image.after_data(step.end) != step.end else step.end

    def _call(self, target: int | None, depth: int) -> None:
        self._function.calls[target] = max(self._function.calls.get(target, 0), depth)


_DECODERS: Mapping[str, Decoder] = {ARM: thumb.step, RISCV: riscv.step, AVR: avr.step}
_Path = tuple[int, tuple[tuple[str, int], ...]]  # the bytes in all, and each function with its own
_Pointers = Mapping[str, Collection[str]]


class _UnknownError(Exception):
    """There is no bound; the message is the reason."""


class CallGraph:
    """The functions of a linked file, and what they call.

    Args:
        elf: the file, with its symbols.

    Raises:
        BuildError: it can't be read.
    """

    def __init__(self, elf: Path) -> None:
        try:
            with elf.open("rb") as file:
                self._image = Image(ELFFile(file))
        except (OSError, ELFError) as failed:
            raise BuildError(f"the code of {elf} can't be read", details=[str(failed)]) from None
        self._decode = _DECODERS.get(self._image.machine)
        self._functions: dict[int, Function] = {}

    @property
    def is_readable(self) -> bool:
        """Whether there is a decoder for the file's machine."""
        return self._decode is not None

    @property
    def machine(self) -> str:
        """The file's machine."""
        return str(self._image.machine)

    @property
    def names(self) -> Collection[str]:
        """The functions' names."""
        return self._image.names.keys()

    def frames(self) -> dict[str, int]:
        """Return the bytes of each function's own frame; those with an unknown frame are left out."""
        return {function.name: function.frame for function in self._all() if not function.unknown}

    def callers(self, name: str) -> tuple[str, ...]:
        """Return the functions that call or jump to the one of that name."""
        at = self._image.names.get(name, -1)
        return tuple(function.name for function in self._all() if at in function.calls)

    def pointed(self, prefix: str) -> tuple[str, ...]:
        """Return the functions whose addresses are in constants and variables with names that begin so."""
        image, starts = self._image, set()
        for name, start, size in image.objects:
            if name.startswith(prefix):
                for place in range(start, start + size - image.pointer_bytes + 1, image.pointer_bytes):
                    pointer = image.value(place, image.pointer_bytes)
                    at = 2 * pointer if image.machine == AVR else pointer - image.thumb
                    starts |= {image.functions[at][0]} if at in image.functions else set()
        return tuple(sorted(starts))

    def bound(self, name: str, pointers: _Pointers | None = None) -> StackBound:
        """Return the most that a call of a function needs below its caller's frame.

        Args:
            name: the function.
            pointers: what functions call through pointers, by their names; nothing: they leave the file.
        """
        try:
            if self._decode is None:
                raise _UnknownError(f"the code of {self._image.machine} can't be read")
            if name not in self._image.names:
                raise _UnknownError(f"the firmware has no function {name}")
            count, path = self._deepest(self._image.names[name], {}, [], pointers or {})
            return StackBound(bytes=count + self._image.link, path=path)
        except _UnknownError as unknown:
            return StackBound(bytes=None, unknown=str(unknown))

    def _deepest(self, at: int, computed: dict[int, _Path], above: list[int], pointers: _Pointers) -> _Path:
        """Return the bytes of a function and all that it calls, below its caller's frame, and the deepest path."""
        caller = self._function(at)
        if at in above:
            names = [self._function(address).name for address in [*above[above.index(at) :], at]]
            raise _UnknownError(f"functions call one another in a circle: {', '.join(names)}")
        if caller.unknown:
            raise _UnknownError(caller.unknown)
        if at not in computed:
            deepest: _Path = caller.frame, ((caller.name, caller.frame),)
            for target, depth in caller.calls.items():
                for called in [target] if target is not None else self._pointed_by(caller, pointers):
                    inner, path = self._deepest(called, computed, [*above, at], pointers)
                    deepest = max(deepest, (depth + inner, ((caller.name, depth), *path)), key=lambda found: found[0])
            computed[at] = deepest
        return computed[at]

    def _pointed_by(self, caller: Function, pointers: _Pointers) -> list[int]:
        names = pointers.get(caller.name)
        if names is None:
            raise _UnknownError(f"{caller.name} calls a function through a pointer")
        return [at for at, function in self._image.functions.items() if function[0] in names]  # statics share names

    def _all(self) -> list[Function]:
        return [self._function(at) for at in self._image.functions] if self._decode is not None else []

    def _function(self, at: int) -> Function:
        """Return the function that begins at an address, read if it was not yet."""
        if at not in self._functions:
            image = self._image
            around = image.function_with(at)
            name = image.functions[around][0] if around is not None else image.labels.get(at, f"0x{at:x}")
            end = image.functions[around][1] if around is not None else image.next_function(at)
            function = self._functions[at] = Function(name, at, end)
            assert self._decode is not None
            Walk(image, self._decode, function).run()
        return self._functions[at]
