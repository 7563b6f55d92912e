"""Outputs whose size depends on data, or follows run-time sizes: on the device a tensor, and a count of what is there.

Where it depends on data, a session returns the whole tensor; where it follows run-time sizes, what is there alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mtool.manifest import Tensor
from mtool.stages.samples import Array, Sample


def padded(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a reference's outputs as a device gives them: padded with zeros to the maximum size, and the counts.

    Elements beyond the maximum size are cut off, as on the device.
    """
    result = dict(sample)
    for tensor in (tensor for tensor in tensors if tensor.count is not None):
        axis = _axis(tensor)
        data = sample[tensor.name]
        if tensor.dims is not None:
            result |= _with_run_time_sizes(tensor, data)
            continue
        kept = data.take(np.arange(min(data.shape[axis], tensor.shape[axis])), axis)
        missing = [(0, 0)] * data.ndim
        missing[axis] = (0, tensor.shape[axis] - kept.shape[axis])
        result[tensor.name] = np.pad(kept, missing)
        assert tensor.count is not None
        result[tensor.count] = np.asarray(kept.shape[axis], np.int32)
    return result


def cut(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a device's outputs as ONNX has them: cut to their counts, and without the counts."""
    counts = {tensor.count for tensor in tensors}
    result = {}
    for tensor in (tensor for tensor in tensors if tensor.name not in counts):
        data = sample[tensor.name]
        if tensor.count is not None and tensor.dims is None:
            data = data.take(np.arange(int(sample[tensor.count])), _axis(tensor))
        result[tensor.name] = data
    return result


def masked(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a device's outputs with zeros from the count on."""
    return padded(tensors, {**sample, **cut(tensors, sample)})


def _with_run_time_sizes(tensor: Tensor, data: Array) -> Sample:
    """Return an output whose shape follows run-time sizes, padded to the largest, and its count."""
    assert tensor.count is not None
    missing = [(0, most - size) for size, most in zip(data.shape, tensor.shape, strict=True)]
    return {tensor.name: np.pad(data, missing), tensor.count: np.asarray(data.shape[_axis(tensor)], np.int32)}


def _axis(tensor: Tensor) -> int:
    assert tensor.count_axis is not None
    return tensor.count_axis
