"""The inputs of a run that asks for a pattern or a file of bytes: `--fill zeros|ones|random|FILE`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtool.base import spelling
from mtool.base.errors import UsageError, of_os_error
from mtool.device.session.run_time_sizes import given_inputs
from mtool.manifest import Tensor
from mtool.stages import arrays
from mtool.stages.samples import Sample, inputs_of, seeded

PATTERNS = ("zeros", "ones", "random")
_ARRAYS = (".npy", ".npz")


def check(fill: str) -> None:
    """Say now that `fill` is neither a pattern nor a file, before the work.

    Raises:
        UsageError: it is neither.
    """
    if fill in PATTERNS:
        return
    path = Path(fill)
    if not path.is_file():
        raise UsageError(
            f"--fill {fill}: that is no pattern and no file",
            details=[f"patterns: {', '.join(PATTERNS)}", "a file: .npz, .npy, or the bytes of all inputs in order"],
            hint=spelling.did_you_mean(fill, PATTERNS, otherwise="for instance: --fill zeros"),
        )
    if path.suffix in _ARRAYS:
        arrays.stored(path)


def filled(tensors: Sequence[Tensor], fill: str, *, seed: int = 0) -> list[Sample]:
    """Return the samples that `fill` asks for: one of a pattern, or what a file holds.

    Run-time sizes are the largest. A file that is neither .npz nor .npy holds the bytes of each input after another,
    in the model's order, little-endian.

    Raises:
        UsageError: there is no such file, or it holds other arrays or another number of bytes than the inputs are.
    """
    if fill == "random":
        return seeded(tensors, count=1, seed=seed)
    given = given_inputs(tensors)
    if fill in PATTERNS:
        number = PATTERNS.index(fill)
        return [{tensor.name: np.full(tensor.shape, number).astype(np.dtype(tensor.dtype)) for tensor in given}]
    path = Path(fill)
    if path.suffix in _ARRAYS:
        return inputs_of(path, tensors)
    try:
        data = path.read_bytes()
    except OSError as failed:
        raise of_os_error(failed) from None
    sizes = [int(np.prod(tensor.shape, dtype=int)) * np.dtype(tensor.dtype).itemsize for tensor in given]
    if len(data) != sum(sizes):
        raise UsageError(
            f"--fill {fill}: {len(data):,} B are there, the inputs are {sum(sizes):,} B",
            details=[f"{one.name}: {one.dtype}[{','.join(map(str, one.shape))}]" for one in given],
        )
    ends = np.cumsum(sizes)
    return [
        {
            tensor.name: np.frombuffer(data[end - size : end], np.dtype(tensor.dtype).newbyteorder("<"))
            .astype(np.dtype(tensor.dtype))
            .reshape(tensor.shape)
            for tensor, size, end in zip(given, sizes, ends, strict=True)
        }
    ]
