"""Pictures as a camera gives them: decode, crop, resize, normalize."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtool.base.errors import UsageError
from mtool.preprocessing.front import MOST, Front, Target, within
from mtool.preprocessing.nodes import Nodes

_GREY = np.asarray([0.299, 0.587, 0.114], np.float32)
_CHANNELS = (1, 3)
_MOST_PIXELS = 1 << 14


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, cropped around its center to the shape of the model's input, resized (bilinear) and normalized.

    pixels: yuv422 (bytes Y U Y V, BT.601 with 16 to 235), rgb565, rgb or grey. height, width: of the picture; by
    default the model's. scale, offset: what a channel, 0 to 255, is multiplied by, and what is added then.
    """

    pixels: str = "rgb"
    height: int = within(0, 1, _MOST_PIXELS)
    width: int = within(0, 1, _MOST_PIXELS)
    scale: float = within(1 / 255, -MOST, but=0)
    offset: float = within(0.0, -MOST)

    def values(self) -> Mapping[str, Any]:
        """Return the parameters to check, by name."""
        return {name: value for name, value in asdict(self).items() if value or name in ("scale", "offset")}

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target: the picture's bytes."""
        if self.pixels not in _DECODERS:
            raise UsageError(f"image:pixels={self.pixels}: expected one of {', '.join(_DECODERS)}")
        _, height, width, _ = _layout(target)
        shape = self.height or height, self.width or width
        if self.pixels == "yuv422" and shape[1] % 2:
            raise UsageError(f"image:width={shape[1]}: yuv422 has pairs of pixels; expected an even width")
        kind, last = _KINDS[self.pixels]
        return Target("picture", np.dtype(kind), (*shape, *last))

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
        w, (is_last, height, width, channels) = front.write, _layout(target)
        rows, columns = self.needs(target).shape[:2]
        x, depth = _DECODERS[self.pixels](w, value, rows, columns)
        if depth == 3 and channels == 1:
            x = w("ReduceSum", w("Mul", x, _GREY[:, None, None]), [0], keepdims=1)
        elif depth < channels:
            x = w("Concat", *[x] * channels, axis=0)
        cropped = min(rows, columns * height // width), min(columns, rows * width // height)
        first = (rows - cropped[0]) // 2, (columns - cropped[1]) // 2
        if cropped != (rows, columns):
            ends = [start + size for start, size in zip(first, cropped, strict=True)]
            x = w("Slice", x, list(first), ends, [1, 2])
        x = w("Unsqueeze", x, [0])
        if cropped != (height, width):
            sizes = [1, channels, height, width]
            x = w("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
        x = w("Add", w("Mul", x, self.scale), self.offset)
        x = w("Transpose", x, perm=[0, 2, 3, 1]) if is_last else x
        return w("Reshape", front.stored(x, target)[0], list(target.shape))


def _layout(target: Target) -> tuple[bool, int, int, int]:
    """Return whether a target's channels are its last dimension, its height and width, and its number of channels.

    Raises:
        UsageError: it is not a picture.
    """
    shape = target.shape[1:] if len(target.shape) == 4 and target.shape[0] == 1 else target.shape
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) == 3 and shape[2] in _CHANNELS:
        return True, shape[0], shape[1], shape[2]
    if len(shape) == 3 and shape[0] in _CHANNELS:
        return False, shape[1], shape[2], shape[0]
    raise UsageError(
        f"the model's input {target} is not a picture", details=["expected 1 or 3 channels, first or last"]
    )


def _yuv(w: Nodes, value: str, height: int, width: int) -> tuple[str, int]:
    pairs = w("Reshape", w.cast(value, np.float32), [height, width // 2, 4])
    luma = w("Reshape", w("Gather", pairs, [0, 2], axis=2), [1, height, width])
    luma = w("Mul", w("Sub", luma, 16.0), 255 / 219)
    chroma = [w("Sub", w("Gather", pairs, [n, n], axis=2), 128.0) for n in (1, 3)]
    u, v = (w("Mul", w("Reshape", plane, [1, height, width]), 255 / 224) for plane in chroma)
    red = w("Add", luma, w("Mul", v, 1.402))
    green = w("Sub", luma, w("Add", w("Mul", u, 0.344136), w("Mul", v, 0.714136)))
    blue = w("Add", luma, w("Mul", u, 1.772))
    whole = w("Concat", red, green, blue, axis=0)
    return w("Min", w("Max", whole, 0.0), 255.0), 3


def _rgb565(w: Nodes, value: str, height: int, width: int) -> tuple[str, int]:
    wide = w("Reshape", w.cast(value, np.int32), [1, height, width])
    parts = [
        w("Mul", w.cast(w("Mod", w("Div", wide, np.int32(1 << shift)), np.int32(most + 1)), np.float32), 255 / most)
        for shift, most in ((11, 31), (5, 63), (0, 31))
    ]
    return w("Concat", *parts, axis=0), 3


def _rgb(w: Nodes, value: str, height: int, width: int) -> tuple[str, int]:
    return w.cast(w("Transpose", value, perm=[2, 0, 1]), np.float32), 3


def _grey(w: Nodes, value: str, height: int, width: int) -> tuple[str, int]:
    return w.cast(w("Reshape", value, [1, height, width]), np.float32), 1


_DECODERS = {"yuv422": _yuv, "rgb565": _rgb565, "rgb": _rgb, "grey": _grey}
_KINDS = {"yuv422": (np.uint8, (2,)), "rgb565": (np.uint16, ()), "rgb": (np.uint8, (3,)), "grey": (np.uint8, ())}
