"""Blocks of Winograd's F(2x2, 3x3): two tiles side by side, 2x4 outputs of 4x6 inputs."""

from dataclasses import dataclass

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.padding import round_up

OUTPUTS = (2, 4)
INPUTS = (4, 6)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a convolution; `pixel`: elements of a pixel as they are read, more than its channels or as many."""

    conv: Conv
    pixel: int

    @staticmethod
    def can_compute(conv: Conv) -> bool:
        """Whether a convolution is 3x3 with stride 1, of one group."""
        return (conv.kernel, conv.stride, conv.dilation, conv.group) == ((3, 3), (1, 1), (1, 1), 1)

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many blocks there are above and beside one another in an image."""
        (height, width), (rows, columns) = self.conv.out_size, OUTPUTS
        return -(-height // rows), -(-width // columns)

    @property
    def count(self) -> int:
        """Return how many there are."""
        return self.conv.batch * self.counts[0] * self.counts[1]

    @property
    def gathered(self) -> float:
        """Return how many of them are put together first, about."""
        if self.borders == ["1"]:
            return self.count
        return min(self.count, 2 * self.count / min(self.counts)) if self.borders else 0

    @property
    def borders(self) -> list[str]:
        """Return the C conditions under which a block's inputs are put together first; "1": all are."""
        conv = self.conv
        if self.pixel > conv.channels or any(size < most for size, most in zip(conv.size, INPUTS, strict=True)):
            return ["1"]
        found = []
        for axis, (name, step) in enumerate(zip(("top", "left"), OUTPUTS, strict=True)):
            last = round_up(conv.out_size[axis], step) - step - conv.pad[axis]
            limit = conv.size[axis] - INPUTS[axis]
            found += [f"{name} < 0"] if conv.pad[axis] else []
            found += [f"{name} > {limit}"] if last > limit else []
        return found

    @property
    def patch(self) -> int:
        """Return the elements of inputs that are put together; 0: none are."""
        return INPUTS[0] * INPUTS[1] * self.pixel if self.borders else 0
