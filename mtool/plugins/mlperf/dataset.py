"""The samples of a benchmark: a folder as EEMBC's runner has them, or an .npz."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool.base.errors import UsageError, of_os_error
from mtool.manifest import Tensor
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.samples import Array

TRUTH = "y_labels.csv"
_PIXELS = ("ic01", "vww01")
_SCORED = "ad01"


@dataclass(frozen=True, slots=True)
class Item:
    """A sample: its name, its class (None: not known), and the bytes to send; of ad01, those of each window."""

    name: str
    label: int | None
    windows: tuple[bytes, ...]


def read(path: Path, benchmark: str, tensor: Tensor) -> list[Item]:
    """Read the samples of a benchmark.

    Args:
        path: a folder with y_labels.csv (file, number of classes, class, and of ad01 the bytes of a window and their
            stride) and the files; or an .npz with x0, and `labels` or y0, whose largest element is the class.
        benchmark: kws01, ic01, vww01, ad01.
        tensor: the model's input.

    Raises:
        UsageError: something of it is missing or malformed.
    """
    return _from_folder(path, benchmark) if path.is_dir() else _from_arrays(path, benchmark, tensor)


def _from_folder(folder: Path, benchmark: str) -> list[Item]:
    try:
        rows = [row for row in csv.reader((folder / TRUTH).read_text("utf-8-sig").splitlines()) if row]
        items = []
        for row in rows:
            data = (folder / row[0]).read_bytes()
            windows: tuple[bytes, ...] = (data,)
            if benchmark == _SCORED:
                size, stride = int(row[3]), int(row[4])
                if size < 1 or stride < 1:
                    raise ValueError("a window and its stride have at least a byte")
                windows = tuple(data[at : at + size] for at in range(0, len(data) - size + 1, stride))
            items.append(Item(row[0], int(row[2]), windows))
    except OSError as failed:
        raise of_os_error(failed, f"{failed.filename or folder} can't be read") from None
    except (ValueError, IndexError, csv.Error) as wrong:
        raise UsageError(
            f"{folder / TRUTH} is not as EEMBC's runner has it",
            details=[str(wrong), "expected lines of: file, number of classes, class; of ad01 also bytes, stride"],
        ) from None
    if not items:
        raise UsageError(f"{folder / TRUTH} names no sample")
    return items


def _from_arrays(path: Path, benchmark: str, tensor: Tensor) -> list[Item]:
    samples = sampling.inputs_of(path, [tensor])
    labels = _labels(arrays.read(path), len(samples), benchmark, path)
    return [
        Item(f"{path.name}[{index}]", label, (wire(sample[tensor.name], benchmark, tensor),))
        for index, (sample, label) in enumerate(zip(samples, labels, strict=True))
    ]


def wire(sample: Array, benchmark: str, tensor: Tensor) -> bytes:
    """Return a sample of the model's input as the runner sends it: pixels from 0 on, float32 of ad01."""
    if tensor.dtype == "int8" and benchmark in _PIXELS:
        return (sample.astype(np.int16) + 128).astype(np.uint8).tobytes()
    if tensor.dtype != "float32" and benchmark == _SCORED and tensor.scale:
        zero = (tensor.zero_point or (0,))[0]
        return ((sample.astype(np.float32) - np.float32(zero)) * np.float32(tensor.scale[0])).astype("<f4").tobytes()
    return sample.tobytes()


def _labels(found: dict[str, Array], count: int, benchmark: str, path: Path) -> Sequence[int | None]:
    if "labels" in found:
        labels = found["labels"].reshape(-1)
    elif "y0" in found and benchmark != _SCORED and len(found["y0"]) == count:
        labels = found["y0"].reshape(count, -1).argmax(axis=1)
    else:
        return [None] * count
    if len(labels) != count:
        raise UsageError(f"{path} has {len(labels)} labels for {count} samples")
    return [int(label) for label in labels]
