"""How large an image is, by its header: ImageDecoder 20 of an image that the model has is computed by Pillow."""

import io

import numpy as np

from mtool.compiler.frontend.problems import NotComputed
from mtool.compiler.ir.types import Array

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")  # those of the operator, as Pillow calls them


def elements_of(encoded: Array) -> int:
    """Return how many elements an image has when it is decoded.

    Raises:
        NotComputed: it is no image of a format that the operator has, or Pillow is not installed.
    """
    try:
        import PIL.Image
    except ImportError:
        raise NotComputed("images are decoded by Pillow, which is not installed: pip install pillow") from None
    try:
        with PIL.Image.open(io.BytesIO(np.asarray(encoded, np.uint8).tobytes()), formats=FORMATS) as image:
            return int(image.width * image.height * max(len(image.getbands()), 3))
    except Exception as failed:  # whatever a damaged header makes of Pillow
        raise NotComputed(f"its input is no image that can be decoded: {type(failed).__name__}") from None
