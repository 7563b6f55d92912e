"""Why one node can't be compiled; the importer collects these and reports them all at once."""

import logging

log = logging.getLogger(__name__)


class Unsupported(Exception):
    """The node is not supported; the text is the reason."""


class TooLarge(Unsupported):
    """A value of the node has too many bytes or dimensions for the generated C."""


class NotComputed(Unsupported):
    """The reference evaluator can't compute the node, all of whose inputs are constants."""


class ValueNeeded(Unsupported):
    """The node's C depends on the value of one of its inputs, which is not a constant."""

    def __init__(self, value: str, role: str, otherwise: str = "", *, text: str = "") -> None:
        super().__init__(text or f"its input {role!r} must be a constant{otherwise}")
        self.value = value


def disagreement(failed: Exception) -> str:
    """Return the reason for an exception that Python or NumPy raise on a malformed node."""
    log.debug("a malformed node", exc_info=failed)
    message = next(iter(f"{type(failed).__name__}: {failed}".splitlines()))
    return f"its inputs and attributes do not match ({message})"


OWN = "mtool"
"""The domain of mtool's own operators: the output has the shape of the first input, and the type `to`."""

REFUSED = "mtool.refused"
"""The domain of a node that another frontend could not translate.

Its attribute `reason` has the reason; `value` is the value that must be a constant, or ""."""

CLASSICAL = "ai.onnx.ml"
"""ONNX's domain of classical models."""

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators, which its optimizer and quantizer write."""
