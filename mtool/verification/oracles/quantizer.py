"""Quantization by onnxruntime: it optimises the model, records the activations over samples, and writes the QDQ model.

https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
"""

import contextlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.base import distribution
from mtool.base.errors import BuildError, UsageError
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles import ort
from mtool.verification.oracles.sequences import as_model_error

INSTALL = distribution.install("quantize")
_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
_INTEGERS = {"int8": "QInt8", "uint8": "QUInt8", "int16": "QInt16"}


def prepare(*, model: str, prepared: str, title: str) -> None:
    """Write the model to quantize: optimised, with the shape of every tensor.

    Args:
        model: the file of a model with fixed shapes. It has to be a file, as data would be removed from a model in
            memory.
        prepared: the file to write.
        title: the name of the user's file in messages.

    Raises:
        BuildError: onnxruntime is not installed.
        ModelError: onnxruntime refuses the model.
    """
    with _refusals(title):
        # The shapes are already numbers: symbolic inference, which needs sympy, would add nothing.
        _tools().shape_inference.quant_pre_process(model, prepared, skip_symbolic_shape=True)
    written = onnx.load(prepared)
    _flatten_biases(written.graph)
    onnx.save(written, prepared)


def _flatten_biases(graph: onnx.GraphProto) -> None:
    """Make biases of Gemm of shape [1, N] vectors: onnxruntime fails on them. scikit-learn's converter writes them."""
    readers = [
        (name, node.op_type == "Gemm" and place == 2) for node in graph.node for place, name in enumerate(node.input)
    ]
    biases = {name for name, is_bias in readers if is_bias} - {name for name, is_bias in readers if not is_bias}
    for constant in graph.initializer:
        if constant.name in biases and len(constant.dims) == 2 and constant.dims[0] == 1:
            del constant.dims[0]


def quantize(
    *,
    prepared: str,
    quantized: str,
    samples: Sequence[Sample],
    scheme: Mapping[str, Any],
    grids: Mapping[str, tuple[Array, Array]],
    forced: bool,
    title: str,
) -> None:
    """Calibrate a prepared model with samples and write the QDQ model.

    The scheme has the fields of `mtool.quantization.quantizing.Scheme`. `grids` has the scale and zero point of tensors
    that are not calibrated. If `forced`, operators that onnxruntime quantizes only after others are quantized always.

    Raises:
        BuildError: onnxruntime is not installed.
        ModelError: onnxruntime refuses the model.
    """
    tools = _tools()
    with _refusals(title):
        tools.quantize_static(
            prepared,
            quantized,
            _reader(tools, samples),
            op_types_to_quantize=_operators(tools),
            quant_format=tools.QuantFormat.QDQ,
            per_channel=scheme["per_channel"],
            activation_type=tools.QuantType[_INTEGERS[scheme["activations"]]],
            weight_type=tools.QuantType.QInt8,
            nodes_to_exclude=list(scheme["exclude"]),
            calibrate_method=tools.CalibrationMethod[_METHODS[scheme["method"]]],
            extra_options={
                "ActivationSymmetric": scheme["symmetric"],
                "WeightSymmetric": True,
                "ForceQuantizeNoInputCheck": forced,
                "TensorQuantOverrides": {
                    tensor: [{"scale": scale, "zero_point": zero}] for tensor, (scale, zero) in grids.items()
                },
            },
        )


def _operators(tools: Any) -> list[str]:
    """Return the operators to quantize: those of onnxruntime's default, and a pool that it lacks."""
    return sorted({*tools.registry.QLinearOpsRegistry, *tools.registry.QDQRegistry, "GlobalMaxPool"})


def _reader(tools: Any, samples: Sequence[Sample]) -> Any:
    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]  # a class of the module that is loaded late
        def __init__(self) -> None:
            self.samples = iter(samples)

        def get_next(self) -> Sample | None:
            return next(self.samples, None)

    return Reader()


