"""Padding of windows as TFLite has it, which knows two kinds."""

from collections.abc import Sequence

from mtool.compiler.operators.window import Window


def padding_of(attrs: Window, image: Sequence[int], result: Sequence[int]) -> str | None:
    """Return the kind of padding of a window over height and width: "VALID" or "SAME"; None: neither.

    Args:
        attrs: the window.
        image, result: the shapes of its input and output, with the channels last.
    """
    sizes = [*zip(image[1:3], result[1:3], attrs.kernel, attrs.strides, attrs.dilations, strict=True)]
    before, behind = attrs.pads[:2], attrs.pads[2:]
    wide = [(kernel - 1) * dilation + 1 for _, _, kernel, _, dilation in sizes]
    floors = [(size - reach) // stride + 1 for (size, _, _, stride, _), reach in zip(sizes, wide, strict=True)]
    if not any(attrs.pads) and floors == [*result[1:3]]:
        return "VALID"
    totals = [
        max((-(-size // stride) - 1) * stride + reach - size, 0)
        for (size, _, _, stride, _), reach in zip(sizes, wide, strict=True)
    ]
    is_same = [*before] == [total // 2 for total in totals] and [*behind] == [total - total // 2 for total in totals]
    return "SAME" if is_same and [-(-size // stride) for size, _, _, stride, _ in sizes] == [*result[1:3]] else None
