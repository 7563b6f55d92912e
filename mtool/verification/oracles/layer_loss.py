"""The distance of a quantised model's layers from the float model's, as onnxruntime runs both."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.base.errors import ModelError
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles import library

Loss = tuple[str, str, float | None, float | None]

_ENDS = ("Relu", "Clip")  # onnxruntime quantises only after them


def of_layers(*, before: str, after: str, samples: Sequence[Sample], title: str) -> list[Loss]:
    """Compare activations and weights layer by layer.

    Args:
        before: the file of the float model that was quantised. Models with further outputs are written beside it.
        after: that of the QDQ model that came of it.
        samples: inputs.
        title: what the model's file is called in messages.

    Returns:
        For each layer: the node's name, its operator, and the signal over the difference in decibels of its output
        (with the loss of all before it) and of its weights; None: no difference, or no weights.

    Raises:
        ModelError: onnxruntime refuses a model.
    """
    library.onnxruntime()
    from onnxruntime.quantization import qdq_loss_debug

    tools: Any = qdq_loss_debug
    activations = []
    try:
        for model, name in ((before, "float.onnx"), (after, "qdq.onnx")):
            further = str(Path(before).with_name(name))
            tools.modify_model_output_intermediate_tensors(model, further)
            activations.append(tools.collect_activations(further, iter(samples)))
        matched = tools.create_activation_matching(activations[1], activations[0])
        weights = tools.create_weight_matching(before, after)
    except Exception as refused:  # onnxruntime's own classes of errors share no base but this
        details = str(refused).strip().splitlines()[:3] or [type(refused).__name__]
        raise ModelError(f"onnxruntime can't compare the layers of {title}", details=details) from None
    compared = {name: pair for name, pair in matched.items() if "float" in pair}
    nodes = list(onnx.load(before, load_external_data=False).graph.node)
    losses: list[Loss] = []
    for node in nodes:
        output = _output_of(node, nodes, compared)
        if output is None:
            continue
        pair = compared.pop(output)
        found = [weights[name] for name in node.input[1:2] if name in weights]
        of_weights = sqnr_db(flat([found[0]["float"]]), flat([found[0]["dequantized"]])) if found else None
        losses.append((node.name, node.op_type, sqnr_db(flat(pair["float"]), flat(pair["post_qdq"])), of_weights))
    return losses


def _output_of(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], compared: Mapping[str, Any]) -> str | None:
    """Return the tensor that a layer is compared at: its output, or that of the activation that ends the layer."""
    for name in node.output:
        if name in compared:
            return str(name)
        readers = [other for other in nodes if name in other.input]
        if len(readers) == 1 and readers[0].op_type in _ENDS and readers[0].output[0] in compared:
            return str(readers[0].output[0])
    return None


def sqnr_db(before: Array, after: Array) -> float | None:
    """Return the power of the signal over that of the difference; None: no difference, or no signal."""
    signal = float(np.sum(np.square(before, dtype=np.float64)))
    noise = float(np.sum(np.square(np.subtract(before, after, dtype=np.float64))))
    return 10 * math.log10(signal / noise) if signal and noise else None


def flat(arrays: Sequence[Array]) -> Array:
    """Return the elements of all arrays in a row, as float64."""
    return np.concatenate([np.asarray(array, np.float64).reshape(-1) for array in arrays])
