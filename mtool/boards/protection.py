"""Memory protection of cores: what a region can cover, and so what a fence around a model lets through."""

from dataclasses import dataclass

from mtool.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Unit:
    """A core's unit of memory protection.

    name: as the architecture calls it.
    label: the same in a template's name.
    least: the smallest granule, in bytes.
    regions: how many it has, at least.
    in_eighths: a region is a power of two at a multiple of it, of which eighths can be left out; else it is anything
        in granules of `least`.
    """

    name: str
    label: str
    least: int
    regions: int
    in_eighths: bool = False

    def granule(self, size: int) -> int:
        """Return what the beginning and the size of an area of `size` bytes have to be multiples of: two regions do."""
        return max(self.least, self._power(size) // 8) if self.in_eighths else self.least

    def window(self, size: int) -> int:
        """Return what the beginning of an area of `size` bytes has to be a multiple of, so that one region does."""
        return max(8 * self.least, self._power(size)) if self.in_eighths else self.least

    def stack_granule(self, size: int) -> int:
        """Return the granule of a stack of `size` bytes, which begins at a multiple of its window."""
        return max(self.least, self.granule(size) // 2)

    def padded(self, size: int) -> int:
        """Return the bytes of an area of `size` bytes in its granules."""
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
    """Return the memory protection of a core, by GCC's name of it; None: it has none, or none that is known."""
    return _PMP if cpu.startswith("rv32") else _UNITS.get(cpu)


def needed_unit(cpu: str) -> Unit:
    """Return the memory protection of a core.

    Raises:
        UsageError: it has none, or none that is known.
    """
    unit = unit_of(cpu)
    if unit is None:
        what = f"--protect needs a core with memory protection, and {cpu} has none that mtool knows"
        raise UsageError(what, hint=f"cores that have it: {', '.join(_UNITS)}, rv32")
    return unit
