"""The most stack that a function needs, with everything that it calls, read from the machine code of an ELF file.

The code is what runs, whatever compiler, options and libraries it comes from; a compiler's own files (GCC's
`-fstack-usage`) lack the libraries' functions. Each function is followed on all of its paths: what it pushes, and what
it calls at which depth. Interrupts are not included.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from mtool.base.errors import BuildError
from mtool.device.build.stack import avr, riscv, thumb
from mtool.device.build.stack.image import ARM, AVR, RISCV, Image
from mtool.device.build.stack.walking import Decoder, Function, Walk
from mtool.manifest import StackBound

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
        return {one.name: one.frame for one in self._all() if not one.unknown}

    def callers(self, name: str) -> tuple[str, ...]:
        """Return the functions that call or jump to the one of that name."""
        at = self._image.names.get(name, -1)
        return tuple(one.name for one in self._all() if at in one.calls)

    def pointed(self, prefix: str) -> tuple[str, ...]:
        """Return the functions whose addresses are in constants and variables with names that begin so."""
        image, found = self._image, set()
        for name, start, size in image.objects:
            if name.startswith(prefix):
                for place in range(start, start + size - image.pointer_bytes + 1, image.pointer_bytes):
                    pointer = image.value(place, image.pointer_bytes)
                    at = 2 * pointer if image.machine == AVR else pointer - image.thumb
                    found |= {image.functions[at][0]} if at in image.functions else set()
        return tuple(sorted(found))

    def bound(self, name: str, pointers: _Pointers | None = None) -> StackBound:
        """Return the most that a call of a function needs below its caller's frame.

        Args:
            name: the function.
            pointers: what functions call through pointers, by their names.
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

    def _deepest(self, at: int, known: dict[int, _Path], above: list[int], pointers: _Pointers) -> _Path:
        """Return the bytes of a function and all that it calls, below its caller's frame, and the deepest path."""
        one = self._function(at)
        if at in above:
            names = [self._function(each).name for each in [*above[above.index(at) :], at]]
            raise _UnknownError(f"functions call one another in a circle: {', '.join(names)}")
        if one.unknown:
            raise _UnknownError(one.unknown)
        if at not in known:
            deepest: _Path = one.frame, ((one.name, one.frame),)
            for target, depth in one.calls.items():
                for called in [target] if target is not None else self._pointed_by(one, pointers):
                    inner, path = self._deepest(called, known, [*above, at], pointers)
                    deepest = max(deepest, (depth + inner, ((one.name, depth), *path)), key=lambda found: found[0])
            known[at] = deepest
        return known[at]

    def _pointed_by(self, one: Function, pointers: _Pointers) -> list[int]:
        names = pointers.get(one.name)
        if not names:  # no function that a pointer may lead to does not prove that it leads nowhere
            raise _UnknownError(f"{one.name} calls a function through a pointer")
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
            made = self._functions[at] = Function(name, at, end)
            assert self._decode is not None
            Walk(image, self._decode, made).run()
        return self._functions[at]
