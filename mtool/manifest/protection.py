"""What a model may have of the memory while it runs inside a fence (--protect)."""

from typing import Literal

from mtool.manifest.fields import Strict


class Area(Strict):
    """An area that a model has while it runs.

    `bytes` are those of the memory that it covers, in granules of the core's memory protection of `granule` bytes:
    `used` bytes and what follows them up to the next granule; both are 0 of what the linker alone knows the size of.
    `offset` is that of an area in the arena, `alignment` what its address is a multiple of.
    """

    name: Literal["arena", "states", "variables", "inputs", "constants"]
    access: Literal["read", "write"]
    used: int = 0
    bytes: int = 0
    granule: int
    alignment: int
    offset: int = 0


class Protection(Strict):
    """The fence around a model: the unit of memory protection, and the areas besides flash and the stack."""

    unit: Literal["PMSAv7", "PMSAv8", "PMP"]
    areas: tuple[Area, ...]

    def area(self, name: str) -> Area | None:
        """Return the area of a name; None: there is none."""
        return next((area for area in self.areas if area.name == name), None)
