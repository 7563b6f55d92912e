"""ImageDecoder 20: an image that the model has is decoded by Pillow when it is compiled."""

import io
import struct

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.operators.folding import Folding
from mtool.compiler.operators.onnx_node import computed
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import NotComputed

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")  # those of the operator, as Pillow calls them


def _elements_of(encoded: Array) -> int:
    """Return how many elements an image has when it is decoded, by its header."""
    try:
        import PIL.Image
    except ImportError:
        raise NotComputed("images are decoded by Pillow, which is not installed: pip install pillow") from None
    try:
        with PIL.Image.open(io.BytesIO(np.asarray(encoded, np.uint8).tobytes()), formats=FORMATS) as image:
            return int(image.width * image.height * max(len(image.getbands()), 3))
    except Exception as failed:  # whatever a damaged header makes of Pillow
        raise NotComputed(f"its input is no image that can be decoded: {type(failed).__name__}") from None


def _cases(draw: Draw, op: Operator) -> Case:
    """A bitmap of 2 x 2 pixels."""
    header = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 70, 0, 0, 54, 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0)
    return Case([draw.constant([*header, *draw.rng.randbytes(16)], np.uint8)], {"pixel_format": "RGB"})


OPERATORS = (
    Operator(
        "ImageDecoder",
        cases=_cases,
        canonical=computed("encoded_stream"),
        sizes=(0,),
        most_sizes=2**31,
        folding=Folding(lambda node: 8 * (node.values[0].size + _elements_of(node.values[0]))),
    ),
)
