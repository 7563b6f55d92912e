"""The measured core that stands for a board's, when bytes of code are estimated."""

from mtool.boards import Board

_ARMV7 = ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33")
_NEAREST = {  # by GCC's name of the board's core: the core that was measured, and how many times its bytes are taken
    "cortex-m0": ("thumb1", 1.0),
    "cortex-m0plus": ("thumb1", 1.0),
    "cortex-m1": ("thumb1", 1.0),
    "cortex-m23": ("thumb1", 1.0),
    "cortex-r5": ("thumb2_fpu", 1.6),  # A32: no instruction of 16 bits
    "rv32imc": ("rv32", 1.0),
    "rv32imc_zve32x": ("rv32", 1.0),
    "rv64imac": ("rv32", 1.3),
    "avr5": ("avr", 1.0),
    "avr6": ("avr", 1.0),
}
_UNKNOWN = ("rv32", 1.5)


def core_of(board: Board) -> tuple[str, float]:
    """Return the key of the measured core that is nearest to a board's, and what its bytes are multiplied by.

    A factor other than 1 is a guess, on the safe side: no compiler for the core was there.
    """
    if "mve" in board.features:
        return "mve", 1.0
    if board.cpu in _ARMV7:
        return ("thumb2_fpu" if "fpu" in board.features else "thumb2"), 1.0
    return _NEAREST.get(board.cpu, _UNKNOWN)
