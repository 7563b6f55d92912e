"""Calibration data: samples of a model's inputs from NumPy files or images, and their labels."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool.base import checked, plural
from mtool.base.errors import BuildError, UsageError
from mtool.device.session.tensors import to_bytes
from mtool.manifest import Tensor
from mtool.stages import arrays, formatting
from mtool.stages import samples as sampling
from mtool.stages.samples import Array, Sample
from mtool.verification.oracles.quantizer import INSTALL

log = logging.getLogger(__name__)

IMAGES = (".png", ".jpg", ".jpeg", ".bmp")
_LABELS_BYTES = 64 << 20  # of a text file
_MOST_STRETCHED = 2.0  # 16:9 in a square is 1.8
_MOST_ENLARGED = 2.0
_LABEL_NAMES = ("labels", "y0", "y")
_CHANNELS = {1: "L", 3: "RGB"}  # Pillow's modes


@dataclass(frozen=True, slots=True)
class Pixels:
    """The mapping of an image's pixels (0 to 255) to values: value = pixel * scale + offset."""

    scale: float = 1 / 255
    offset: float = 0.0

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one has the wrong type.
        """
        checked.fields(self, {})


@dataclass(frozen=True, slots=True)
class Data:
    """Samples in the order of the files, their labels if known, and warnings about their suitability.

    The first axis of the labels is the samples.
    """

    samples: tuple[Sample, ...]
    labels: Array | None = None
    doubts: tuple[str, ...] = ()


def read(path: Path, tensors: Sequence[Tensor], *, pixels: Pixels | None = None, labels: Path | None = None) -> Data:
    """Read samples of a model's inputs.

    Args:
        path: a .npz file (arrays named after the inputs, or "x0"…, with a leading axis of samples; "labels", or "y0" or
            "y" with an integer for each sample, has the labels), a .npy file, or a folder of .npy files and images,
            read in the order of their names, or of such folders, one for each class: the class is the folder's number,
            or its place in the order of the names. Images are resized to the input, which is
            [1,height,width,channels] or [1,channels,height,width] with 1 or 3 channels. Real values for an integer
            input are quantized by its scale.
        tensors: the model's inputs.
        pixels: how pixels become values.
        labels: a .npy file, or a text file of numbers: those of a sample in each line, or one for each.

    Raises:
        UsageError: something is missing, or a shape or type differs from the model's.
        BuildError: there are images, and Pillow is not installed.
    """
    truth: Array | None = None
    changes: list[str] = []
    if path.is_dir():
        folders = _folders(path)
        parts = [_folder(folder, tensors, pixels or Pixels(), changes) for folder in folders.values()]
        read_samples = [sample for part in parts for sample in part]
        if None not in folders:
            truth = np.repeat(np.array(list(folders), np.int64), [len(part) for part in parts])
            titles = [f"{number} {folder.name}" for number, folder in folders.items()]
            shown = ", ".join([*titles[:3], "…", titles[-1]] if titles[4:] else titles)
            log.info("the folders in %s are classes: %s", path, shown)
    else:
        read_samples = sampling.inputs_of(path, tensors, quantizes=True)
        named_arrays = arrays.stored(path)
        inputs = {tensor.name for tensor in tensors}
        named = [named_arrays[name] for name in _LABEL_NAMES if name in named_arrays and name not in inputs]
        truth = next((array.load() for array in named if array.name == _LABEL_NAMES[0] or _are_classes(array)), None)
    if labels is not None:
        truth = labels_of(labels)
        if len(truth) != len(read_samples) and (len(truth) == 1 or truth.size == len(read_samples)):
            truth = truth.reshape(-1)  # a text with several in a line
    if truth is not None and truth.shape[:1] != (len(read_samples),):
        raise UsageError(
            f"found {plural.count(len(read_samples), 'sample')} but {plural.count(len(np.atleast_1d(truth)), 'label')}",
            details=[f"samples: {path}", f"labels: {labels or path}"],
        )
    _check_finite(read_samples, str(path))
    few = plural.count(len(changes), "image")
    doubts = [f"{few} in {path} changed a lot when resized to the model's input: {change}" for change in changes[:1]]
    return Data(tuple(read_samples), truth, tuple(doubts))


def of_arrays(samples: Sequence[Sample], tensors: Sequence[Tensor]) -> Data:
    """Return samples that are arrays already.

    Raises:
        UsageError: there are none, or one is not a sample of the model's inputs.
    """
    if not samples:
        raise UsageError("there are no samples to calibrate with")
    for index, sample in enumerate(samples):
        try:
            to_bytes(tensors, sample)
        except UsageError as refused:
            refused.what = f"sample {index}: {refused.what}"
            raise
    arrays = tuple({name: np.asarray(array) for name, array in sample.items()} for sample in samples)
    _check_finite(arrays, "the data")
    return Data(arrays)


def hash_of(samples: Sequence[Sample], start: bytes = b"") -> "hashlib._Hash":
    """Return the SHA-256 of samples, behind other bytes."""
    sha = hashlib.sha256(start)
    for sample in samples:
        for name, array in sorted(sample.items()):
            sha.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return sha


def _check_finite(samples: Sequence[Sample], title: str) -> None:
    """Refuse values without a range."""
    for index, sample in enumerate(samples):
        for name, array in sample.items():
            wrong = np.argwhere(~np.isfinite(array)) if array.dtype.kind == "f" else np.empty((0, 1), int)
            if len(wrong):
                at = tuple(map(int, wrong[0]))
                raise UsageError(
                    f"{title}: values are not finite",
                    details=[f"sample {index}: {name}[{','.join(map(str, at))}] is {array[at]}"],
                    hint="leave such samples out, or replace the values",
                )


def check(path: Path, labels: Path | None = None) -> None:
    """Check that a path has samples, and a file labels, whatever the model.

    Raises:
        UsageError: it is missing, or is neither a folder with samples nor a file of arrays.
    """
    _folders(path) if path.is_dir() else arrays.stored(path)
    if labels is not None:
        labels_of(labels)


def _is_sample(file: Path) -> bool:
    return file.is_file() and file.suffix.lower() in (".npy", *IMAGES)  # a pipe would be waited for


def _folders(path: Path) -> Mapping[int | None, Path]:
    """Return the folder that has the samples, or one for each class.

    Raises:
        UsageError: there are no samples, or two folders have the same class.
    """
    if any(map(_is_sample, path.iterdir())):
        return {None: path}
    places = [inner for inner in sorted(path.iterdir()) if inner.is_dir() and any(map(_is_sample, inner.iterdir()))]
    if not places:
        kinds = f".npy, {', '.join(IMAGES)}"
        raise UsageError(
            f"{path} has no samples",
            details=[f"expected files that end with {kinds}, or folders of them, one for each class"],
            hint="give a folder with such files, or a .npz file",
        )
    names = [folder.name for folder in places]
    if not all(name.isdecimal() for name in names):
        return dict(enumerate(places))
    folders: dict[int | None, Path] = {int(name): path / name for name in sorted(names, key=int)}
    if len(folders) < len(names):
        raise UsageError(f"{path}: two folders are the same class", details=[", ".join(names)])
    return folders


def _folder(path: Path, tensors: Sequence[Tensor], pixels: Pixels, changes: list[str]) -> list[Sample]:
    read_samples: list[Sample] = []
    files = sorted(path.iterdir())
    sample_files = [file for file in files if _is_sample(file)]
    for file in sample_files:
        if file.suffix.lower() == ".npy":
            read_samples += sampling.inputs_of(file, tensors, quantizes=True)
        else:
            read_samples.append(_image(file, tensors, pixels, changes))
    others = len(files) - len(sample_files)
    if others:
        log.info("left out %d files in %s: neither arrays nor images", others, path)
    return read_samples


def _image(file: Path, tensors: Sequence[Tensor], pixels: Pixels, changes: list[str]) -> Sample:
    """Return an image as a sample of a model's only input; a large change of its shape is added to `changes`."""
    if len(tensors) != 1:
        raise UsageError(
            f"images need a model with one input; this one has {len(tensors)}",
            details=[f"{tensor.name} {formatting.tensor(tensor)}" for tensor in tensors],
            hint="give a .npz file with an array for each input",
        )
    (tensor,) = tensors
    height, width, channels, is_last = _layout(tensor)
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise BuildError("Pillow is not installed", details=["it is needed to read images"], hint=INSTALL) from None
    try:
        with Image.open(file) as opened:
            if change := _change(*opened.size, width, height):
                changes.append(f"{file.name}, {change}")
            resized = opened.convert(_CHANNELS[channels]).resize((width, height), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as refused:
        raise UsageError(f"{file} can't be read as an image", details=[str(refused)]) from None
    values = np.asarray(resized, np.float64).reshape(height, width, channels) * pixels.scale + pixels.offset
    values = values if is_last else values.transpose(2, 0, 1)
    return {tensor.name: sampling.of_real(values.reshape(tensor.shape), tensor)}


def _change(width: int, height: int, new_width: int, new_height: int) -> str:
    """Describe the change to a resized image if it is stretched or enlarged a lot; else ""."""
    across, down = new_width / width, new_height / height
    if not 1 / _MOST_STRETCHED <= across / down <= _MOST_STRETCHED:
        what = "stretched"
    elif min(across, down) > _MOST_ENLARGED:
        what = "enlarged"
    else:
        return ""
    return f"{height}x{width} pixels {what} to {new_height}x{new_width}"


def _layout(tensor: Tensor) -> tuple[int, int, int, bool]:
    """Return an image input's height, width, channels, and whether the channels come last."""
    if len(tensor.shape) == 4 and tensor.shape[0] == 1:
        _, first, second, third = tensor.shape
        if third in _CHANNELS:
            return first, second, third, True
        if first in _CHANNELS:
            return second, third, first, False
    raise UsageError(
        f"the input {tensor.name} is not an image",
        details=[
            f"found     {formatting.tensor(tensor)}",
            "expected  [1,height,width,1 or 3] or [1,1 or 3,height,width]",
        ],
        hint="give the samples as a .npz file",
    )


def _are_classes(array: arrays.StoredArray) -> bool:
    return array.dtype.kind in "iu" and len(array.shape) >= 1 and array.size == array.shape[0]


def labels_of(path: Path) -> Array:
    """Read the labels of samples: an array, of a text with the same number of labels in each line a row for each line.

    Raises:
        UsageError: the file is missing, or contains something other than numbers.
    """
    try:
        if path.suffix == ".npy":
            (labels,) = sampling.read(path).values()
        else:
            arrays.check_regular(path)
            if path.stat().st_size > _LABELS_BYTES:
                raise UsageError(f"--labels: {path} is larger than {formatting.kilobytes(_LABELS_BYTES)}")
            rows = [row.split() for row in path.read_text("utf-8-sig").replace(",", " ").splitlines() if row.strip()]
            is_even = len({len(row) for row in rows}) == 1
            labels = np.array(rows if is_even else [text for row in rows for text in row]).astype(np.float64)
            is_whole = not any("." in text or "n" in text or "N" in text for row in rows for text in row)
            labels = labels.astype(np.int64) if is_whole else labels
        if labels.dtype.kind not in "biuf":
            raise ValueError("not numbers")
    except (OSError, ValueError, MemoryError):
        raise UsageError(
            f"--labels: {path} does not contain numbers", hint="give a .npy file, or a text with one label per line"
        ) from None
    return labels
