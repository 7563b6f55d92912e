"""A range encoder with adaptive probabilities (Martin, Range encoding, 1979; as LZMA's), for crt/src/mt_delta.c."""

_RATE = 5
_EVEN = 1 << 15
_LEAST_RANGE = 1 << 24


class RangeEncoder:
    """Binary decisions as bytes; how likely each of `models` is 0 is learned from those before.

    What is written is as long as what a decoder reads for the same decisions, to the byte.
    """

    def __init__(self, models: int) -> None:
        self._model = [_EVEN] * models
        self._low = 0
        self._range = 0xFFFFFFFF
        self._bytes = bytearray()

    def decide(self, bit: int, model: int) -> None:
        """Write a decision of a model."""
        likely = self._model[model]
        self._write(bit, likely)
        self._model[model] = likely - (likely >> _RATE) if bit else likely + ((0x10000 - likely) >> _RATE)

    def even(self, bit: int) -> None:
        """Write a decision that is as likely as not."""
        self._write(bit, _EVEN)

    @property
    def bytes_so_far(self) -> int:
        """How many bytes are written, but for the last few, which depend on what follows."""
        return len(self._bytes)

    def end(self) -> bytes:
        """Return all that was written."""
        for _ in range(4):
            self._shift()
        return bytes(self._bytes)

    def _write(self, bit: int, likely: int) -> None:
        while self._range < _LEAST_RANGE:
            self._range <<= 8
            self._shift()
        bound = (self._range >> 16) * likely
        if not bit:
            self._range = bound
            return
        self._low += bound
        self._range -= bound
        if self._low >> 32:
            self._low &= 0xFFFFFFFF
            self._carry()

    def _carry(self) -> None:
        place = len(self._bytes) - 1
        while self._bytes[place] == 0xFF:
            self._bytes[place] = 0
            place -= 1
        self._bytes[place] += 1

    def _shift(self) -> None:
        self._bytes.append(self._low >> 24)
        self._low = self._low << 8 & 0xFFFFFFFF
