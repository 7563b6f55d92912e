"""The loss by quantisation: distance of outputs and layers from the float model's, and classes that stay right."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.workflow.samples import Array, Sample

_ENDS = ("Relu", "Clip")  # onnxruntime quantises only after them
LAYER_SAMPLES = 16  # samples that layers are compared over: every activation of each is held in memory


@dataclass(frozen=True, slots=True)
class OutputLoss:
    """The distance of an output from the float model's, over all samples.

    `max_abs` and `mean_abs` are in the output's own unit. `sqnr_db` is the power of the signal over that of the
    difference; None: no difference, or no signal. `cosine` is that of the angle between the two; None: one is zero.
    """

    name: str
    max_abs: float
    mean_abs: float
    sqnr_db: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Classes:
    """The number of `samples` with the right class, and with the same before and after; None: no labels."""

    samples: int
    right_before: int | None
    right_after: int | None
    same: int


@dataclass(frozen=True, slots=True)
class LayerLoss:
    """The distance of a layer from the float model's: its output with the loss of all before it, and its weights.

    `node` is what `exclude` takes. Signal over difference in decibels; None: no difference, or no weights.
    """

    node: str
    op: str
    sqnr_db: float | None
    weights_sqnr_db: float | None


def of_outputs(before: Sequence[Sample], after: Sequence[Sample]) -> tuple[OutputLoss, ...]:
    """Compare each output of the float model with the quantised one's, a dictionary a sample."""
    return tuple(
        _output(name, _flat([sample[name] for sample in before]), _flat([sample[name] for sample in after]))
        for name in before[0]
    )


def of_classes(before: Sequence[Sample], after: Sequence[Sample], labels: Array | None) -> Classes | None:
    """Compare classes: the largest element of a model's only output; None if that is not one row of scores."""
    scores = list(before[0].values())
    if len(scores) != 1 or scores[0].size < 2 or scores[0].size != scores[0].shape[-1]:
        return None
    first, second = (np.array([int(np.argmax(*sample.values())) for sample in run]) for run in (before, after))
    return Classes(
        samples=len(before),
        right_before=None if labels is None else int(np.count_nonzero(first == labels)),
        right_after=None if labels is None else int(np.count_nonzero(second == labels)),
        same=int(np.count_nonzero(first == second)),
    )


def of_layers(tools: Any, before: Path, after: Path, samples: Sequence[Sample], folder: Path) -> tuple[LayerLoss, ...]:
    """Compare activations and weights layer by layer; the worst come first.

    Args:
        tools: onnxruntime.quantization.qdq_loss_debug.
        before: the float model that was quantised.
        after: the QDQ model that came of it.
        samples: inputs; the first `LAYER_SAMPLES` are used.
        folder: where models with further outputs may be written.
    """
    activations = []
    for model, name in ((before, "float.onnx"), (after, "qdq.onnx")):
        tools.modify_model_output_intermediate_tensors(str(model), str(folder / name))
        activations.append(tools.collect_activations(str(folder / name), iter(samples[:LAYER_SAMPLES])))
    matched = tools.create_activation_matching(activations[1], activations[0])
    weights = tools.create_weight_matching(str(before), str(after))
    compared = {name: pair for name, pair in matched.items() if "float" in pair}
    nodes = list(onnx.load(str(before), load_external_data=False).graph.node)
    losses = []
    for node in nodes:
        output = _output_of(node, nodes, compared)
        if output is None:
            continue
        found = [weights[name] for name in node.input[1:2] if name in weights]
        losses.append(
            LayerLoss(
                node.name,
                node.op_type,
                _sqnr(_flat(compared[output]["float"]), _flat(compared[output]["post_qdq"])),
                _sqnr(_flat([found[0]["float"]]), _flat([found[0]["dequantized"]])) if found else None,
            )
        )
        del compared[output]
    return tuple(sorted(losses, key=lambda loss: math.inf if loss.sqnr_db is None else loss.sqnr_db))


def _output_of(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], compared: Mapping[str, Any]) -> str | None:
    """Return the tensor that a layer is compared at: its output, or that of the activation that ends the layer."""
    for name in node.output:
        if name in compared:
            return str(name)
        readers = [other for other in nodes if name in other.input]
        if len(readers) == 1 and readers[0].op_type in _ENDS and readers[0].output[0] in compared:
            return str(readers[0].output[0])
    return None


def _output(name: str, before: Array, after: Array) -> OutputLoss:
    distance = np.abs(after - before)
    norms = float(np.linalg.norm(before) * np.linalg.norm(after))
    return OutputLoss(
        name,
        float(distance.max(initial=0.0)),
        float(distance.mean()) if distance.size else 0.0,
        _sqnr(before, after),
        float(before @ after) / norms if norms else None,
    )


def _sqnr(before: Array, after: Array) -> float | None:
    signal = float(np.sum(np.square(before, dtype=np.float64)))
    noise = float(np.sum(np.square(np.subtract(before, after, dtype=np.float64))))
    return 10 * math.log10(signal / noise) if signal and noise else None


def _flat(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.asarray(array, np.float64).reshape(-1) for array in arrays])
