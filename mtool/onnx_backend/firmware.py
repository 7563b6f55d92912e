"""Many models in one firmware for a board, driven over mtool's own RPC.

To the runtime the whole of them is one model, with a request and a reply of bytes. The request is the number of a
model (4 bytes) and its inputs one after another, the reply its outputs.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtool import build as building
from mtool import filetree, project, session
from mtool.boards import Board
from mtool.filetree import FileTree
from mtool.manifest import Manifest, Tensor
from mtool.onnx_backend.batch import Array, CModel, packed, unpacked
from mtool.session import Device

NAME = "batch"


class Firmware:
    """Models on a board."""

    def __init__(self, device: Device, models: Sequence[CModel]) -> None:
        self._device, self.models = device, models

    def run(self, number: int, inputs: Sequence[Array]) -> list[Array]:
        """Run one model; `inputs` are those of the ONNX model, in its order, constants included.

        Raises:
            DeviceError: the model failed on the board.
            CommunicationError: the board stopped answering.
        """
        request, reply = self._device.manifest.inputs[0], self._device.manifest.outputs[0]
        data = number.to_bytes(4, "little") + packed(self.models[number], inputs)
        sent = np.frombuffer(data.ljust(request.bytes, b"\0"), np.uint8)
        return unpacked(self.models[number], self._device.run({request.name: sent})[reply.name].tobytes())

    def close(self) -> None:
        """End the session."""
        self._device.close()

    def __enter__(self) -> "Firmware":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def build(models: Sequence[CModel], folder: Path, board: Board) -> Firmware:
    """Write the models' C, compiled for the board, as a project into `folder`; build it and open a session with it.

    Raises:
        FitError: the models do not fit the board.
        BuildError: a tool is missing, or the C compiler refuses a model.
        CommunicationError: the board does not answer.
    """
    files, manifest = _as_one_model(models)
    tree, _ = project.render(files, manifest, board)
    filetree.write(tree, folder)
    building.build(folder)
    return Firmware(session.open(folder), models)


def _as_one_model(models: Sequence[CModel]) -> tuple[FileTree, Manifest]:
    """Return the files of all models and of what drives them, and the manifest of the whole."""
    files = {}
    for model in models:
        for name in model.files:
            if not name.endswith("_rpc.c"):  # included, not compiled by itself: the runtime's functions come in once
                files[name.replace(".c", ".inc")] = model.files[name]
    request = 4 + max((_bytes(model.manifest.inputs) for model in models), default=0)
    reply = max((1, *(_bytes(model.manifest.outputs) for model in models)))
    tensors = [
        Tensor(name=name, c_name=name, dtype="uint8", shape=(size,), bytes=size, arena_offset=None)
        for name, size in (("request", request), ("reply", reply))
    ]
    files[f"{NAME}.c"] = _driver(models).encode()
    model_hash = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
    files[f"{NAME}_rpc.c"] = _descriptor(tensors, model_hash).encode()
    manifest = Manifest(
        mtool_version="", model=NAME, model_file="", model_hash=model_hash, io="external", inputs=(tensors[0],),
        outputs=(tensors[1],), macs=sum(model.manifest.macs for model in models), parameters=0, arena_bytes=0,
        arena_bound_bytes=0, constant_bytes=0, constants=(), symbols={}, operators=(),
    )  # fmt: skip
    return FileTree(files), manifest


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.bytes for tensor in tensors)


def _driver(models: Sequence[CModel]) -> str:
    """Return the C that includes the models and runs the one that a request names."""
    lines = ["#include <stdint.h>", "#include <string.h>", ""]
    for model in models:
        name = model.manifest.model
        lines += [f'#include "{name}.inc"', f'#include "{name}_weights.inc"']
    signature = "int32_t batch_run(const uint8_t *request, uint8_t *reply)"
    lines += ["", f"{signature};", signature, "{", "    uint32_t number;", "    memcpy(&number, request, 4);"]
    lines += ["    request += 4;", "    switch (number) {"]
    for number, model in enumerate(models):
        manifest = model.manifest
        name = manifest.model
        lines += [f"    case {number}:"]
        for way, tensors in (("request", manifest.inputs), ("reply", manifest.outputs)):
            offset = 0
            for tensor in tensors:
                member = f"{name}_arena_{'inputs' if way == 'request' else 'outputs'}.{tensor.c_name}"
                pair = (member, f"request + {offset}") if way == "request" else (f"reply + {offset}", member)
                lines += [f"        memcpy({pair[0]}, {pair[1]}, {tensor.bytes});"] * (tensor.bytes > 0)
                offset += tensor.bytes
            if way == "request":
                lines += [f"        if ({name}_run(&{name}_arena_inputs, &{name}_arena_outputs) != 0)"]
                lines += ["            return 1;"]
        lines += ["        return 0;"]
    return "\n".join([*lines, "    default:", "        return 1;", "    }", "}", ""])


def _descriptor(tensors: Sequence[Tensor], model_hash: str) -> str:
    lines = ['#include "mt_model.h"', "", "int32_t batch_run(const uint8_t *request, uint8_t *reply);", ""]
    lines += [f"static uint8_t {tensor.c_name}[{tensor.bytes}];" for tensor in tensors]
    lines += ["static int32_t run(const struct mt_model *model)", "{"]
    lines += ["    (void)model;", "    return batch_run(request, reply);", "}"]
    lines += ["static int32_t step(const struct mt_model *model, uint16_t number)", "{"]
    lines += ["    return number == 0 ? run(model) : 1;", "}"]
    lines += [
        f"static const struct mt_tensor {tensor.c_name}_tensor[] = {{{{{tensor.c_name}, {tensor.bytes}}}}};"
        for tensor in tensors
    ]
    lines += ["const struct mt_model mt_model = {"]
    fields = {
        "name": f'"{NAME}"', "model_hash": f'"{model_hash}"', "inputs": "request_tensor", "outputs": "reply_tensor",
        "input_count": "1", "output_count": "1", "operator_count": "1", "run": "run", "step": "step",
    }  # fmt: skip
    lines += [f"    .{name} = {value}," for name, value in fields.items()]
    lines += ["};", ""]
    return "\n".join(lines)
