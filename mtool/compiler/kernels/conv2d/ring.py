"""The ring of input rows that depthwise convolutions of any kernel copy for vectors."""

from dataclasses import dataclass

from mtool.compiler.kernels.conv2d.geometry import Conv


@dataclass(frozen=True, slots=True)
class Ring:
    """As many rows as the kernel spans: `columns` of each with padding, of which `copied` come from the input."""

    rows: int
    columns: int
    copied: int

    @classmethod
    def of(cls, conv: Conv) -> "Ring":
        """Take what the outputs reach."""
        copied = min(conv.size[1], conv.plane[1] - conv.pad[1])
        columns = max(conv.plane[1], copied + conv.pad[1])
        return cls((conv.kernel[0] - 1) * conv.dilation[0] + 1, columns, copied)
