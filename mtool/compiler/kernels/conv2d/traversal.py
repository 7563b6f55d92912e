"""Traversal of a channel in a depthwise convolution: along its rows or columns, several outputs at a time."""

from dataclasses import dataclass

from mtool.compiler.kernels.conv2d.geometry import Conv

# The direction in which a depthwise schedule goes over a channel's plane: a knob of each of them.
DIRECTIONS = ("straight", "turned")
DIRECTION_MEANING = "inner loop along rows, or along columns of a turned plane; auto: with the fewer instructions"


@dataclass(frozen=True, slots=True)
class Traversal:
    """The plane of a channel as it is traversed: all pairs are (slow, fast); steps are elements of the tensors.

    `block` outputs side by side on the fast axis share the inputs that they load. The last block of a row ends with it:
    it computes some outputs again if the row is not whole blocks.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    plane: tuple[int, int]
    copied: tuple[int, int]
    pad: tuple[int, int]
    out_size: tuple[int, int]
    in_step: tuple[int, int]
    out_step: tuple[int, int]
    transposed: bool
    block: int

    @classmethod
    def all(cls, conv: Conv, direction: str, most: int) -> "list[Traversal]":
        """Return the ways, of up to `most` outputs a block; direction: "straight", "turned" or "" for both."""
        return [
            cls._along(conv, turned, block)
            for turned in (False, True)
            if direction in ("", "turned" if turned else "straight")
            for block in range(1, min(most, conv.out_size[not turned]) + 1)
        ]

    @classmethod
    def _along(cls, conv: Conv, turned: bool, block: int) -> "Traversal":
        def pair(of: tuple[int, int]) -> tuple[int, int]:
            return of[::-1] if turned else of

        return cls(
            kernel=pair(conv.kernel),
            stride=pair(conv.stride),
            dilation=pair(conv.dilation),
            plane=pair(conv.plane),
            copied=pair(
                (min(conv.size[0], conv.plane[0] - conv.pad[0]), min(conv.size[1], conv.plane[1] - conv.pad[1]))
            ),
            pad=pair(conv.pad),
            out_size=pair(conv.out_size),
            in_step=pair((conv.size[1] * conv.channels, conv.channels)),
            out_step=pair((conv.out_size[1] * conv.channels, conv.channels)),
            transposed=turned,
            block=block,
        )

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return -(-self.out_size[1] // self.block)

    @property
    def block_inputs(self) -> list[int]:
        """The positions of the inputs that a block reads for one row of taps."""
        return sorted(
            {t * self.stride[1] + k * self.dilation[1] for t in range(self.block) for k in range(self.kernel[1])}
        )
