"""Memory protection of cores: the possible regions, and so what a model can access."""

from mtool.base.errors import UsageError
from mtool.base.frozen import frozen


@frozen
class Unit:
    """A core's memory protection unit.

    name: the architecture's name for it.
    label: its name within a template's name.
    least: the smallest granule, in bytes.
    regions: the number of regions, at least.
    in_eighths: a region's size is a power of two, its address a multiple of the size, and eighths of it can be left
        out; otherwise a region is any range in granules of `least`.
    """

    name: str
    label: str
    least: int
    regions: int
    in_eighths: bool = False

    def granule(self, size: int) -> int:
        """Return the granule of an area of `size` bytes that two regions cover: its address and size are multiples."""
        return max(self.least, self._power(size) // 8) if self.in_eighths else self.least

    def window(self, size: int) -> int:
        """Return the alignment of an area of `size` bytes that one region covers."""
        return max(8 * self.least, self._power(size)) if self.in_eighths else self.least

    def stack_granule(self, size: int) -> int:
        """Return the granule of a stack of `size` bytes that is aligned to its window."""
        return max(self.least, self.granule(size) // 2)

    def padded(self, size: int) -> int:
        """Return `size` in bytes, rounded up to its granule."""
        granule = self.granule(size)
        return -(-size // granule) * granule

    def _power(self, size: int) -> int:
        return 1 << max(size - 1, 1).bit_length()


_PMSA_V7 = Unit("PMSAv7", "pmsav7", 32, 8, in_eighths=True)
_PMSA_V8 = Unit("PMSAv8", "pmsav8", 32, 8)
_PMP = Unit("PMP", "pmp", 16, 16)
_UNITS = {
    **dict.fromkeys(("cortex-m3", "cortex-m4", "cortex-m7"), _PMSA_V7),
    **dict.fromkeys(("cortex-m33", "cortex-m35p", "cortex-m52", "cortex-m55", "cortex-m85"), _PMSA_V8),
}


def unit_of(cpu: str) -> Unit | None:
    """Return the memory protection of a core, by its GCC name; None: it has none, or none that mtool knows."""
    return _PMP if cpu.startswith("rv32") else _UNITS.get(cpu)


def needed_unit(cpu: str, board: str = "the board") -> Unit:
    """Return the memory protection of a core, which is that of a board by its name.

    Raises:
        UsageError: it has none, or none that mtool knows.
    """
    unit = unit_of(cpu)
    if unit is None:
        what = f"--protect needs a core with memory protection; {board}'s {cpu} has none that mtool knows"
        raise UsageError(what, hint=f"leave out --protect; cores that have it: {', '.join(_UNITS)}, rv32")
    return unit
