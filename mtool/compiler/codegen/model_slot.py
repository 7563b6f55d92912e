"""The place of a model among those of a firmware."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from mtool.base.escaping import c_string
from mtool.boards.protection import Unit


@dataclass(frozen=True, slots=True)
class Place:
    """What the C of a model has to know of the other models of its firmware.

    Attributes:
        arena: the C symbol of the arena that they share; empty: the model has its own.
        descriptor: the C symbol by which the RPC server knows the model.
        next: that of the model after it; empty: there is none.
        section: of the object file, that the arena lies in; empty: that of crt/include/mt_math.h.
        unit: the memory protection that is the fence around the model while it runs; None: there is none.
    """

    arena: str = ""
    descriptor: str = "mt_model"
    next: str = ""
    section: str = ""
    unit: Unit | None = None

    @classmethod
    def of(cls, number: int, names: Sequence[str], arena: str, section: str = "", unit: Unit | None = None) -> Self:
        """Return the place of the model of a number among all, by their names."""
        descriptors = [ALONE.descriptor, *(f"{name}_model" for name in names[1:]), ""]
        return cls(arena, descriptors[number], descriptors[number + 1], section, unit)

    def section_lines(self) -> list[str]:
        """Return the C that names the section, before mt_math.h is included."""
        if not self.section:
            return []
        return ["#undef MT_ARENA_SECTION", f"#define MT_ARENA_SECTION {c_string(self.section)}"]


ALONE = Place()
"""The place of a firmware's only model."""
