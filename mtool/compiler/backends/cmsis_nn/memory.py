"""Where the tensors of a call lie: at the region's border, or in its scratch where nothing outside reads them."""

import math

from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.operation import Operand

_ALIGNMENT = 16


class Memory:
    """The working memory of a call, which grows, and the lines that name what lies in it."""

    def __init__(self, region: Region) -> None:
        self.names = {one.value: f"input{number}" for number, one in enumerate(region.inputs)}
        self.names |= {one.value: f"output{number}" for number, one in enumerate(region.outputs)}
        self.lines: list[str] = []
        self.size = 0

    def take(self, count: int) -> str:
        """Return the address of so many bytes in C."""
        offset, self.size = self.size, self.size + math.ceil(count / _ALIGNMENT) * _ALIGNMENT
        return f"scratch + {offset}" if offset else "scratch"

    def array(self, name: str, kind: str, count: int) -> str:
        """Name so many bytes as an array of a type."""
        self.lines.append(f"{kind} *{name} = ({kind} *)({self.take(count)});")
        return name

    def of(self, operand: Operand, name: str) -> str:
        """Return a result in C, under a name of its own where nothing outside reads it."""
        found = self.names.get(operand.value)
        return found or self.array(name, f"{operand.dtype.label}_t", operand.type.bytes)

    def kept(self, old: Operand, new: Operand, name: str) -> str:
        """Return a state, which is copied from what it was to what it becomes, and changed there."""
        place = self.of(new, name)
        self.lines.append(f"memmove({place}, {self.names[old.value]}, {old.type.bytes});")
        return place
