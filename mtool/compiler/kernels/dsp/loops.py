"""The loops that the register tiles of crt/include/mt_dsp.h have."""

from dataclasses import dataclass

UNROLLS = (28, 16, 8)  # steps of k an iteration
TURNS = (32, 16, 8)  # the same of a loop for any depth
WORD = 4  # steps of k that a word of weights has, for two channels
LONGEST = 10  # words that are written out without a loop: a small cache of flash holds them


@dataclass(frozen=True, slots=True)
class Loop:
    """A dot product in words of four steps of k: all `words` are written out, or a loop has `turn` of them.

    One loop is for all depths of two words or more: it is entered as many turns from its end as there are.
    """

    words: int
    turn: int

    @classmethod
    def of(cls, depth: int, unroll: int) -> "Loop":
        """Return a loop of `unroll` steps a turn for sums of `depth`; it has none for one word."""
        return cls(1, 0) if depth <= WORD else cls(0, unroll // WORD)

    @classmethod
    def whole(cls, depth: int) -> "Loop":
        """Return that without a loop."""
        return cls(depth // WORD, 0)

    def overhead(self, depth: int, end: int) -> int:
        """Return instructions besides the products of `depth` steps, of which the end of a turn has `end`."""
        return 2 + end * -(-(depth // WORD - 1) // self.turn) if self.turn else 0

    @property
    def name(self) -> str:
        """As functions have it."""
        return f"turns_{self.turn}" if self.turn else f"whole_{self.words}"
