"""States that an ONNX model names itself, in its metadata."""

import json

import onnx

from mtool.base.errors import ModelError
from mtool.compiler.frontend.options import Pairs

STATES = "mtool.states"
"""The key of the metadata: a JSON list of pairs [output, input], each of which is a state."""


def model_states(model: onnx.ModelProto) -> Pairs:
    """Return the outputs and the inputs that they feed in the next call.

    Raises:
        ModelError: the metadata are malformed.
    """
    for entry in model.metadata_props:
        if entry.key == STATES:
            try:
                return tuple((str(output), str(value)) for output, value in json.loads(entry.value))
            except (ValueError, TypeError):
                raise ModelError(
                    f"the model's metadata {STATES!r} are malformed", details=["expected [[output, input], ...]"]
                ) from None
    return ()
