"""ImageDecoder: constants are decoded; invalid and oversized images are refused before decoding."""

import io
import zlib

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from mtool.base.errors import ModelError, NeedsValues
from mtool.compiler.frontend import ModelOptions, from_proto

pillow = pytest.importorskip("PIL.Image")


def decoder(count: int) -> ModelProto:
    node = helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format="RGB")
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, [count])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.UINT8, None)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def loaded(encoded: bytes) -> np.ndarray:
    data = np.frombuffer(encoded, np.uint8)
    return from_proto(decoder(data.size), "m", ModelOptions(constants={"x": data})).constants["y"]


def png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    pillow.new("RGB", (width, height), (1, 2, 3)).save(file, "PNG")
    return file.getvalue()


def test_an_image_that_is_given_is_decoded() -> None:
    assert np.array_equal(loaded(png(3, 2)), np.full((2, 3, 3), (1, 2, 3)))


def test_a_run_time_image_must_be_made_constant() -> None:
    with pytest.raises(NeedsValues) as asked:
        from_proto(decoder(16), "m")
    assert asked.value.inputs == ("x",)


@pytest.mark.parametrize(
    "encoded", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"\x89PNG\r\n\x1a\n", b"GIF89a"]
)
def test_what_is_not_an_image_of_the_operators_formats_is_refused(encoded: bytes) -> None:
    with pytest.raises(ModelError) as refused:
        loaded(encoded)
    assert "not an image that Pillow can decode" in refused.value.details[0]


def test_an_image_that_unpacks_to_very_much_is_not_decoded() -> None:
    small = png(1, 1)
    huge = small[:16] + (60_000).to_bytes(4, "big") * 2 + small[24:]
    crc = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    with pytest.raises(ModelError):
        loaded(huge[:29] + crc + huge[33:])
