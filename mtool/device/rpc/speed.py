"""The speed of a link, as measured by the bytes that came over it."""

_LEAST_BYTES = 1024  # of one measurement: less tells of the round trip, not of the line
_LEAST_S = 1e-4
_SLOWEST = 50.0
_WEIGHT = 0.25  # of a new measurement


class Speed:
    """The bytes per second of a link, from acknowledged frames.

    Args:
        bytes_per_second: what to assume until something was measured.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._is_measured = False
        self._bytes = 0
        self._seconds = 0.0

    def acknowledge(self, count: int, seconds: float) -> None:
        """Take note of `count` more bytes on the line, in the direction that had more, that took `seconds`."""
        self._bytes += count
        self._seconds += seconds
        if self._bytes < _LEAST_BYTES or self._seconds < _LEAST_S:
            return
        measured = max(self._bytes / self._seconds, _SLOWEST)
        weight = _WEIGHT if self._is_measured else 1.0
        self.bytes_per_second += weight * (measured - self.bytes_per_second)
        self._is_measured = True
        self.begin()

    def begin(self) -> None:
        """Begin a measurement: there was a pause, or something was lost."""
        self._bytes = 0
        self._seconds = 0.0
