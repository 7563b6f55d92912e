"""Quantisation by onnxruntime: it optimises the model, watches the activations over samples, and writes the QDQ model.

https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from mtool.base import distribution
from mtool.base.errors import BuildError, ModelError, UsageError
from mtool.base.tensors import Sample
from mtool.verification.oracles import library

INSTALL = distribution.install("quantize")

_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
_INTEGERS = {"int8": "QInt8", "uint8": "QUInt8"}


def prepare(*, model: str, prepared: str, title: str) -> None:
    """Write the model that is quantised: optimised, every tensor with its shape.

    Args:
        model: the file of a model with fixed shapes. It is a file, as data of a model in memory would be taken out.
        prepared: the file to write.
        title: what the user's file is called in messages.

    Raises:
        BuildError: onnxruntime is not installed.
        ModelError: onnxruntime refuses the model.
    """
    with _as_model_errors(title):
        # The shapes are numbers already: symbolic inference, which wants sympy, has nothing to add.
        _tools().shape_inference.quant_pre_process(model, prepared, skip_symbolic_shape=True)


def quantise(
    *,
    prepared: str,
    quantised: str,
    samples: Sequence[Sample],
    method: str,
    activations: str,
    symmetric: bool,
    per_channel: bool,
    exclude: Sequence[str],
    title: str,
) -> None:
    """Calibrate a prepared model with samples and write the QDQ model that comes of it.

    The scheme is that of `mtool.quantization.quantizing.Scheme`.

    Raises:
        BuildError: onnxruntime is not installed.
        ModelError: onnxruntime refuses the model.
    """
    tools = _tools()
    with _as_model_errors(title):
        tools.quantize_static(
            prepared,
            quantised,
            _reader(tools, samples),
            quant_format=tools.QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=tools.QuantType[_INTEGERS[activations]],
            weight_type=tools.QuantType.QInt8,
            nodes_to_exclude=list(exclude),
            calibrate_method=tools.CalibrationMethod[_METHODS[method]],
            extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
        )


def _reader(tools: Any, samples: Sequence[Sample]) -> Any:
    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]  # a class of the module that is loaded late
        def __init__(self) -> None:
            self.samples = iter(samples)

        def get_next(self) -> Sample | None:
            return next(self.samples, None)

    return Reader()


def _tools() -> Any:
    """Return onnxruntime.quantization, with the module of it that is used."""
    try:
        library.onnxruntime()
        from onnxruntime import quantization
        from onnxruntime.quantization import shape_inference
    except ImportError:
        raise BuildError("onnxruntime is not installed", details=["it is what quantises"], hint=INSTALL) from None
    assert shape_inference
    return quantization


@contextlib.contextmanager
def _as_model_errors(title: str) -> Iterator[None]:
    try:
        yield
    except OSError as failed:
        at = failed.filename or tempfile.gettempdir()
        raise UsageError(
            "the models in between can't be written", details=[f"{at}: {failed.strerror}"], hint="set TMPDIR"
        ) from None
    except Exception as refused:  # onnxruntime's own classes of errors share no base but this
        details = str(refused).strip().splitlines()[:3] or [type(refused).__name__]
        raise ModelError(f"onnxruntime can't quantise {title}", details=details) from None
