"""The target: a board's core and its features, as used by the compile half."""

from collections.abc import Collection, Hashable

from mtool.base.frozen import frozen

THUMB1 = ("cortex-m0", "cortex-m1", "cortex-m23")
# Registers of each architecture, without stack pointer, program counter and others with a fixed use.
REGISTERS: tuple[tuple[str | tuple[str, ...], int], ...] = (
    (THUMB1, 0),
    ("cortex", 14),
    ("rv32e", 13),
    ("rv", 27),
    ("xtensa", 13),
    ("avr", 7),
)


@frozen
class Target:
    """A board as seen by the compile half: its core and its features ("fpu", "dsp", "mve", "rvv", "simd")."""

    cpu: str
    features: frozenset[str]

    @property
    def traits(self) -> Hashable:
        """The properties that the compile half depends on: targets with equal ones get the same files."""
        return self._traits(("traits", "integer_traits"))

    @property
    def integer_traits(self) -> Hashable:
        """The same for models without float32: targets with equal ones get the same files for such models."""
        return self._traits(("traits", "integer_traits", "fuses_slowly", "has_float_tiles"))

    def _traits(self, without: Collection[str]) -> Hashable:
        properties = (prop for name, prop in vars(Target).items() if isinstance(prop, property) and name not in without)
        return self.features, *(prop.fget(self) for prop in properties if prop.fget)

    def has(self, core: str) -> bool:
        """Return whether it has what a schedule needs: a feature, or a property below that is true."""
        return core in self.features or bool(getattr(self, core, False))

    @property
    def has_float(self) -> bool:
        """Whether float32 arithmetic is done by hardware."""
        return self.cpu == "host" or "fpu" in self.features

    @property
    def has_dsp(self) -> bool:
        """Whether the target has SIMD32."""
        return "dsp" in self.features

    @property
    def has_dsp_and_fpu(self) -> bool:
        """Whether the target has SIMD32, and an FPU for floats or for more registers."""
        return {"dsp", "fpu"} <= self.features

    @property
    def has_mve(self) -> bool:
        """Whether the target has Helium with floating point."""
        return {"mve", "fpu"} <= self.features

    @property
    def has_rvv(self) -> bool:
        """Whether the target has RISC-V's vectors: Zve32x or more."""
        return "rvv" in self.features

    @property
    def has_simd(self) -> bool:
        """Whether the target is a computer whose compiler vectorizes floats."""
        return "simd" in self.features

    @property
    def registers(self) -> int:
        """32-bit registers that an inner loop of integers may use; 0: too few for more than plain loops, or vectorized
        by the compiler.
        """
        return next((count for cores, count in REGISTERS if self.cpu.startswith(cores)), 0)

    @property
    def has_wide_registers(self) -> bool:
        """Whether inner loops may use registers, and these have 32 bits."""
        return self.registers > 0 and not self.is_8_bit

    @property
    def is_thumb1(self) -> bool:
        """Whether it is an Armv6-M or a small Armv8-M: eight registers for most instructions, no multiply-add."""
        return self.cpu.startswith(THUMB1)

    @property
    def multiplies_words(self) -> bool:
        """Whether it has a multiplier of 32 bits, and a loop in registers around it."""
        return self.has_wide_registers or self.is_thumb1

    @property
    def multiplies(self) -> bool:
        """Whether inner loops of integers are written for its registers."""
        return self.registers > 0 or self.is_thumb1

    @property
    def issues_pairs(self) -> bool:
        """Whether the core issues two instructions per cycle, so that latencies matter more than their number."""
        return self.cpu.startswith("cortex-m7")

    @property
    def fuses_slowly(self) -> bool:
        """Whether VFMA takes longer than VMUL and VADD: Arm DDI 0439B, table 7-1."""
        return self.cpu == "cortex-m4"

    @property
    def has_float_tiles(self) -> bool:
        """Whether the register tiles of mt_f32.h are for the target: a Cortex-M with a float32 FPU."""
        return "fpu" in self.features and self.cpu.startswith("cortex-m")

    @property
    def repeats_slowly(self) -> bool:
        """Whether a round of a loop takes a comparison and a branch, as Helium's and Xtensa's do not."""
        return self.has_wide_registers and not (self.has_mve or self.cpu.startswith("xtensa"))

    @property
    def product_instructions(self) -> int:
        """Instructions that multiply two integers and add: 1 where one does both, byte by byte on an AVR."""
        if self.is_8_bit:
            return 12
        return 2 if self.cpu.startswith((*THUMB1, "rv", "xtensa")) else 1

    @property
    def is_8_bit(self) -> bool:
        """Whether it is a core of 8 bits."""
        return self.cpu.startswith("avr")

    @property
    def flash_is_apart(self) -> bool:
        """Whether constants in flash need a qualifier to be read: on an 8-bit AVR it is another address space."""
        return self.cpu.startswith("avr")


def plain_product(target: Target, *, widened: bool = False) -> float:
    """Return the instructions of a multiply-accumulate in plain loops: its own, and 1.5 for loads and the loop's end.

    An AVR's registers are spilled: twice as many. `widened`: 2.4 more to convert an int8 to float.
    """
    return 1.5 + target.product_instructions * (2 if target.is_8_bit else 1) + (2.4 if widened else 0)
