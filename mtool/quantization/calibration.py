"""Doubts about calibration data: whether the statistics that a model brings along are those of the data."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.stages.formatting import count
from mtool.stages.samples import Array, Sample
from mtool.verification.oracles import ort, process

_MOST_SAMPLES = 32  # of which activations are held
_MOST_DISTANCE = 1.0  # standard deviations between means, of the channel in the middle
_MOST_RATIO = 3.0  # between standard deviations, of the same
_FEWEST_SAMPLES, _FEWEST_CLASSES = 8, 3


def of_statistics(model: onnx.ModelProto, samples: Sequence[Sample], source: Path) -> tuple[str, ...]:
    """Compare what reaches a model's batch normalizations with the means and variances that they have from training.

    Args:
        model: the float model.
        samples: the calibration data, of which some are tried.
        source: the user's file.

    Returns:
        A line if those of the first, or of more than half of them, are far off.
    """
    there = {tensor.name: tensor for tensor in model.graph.initializer}
    norms = [
        node for node in model.graph.node
        if node.op_type == "BatchNormalization" and len(node.input) == 5 and {*node.input[1:]} <= there.keys()
    ]  # fmt: skip
    if not norms:
        return ()
    found = _values([node.input[0] for node in norms], model, samples[:_MOST_SAMPLES], source)
    off: list[tuple[onnx.NodeProto, str]] = []
    for node in norms:
        mean, variance = (numpy_helper.to_array(there[name]).astype(np.float64) for name in node.input[3:])
        words = _difference(found[node.input[0]], mean, variance)
        if words:
            off.append((node, words))
    if not off or (off[0][0] is not norms[0] and 2 * len(off) <= len(norms)):
        return ()
    node, words = off[0]
    return (
        f"the data are not like those that the model was trained with: before {node.name or node.output[0]} {words} "
        f"({len(off)} of {count(len(norms), 'batch normalization')}); are they scaled as in training?",
    )


def of_classes(before: Sequence[Sample], labels: Array | None) -> tuple[str, ...]:
    """Return a line if the float model has the same class for all samples, though their labels, if any, differ."""
    if len(before) < _FEWEST_SAMPLES or len(before[0]) != 1:
        return ()
    flat = [np.asarray(next(iter(one.values()))).reshape(-1) for one in before]
    is_same_class = labels is not None and np.unique(labels).size == 1
    first = int(flat[0].argmax())
    if is_same_class or flat[0].size < _FEWEST_CLASSES or any(int(one.argmax()) != first for one in flat):
        return ()
    return (
        f"the float model's largest output is number {first} for all {len(before)} samples: a classifier tells nothing "
        "apart in these data",
    )


def _values(
    names: Sequence[str], model: onnx.ModelProto, samples: Sequence[Sample], source: Path
) -> Mapping[str, Array]:
    """Return tensors of a model over all samples, by name; axis 0 is that of the samples."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    made = {name for node in proto.graph.node for name in node.output} - {one.name for one in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name in made)
    found: list[Sample] = process.call(
        ort.NAME, source, "ort.outputs", model=proto.SerializeToString(), samples=samples, title=source.name
    )
    whole = [{**sample, **one} for sample, one in zip(samples, found, strict=True)]
    return {name: np.concatenate([one[name] for one in whole]) for name in names}


def _difference(values: Array, mean: Array, variance: Array) -> str:
    """Return how the channels of a tensor (axis 1) differ from their statistics; "": little."""
    axes = tuple(axis for axis in range(values.ndim) if axis != 1)
    wide, least = values.astype(np.float64), np.finfo(np.float32).tiny
    deviation = np.sqrt(variance + least)
    distance = float(np.median(np.abs(wide.mean(axes) - mean) / deviation))
    ratio = float(np.exp(np.median(np.log((wide.std(axes) + least) / deviation))))
    said = []
    if distance > _MOST_DISTANCE:
        said.append(f"their mean is {distance:.2g} standard deviations off")
    if not 1 / _MOST_RATIO <= ratio <= _MOST_RATIO and len(values) * wide[0, :1].size > 1:
        said.append(f"their standard deviation is {ratio:.2g} times the model's")
    return " and ".join(said)