def _tools() -> Any:
    """Return onnxruntime.quantization with the submodules that are used."""
    try:
        ort.import_onnxruntime()
        from onnxruntime import quantization
        from onnxruntime.quantization import registry, shape_inference
    except ImportError:
        raise BuildError("onnxruntime is not installed", details=["it is needed to quantize"], hint=INSTALL) from None
    assert registry and shape_inference
    return quantization


@contextlib.contextmanager
def _refusals(title: str) -> Iterator[None]:
    with as_model_error(f"onnxruntime can't quantize {title}"):
        try:
            yield
        except OSError as failed:
            at = failed.filename or tempfile.gettempdir()
            raise UsageError(
                "the temporary models can't be written", details=[f"{at}: {failed.strerror}"], hint="set TMPDIR"
            ) from None


# The difference between a quantized model's layers and the float model's, both run by onnxruntime.


Loss = tuple[str, str, float | None, float | None]
_ENDS = ("Relu", "Clip", "Squeeze", "Transpose", "Reshape", "Slice", "Gather")  # it may be quantized only after them


def of_layers(*, before: str, after: str, samples: Sequence[Sample], title: str) -> list[Loss]:
    """Compare activations and weights layer by layer.

    Args:
        before: the file of the float model. Models with additional outputs are written beside it.
        after: the file of the QDQ model.
        samples: inputs.
        title: the name of the model's file in messages.

    Returns:
        For each layer: the node's name, its operator, and the signal-to-difference ratio in decibels of its output
        (including the loss of all earlier layers) and of its weights; None: no difference, or no weights.

    Raises:
        ModelError: onnxruntime refuses a model.
    """
    ort.import_onnxruntime()
    from onnxruntime.quantization import qdq_loss_debug

    tools: Any = qdq_loss_debug
    activations = []
    with as_model_error(f"onnxruntime can't compare the layers of {title}"):
        for model, name in ((before, "float.onnx"), (after, "qdq.onnx")):
            further = str(Path(before).with_name(name))
            tools.modify_model_output_intermediate_tensors(model, further)
            activations.append(tools.collect_activations(further, iter(samples)))
        matched = tools.create_activation_matching(activations[1], activations[0])
        weights = tools.create_weight_matching(before, after)
    compared = {name: pair for name, pair in matched.items() if "float" in pair}
    for node in onnx.load(after, load_external_data=False).graph.node:  # a Scan's results, which it makes as integers
        if node.op_type == "DequantizeLinear" and node.output[0] in activations[0]:
            name = node.output[0]
            compared.setdefault(name, {"float": activations[0][name], "post_qdq": activations[1][name]})
    nodes = list(onnx.load(before, load_external_data=False).graph.node)
    losses: list[Loss] = []
    for node in nodes:
        output = _output_of(node, nodes, compared)
        if output is None:
            continue
        pair = compared.pop(output)
        pairs = [weights[name] for name in node.input[1:2] if name in weights]
        of_weights = sqnr_db(flat([pairs[0]["float"]]), flat([pairs[0]["dequantized"]])) if pairs else None
        losses.append((node.name, node.op_type, sqnr_db(flat(pair["float"]), flat(pair["post_qdq"])), of_weights))
    return losses


def _output_of(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], compared: Mapping[str, Any]) -> str | None:
    """Return the tensor at which a layer is compared: its output, or that of the activation or the moves after it."""
    for name in node.output:
        if name in compared:
            return str(name)
        readers = [other for other in nodes if name in other.input]
        if len(readers) == 1 and readers[0].op_type in _ENDS:
            return _output_of(readers[0], nodes, compared)
    return None


def sqnr_db(before: Array, after: Array) -> float | None:
    """Return the power ratio of signal and difference in decibels; None: no difference, or no signal."""
    signal = float(np.sum(np.square(before, dtype=np.float64)))
    noise = float(np.sum(np.square(np.subtract(before, after, dtype=np.float64))))
    return 10 * math.log10(signal / noise) if signal and noise else None


def flat(arrays: Sequence[Array]) -> Array:
    """Return the elements of all arrays in one row, as float64."""
    return np.concatenate([np.asarray(array, np.float64).reshape(-1) for array in arrays])
