"""Every tensor of an inference as a .npy file, by the name that it has in the model: `--dump DIR`."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtool.base import filetree
from mtool.base.errors import UsageError
from mtool.base.escaping import file_name
from mtool.base.filetree import FileTree
from mtool.compiler.ir.graph import Move, undone
from mtool.device.session import Device
from mtool.device.session.layers import intermediates
from mtool.stages.samples import Array, Sample

INDEX = "index.json"
"""The file that tells each tensor's name, type, shape and operator."""

_Computed = tuple[str, dict[str, object], Array, tuple[Move, ...]]  # the tensor's name, what is told of it, and moves


def dump(device: Device, samples: Sequence[Sample], folder: Path) -> None:
    """Run samples operator by operator and write every tensor; those of several samples to folders 0, 1, ...

    A tensor is written in the model's own layout, as far as its operator kept what that takes: "moves" of the index
    are those that are left. What an earlier dump wrote to the folder is replaced.

    Args:
        device: an open session.
        samples: the inputs, in order.
        folder: where to.

    Raises:
        UsageError: the folder holds something else, or can't be written.
        DeviceError: an operator failed.
    """
    files: dict[str, bytes] = {}
    for number, sample in enumerate(samples):
        under = f"{number}/" if len(samples) > 1 else ""
        files |= {f"{under}{name}": data for name, data in _files(device, sample).items()}
    if len(samples) > 1:
        files[INDEX] = (json.dumps({"samples": len(samples)}) + "\n").encode()
    filetree.write(FileTree(files), folder)


def check(folder: Path) -> None:
    """Say now that a dump can't be written to a folder: a new one, an empty one and an earlier dump are right.

    Raises:
        UsageError: it holds something else, or can't be written.
    """
    if folder.is_dir() and not (folder / INDEX).is_file() and any(folder.iterdir()):
        raise UsageError(f"--dump {folder}: that folder holds something else than a dump", hint="give a new folder")
    filetree.check_folder(folder)


def _files(device: Device, sample: Sample) -> dict[str, bytes]:
    rows: list[dict[str, object]] = []
    files: dict[str, bytes] = {}

    def add(tensor: str, array: Array, **told: object) -> None:
        shown = file_name(tensor).replace(":", "_")  # of which Windows has its own meaning
        taken = {path.lower() for path in files}
        path = next(
            path
            for path in (f"{shown}.npy", *(f"{shown}~{number}.npy" for number in range(2, len(files) + 3)))
            if path.lower() not in taken
        )
        files[path] = _npy(array)
        rows.append({"file": path, "tensor": tensor, "dtype": str(array.dtype), "shape": list(array.shape), **told})

    for name, array in sample.items():
        add(name, np.asarray(array), kind="input")
    for name, told, array, moves in _computed(device, sample):
        plain, left = undone(array, moves)
        add(name, plain, **told, moves=[[what, list(numbers)] for what, numbers in left])
    files[INDEX] = (json.dumps({"tensors": rows}, indent=1) + "\n").encode()
    return files


def _computed(device: Device, sample: Sample) -> list[_Computed]:
    """Return what operators wrote, the rows of one that works in parts joined: name, operator, array, moves."""
    parts: dict[str, list[_Computed]] = {}
    for operator, operand, array in intermediates(device, sample):
        source = operand.source
        if operator.whole and source is None:
            continue  # padding that is written between rows
        name = source.tensor if source else operand.value
        told: dict[str, object] = {
            "kind": "computed" if source else "of mtool's own",
            "operator": operator.index,
            "name": operator.whole or operator.name,
            "label": operator.label,
        }
        one = (name, told, array.copy(), source.moves if source else ())
        parts.setdefault(operator.whole or f"{operator.index} {operand.value}", []).append(one)
    found: list[_Computed] = []
    for pieces in parts.values():
        name, told, array, moves = pieces[0]
        if len(pieces) > 1:
            array = np.concatenate([piece[2] for piece in pieces], axis=1)
            moves = moves[:-1] if moves and moves[-1][0] == "rows" else moves
        found.append((name, told, array, moves))
    return found


def _npy(array: Array) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    return data.getvalue()
