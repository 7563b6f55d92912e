"""The default tolerance of a model's outputs."""

from dataclasses import replace
from pathlib import Path

from mtool.base.option_values import Rounding
from mtool.compiler.frontend import is_tflite
from mtool.device.session.verify import Tolerance
from mtool.manifest import Manifest

FLOAT16 = 2.0**-10
"""What a model in float16 may differ by, of the largest magnitude and of each number: a step of float16."""


def default_tolerance(model: Path | None = None, rounding: Rounding = "onnx", of_backends: int = 0) -> Tolerance:
    """Return what a model is held to: integers are equal but for ties, on every board and on grids of every width.

    A TFLite model is held to LiteRT's: to its reference kernels exactly with their rounding, to others within a step.

    Args:
        model: the file.
        rounding: how integers are rounded.
        of_backends: the steps by which integers of backends may differ from mtool's own.
    """
    of_rounding = int(model is not None and is_tflite(model) and rounding != "tflite")
    return Tolerance(lsb=of_rounding, of_backends=of_backends)


def of_float16(tolerance: Tolerance, manifest: Manifest) -> Tolerance:
    """Return what is allowed of a model that has tensors of float16, where it is not given: a step of float16.

    onnxruntime keeps what is between two operators as float32, and rounds where a tensor of float16 is wanted; a
    device rounds every tensor that it stores.
    """
    kinds = {tensor.dtype for tensor in (*manifest.inputs, *manifest.outputs)}
    kinds |= {operand.dtype for operator in manifest.operators for operand in (*operator.reads, *operator.writes)}
    if "float16" not in kinds:
        return tolerance
    atol, rtol = (FLOAT16 if given is None else given for given in (tolerance.atol, tolerance.rtol))
    return replace(tolerance, atol=atol, rtol=rtol)
