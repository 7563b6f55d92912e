"""What a device says of a module that it has, read piece by piece: the head, and the description, not the image."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from mtool.base import invalid
from mtool.base.errors import CommunicationError
from mtool.manifest.modules.format import (
    HEAD_BYTES,
    MAGIC,
    MOST_DESCRIPTION_BYTES,
    MOST_IMPORTS,
    MOST_TENSORS,
    Description,
)

_AT_COUNTER: Final = 20
_AT_IMAGE: Final = 28  # its bytes, then those of its code
_AT_INPUTS: Final = 40  # then outputs, imports, operators, bytes of the description, of the arena
_NAME: Final = slice(72, 104)
_MODEL_HASH: Final = slice(104, 136)


@dataclass(frozen=True, slots=True)
class Interface:
    """What a host needs of a module on a device: the model's name, hash and description; counter and sizes."""

    name: str
    model_hash: str
    description: Description
    counter: int
    arena_bytes: int
    code_bytes: int
    constant_bytes: int


def read(fetch: Callable[[int, int], bytes]) -> Interface:
    """Return the interface of a module; `fetch` returns so many bytes of its file from an offset on.

    Raises:
        CommunicationError: what is fetched is no module's.
    """
    head = fetch(0, HEAD_BYTES)
    if head[: len(MAGIC)] != MAGIC:
        raise CommunicationError("the device has a module that does not begin like one")
    (counter,) = struct.unpack_from("<I", head, _AT_COUNTER)
    image_bytes, code_bytes = struct.unpack_from("<2I", head, _AT_IMAGE)
    inputs, outputs, imports, operators, text_bytes, arena_bytes = struct.unpack_from("<6I", head, _AT_INPUTS)
    if max(inputs, outputs) > MOST_TENSORS or imports > MOST_IMPORTS or text_bytes > MOST_DESCRIPTION_BYTES:
        raise CommunicationError("the device has a module with more of something than any may have")
    try:
        text = fetch(HEAD_BYTES + 8 * (inputs + outputs) + 4 * imports, text_bytes)
        description = Description.model_validate_json(text)
    except ValidationError as error:
        raise CommunicationError(
            "the device has a module whose description this mtool does not know", details=invalid.lines(error, 5)
        ) from None
    if (len(description.inputs), len(description.outputs), len(description.operators)) != (inputs, outputs, operators):
        raise CommunicationError("the device has a module whose description and head differ")
    name = head[_NAME].partition(b"\0")[0].decode("ascii", "replace")
    constant_bytes = max(image_bytes - code_bytes, 0)
    return Interface(name, head[_MODEL_HASH].hex(), description, counter, arena_bytes, code_bytes, constant_bytes)
