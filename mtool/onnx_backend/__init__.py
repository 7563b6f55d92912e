"""ONNX's Backend API (onnx.backend.base): models run as the C that mtool makes of them.

    import mtool.onnx_backend as backend
    outputs = backend.run_model(model, inputs)                          # on this computer
    outputs = backend.run_model(model, inputs, device="mps2_an386")     # on a board, in its emulator

`prepare` takes `constants=`, a mapping from input names to arrays: an input whose value shapes the C
(a Reshape's shape, a Slice's starts) has to be known when the model is compiled. `NeedsValues` names
those that are missing. `dims=` has the values of symbolic dimensions, `maxima=` the largest sizes of what
has a size that depends on data; such outputs come back at their true size.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from mtool import boards
from mtool.compiler import target_of
from mtool.errors import UsageError
from mtool.onnx_backend import batch, firmware
from mtool.onnx_backend.batch import Array, Batch
from mtool.onnx_backend.firmware import Firmware
from mtool.workflow import dynamic_outputs

__all__ = ["Prepared", "ToolBackend", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_HOST = "CPU"


class Prepared(BackendRep):  # type: ignore[misc]
    """One model, built for a device."""

    def __init__(self, built: Batch | Firmware, folder: "tempfile.TemporaryDirectory[str]") -> None:
        self._built, self._folder = built, folder

    def run(self, inputs: Sequence[Array] | Array, **kwargs: Any) -> tuple[Array, ...]:
        """Run it; the inputs are those of the ONNX model in its order, the outputs a named tuple."""
        given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        tensors = self._built.models[0].manifest.outputs
        found = zip((tensor.name for tensor in tensors), self._built.run(0, given), strict=True)
        named = dynamic_outputs.cut(tensors, dict(found))
        outputs: tuple[Array, ...] = namedtupledict("Outputs", list(named))(*named.values())
        return outputs

    def close(self) -> None:
        """End the program and delete its files."""
        self._built.close()
        self._folder.cleanup()

    def __del__(self) -> None:  # onnx's own runner does not close what it prepares
        self.close()


class ToolBackend(Backend):  # type: ignore[misc]
    """onnx.backend.base.Backend: "CPU" is this computer, the name of an emulated board that board."""

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = _HOST,
        *,
        constants: Mapping[str, Array] | None = None,
        dims: Mapping[str, int] | None = None,
        maxima: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Prepared:
        """Compile and build a model.

        Raises:
            UsageError: there is no such device.
            NeedsValues: values of inputs have to be known; give them as `constants`.
            ModelError: the model can't be compiled.
            FitError: it does not fit the board.
            BuildError: a tool is missing: the C compiler, the emulator.
        """
        if not cls.supports_device(device):
            raise UsageError(
                f"there is no device {device!r}",
                details=[f"expected: {_HOST} or a board that has an emulator; found: {device}"],
                hint="see which boards have one: mtool boards",
            )
        folder = tempfile.TemporaryDirectory(prefix="mtool-")
        try:
            if device.partition(":")[0] == _HOST:
                compiled = batch.to_c(model, "model", constants, dims, maxima=maxima)
                return Prepared(batch.build([compiled], Path(folder.name)), folder)
            board = boards.get(device)
            compiled = batch.to_c(model, "model", constants, dims, target_of(board), maxima)
            return Prepared(firmware.build([compiled], Path(folder.name) / "project", board), folder)
        except BaseException:
            folder.cleanup()
            raise

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = _HOST, **kwargs: Any) -> tuple[Array, ...]:
        """Compile, build and run a model once."""
        prepared = cls.prepare(model, device, **kwargs)
        try:
            return prepared.run(inputs)
        finally:
            prepared.close()

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether it is "CPU", or a board that has an emulator."""
        board = boards.load_all().get(device)
        return device.partition(":")[0] == _HOST or (board is not None and board.emulator is not None)


prepare = ToolBackend.prepare
run_model = ToolBackend.run_model
run_node = ToolBackend.run_node
supports_device = ToolBackend.supports_device
is_compatible = ToolBackend.is_compatible
