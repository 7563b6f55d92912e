"""Outputs whose size depends on data: whole tensors on a device, of which as much is there as a count says."""

from collections.abc import Mapping, Sequence

import numpy as np

from mtool.manifest import Tensor
from mtool.workflow.samples import Array, Sample


def filled(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a reference's outputs as a device gives them: zeros up to the largest size, and the counts.

    What is more than the largest size is cut, as the device does.
    """
    result = dict(sample)
    for tensor in (tensor for tensor in tensors if tensor.count is not None):
        axis = _axis(tensor)
        data = sample[tensor.name]
        kept = data.take(np.arange(min(data.shape[axis], tensor.shape[axis])), axis)
        missing = [(0, 0)] * data.ndim
        missing[axis] = (0, tensor.shape[axis] - kept.shape[axis])
        result[tensor.name] = np.pad(kept, missing)
        assert tensor.count is not None
        result[tensor.count] = np.asarray(kept.shape[axis], np.int32)
    return result


def trimmed(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a device's outputs as ONNX has them: cut to their counts, which are left out."""
    counts = {tensor.count for tensor in tensors}
    result = {}
    for tensor in (tensor for tensor in tensors if tensor.name not in counts):
        data = sample[tensor.name]
        if tensor.count is not None:
            data = data.take(np.arange(int(sample[tensor.count])), _axis(tensor))
        result[tensor.name] = data
    return result


def blanked(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a device's outputs with zeros for what is not there."""
    return filled(tensors, {**sample, **trimmed(tensors, sample)})


def _axis(tensor: Tensor) -> int:
    assert tensor.count_axis is not None
    return tensor.count_axis
