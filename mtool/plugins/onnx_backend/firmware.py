"""Many models in one firmware for a board, driven over mtool's own RPC.

To the runtime they are one model, with a request and a reply of bytes. The request is the number of a model (4 bytes)
and its inputs one after another; the reply is its outputs.
"""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from mtool import project
from mtool.base import filetree
from mtool.base.errors import BuildError
from mtool.base.filetree import FileTree
from mtool.boards import Board
from mtool.device import build as building
from mtool.device import session
from mtool.device.session import Device
from mtool.manifest import Manifest, Tensor
from mtool.plugins.onnx_backend import batch
from mtool.plugins.onnx_backend.batch import Built, CModel

NAME = "batch"


class Firmware(Built):
    """A board's firmware that contains the models."""

    def __init__(self, device: Device, models: Sequence[CModel], refused: dict[int, str]) -> None:
        super().__init__(models, refused)
        self.device = device

    def _ask(self, request: bytes, model: Manifest) -> bytes:
        put, reply = self.device.manifest.inputs[0], self.device.manifest.outputs[0]
        sent = np.frombuffer(request.ljust(put.bytes, b"\0"), np.uint8)
        return self.device.run({put.name: sent})[reply.name].tobytes()

    def close(self) -> None:
        """End the session."""
        self.device.close()


def build(models: Sequence[CModel], folder: Path, board: Board) -> Firmware:
    """Write the models' C, compiled for the board, as a project to `folder`; build it and open a session with it.

    Raises:
        FitError: the models do not fit the board.
        BuildError: a tool is missing, or the build fails and the error names no model.
        CommunicationError: the board does not answer.
    """
    messages: dict[int, str] = {}
    while True:
        files, manifest = _as_one_model(models, messages)
        tree, _ = project.render(files, manifest, board)
        filetree.write(tree, folder)
        try:
            building.build(folder)
        except BuildError as failed:
            new = batch.refused("\n".join(failed.details), models)
            if not new.keys() - messages.keys():
                raise
            messages.update(new)
        else:
            return Firmware(session.open(folder), models, messages)


def _as_one_model(models: Sequence[CModel], refused: Collection[int]) -> tuple[FileTree, Manifest]:
    """Return the files of all models that are not refused, with their driver, and the manifest of the whole."""
    accepted = [model for number, model in enumerate(models) if number not in refused]
    manifests = {number: model.manifest for number, model in enumerate(models) if number not in refused}
    files = {}
    for model in accepted:
        for name in model.files:
            if not name.endswith("_rpc.c"):  # included, not compiled by itself: the runtime's functions come in once
                files[name.replace(".c", ".inc")] = model.files[name]
    request, reply = (
        Tensor(name=name, c_name=name, dtype="uint8", shape=(size,), bytes=size, arena_offset=None)
        for name, size in (
            ("request", 4 + max((_bytes(manifest.inputs) for manifest in manifests.values()), default=0)),
            ("reply", max((1, *(_bytes(manifest.outputs) for manifest in manifests.values())))),
        )
    )
    files[f"{NAME}.c"] = batch.rendered("firmware.c.j2", models=manifests).encode()
    model_hash = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
    descriptor = batch.rendered("firmware_rpc.c.j2", name=NAME, model_hash=model_hash, request=request, reply=reply)
    files[f"{NAME}_rpc.c"] = descriptor.encode()
    manifest = Manifest(
        mtool_version="", model=NAME, model_file="", model_hash=model_hash, io="external", inputs=(request,),
        outputs=(reply,), macs=sum(manifest.macs for manifest in manifests.values()), parameters=0, arena_bytes=0,
        arena_bound_bytes=0, constant_bytes=0, constants=(), symbols={}, operators=(),
    )  # fmt: skip
    return FileTree(files), manifest


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.bytes for tensor in tensors)
