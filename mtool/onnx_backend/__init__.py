"""ONNX's Backend API (onnx.backend.base) on the host: models run as the C that mtool makes of them.

    import mtool.onnx_backend as backend
    outputs = backend.run_model(model, inputs)

`prepare` takes `constants=`, a mapping from input names to arrays: an input whose value shapes the C
(a Reshape's shape, a Slice's starts) has to be known when the model is compiled. `NeedsValues` names
those that are missing.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from mtool.onnx_backend.batch import Array, Batch, build, to_c

__all__ = ["HostBackend", "HostModel", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class HostModel(BackendRep):  # type: ignore[misc]
    """One model, built for this computer."""

    def __init__(self, batch: Batch, folder: "tempfile.TemporaryDirectory[str]") -> None:
        self._batch, self._folder = batch, folder

    def run(self, inputs: Sequence[Array] | Array, **kwargs: Any) -> tuple[Array, ...]:
        """Run it; the inputs are those of the ONNX model in its order, the outputs a named tuple."""
        given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        names = [tensor.name for tensor in self._batch.models[0].manifest.outputs]
        outputs: tuple[Array, ...] = namedtupledict("Outputs", names)(*self._batch.run(0, given))
        return outputs

    def close(self) -> None:
        """End the program and delete its files."""
        self._batch.close()
        self._folder.cleanup()

    def __del__(self) -> None:  # onnx's own runner does not close what it prepares
        self.close()


class HostBackend(Backend):  # type: ignore[misc]
    """onnx.backend.base.Backend with the host board for "CPU"."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", *, constants: Mapping[str, Array] | None = None, **kwargs: Any
    ) -> HostModel:
        """Compile and build a model.

        Raises:
            NeedsValues: values of inputs have to be known; give them as `constants`.
            ModelError: the model can't be compiled.
            BuildError: the C compiler is missing.
        """
        compiled = to_c(model, "model", constants)
        folder = tempfile.TemporaryDirectory(prefix="mtool-")
        return HostModel(build([compiled], Path(folder.name)), folder)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Array, ...]:
        """Compile, build and run a model once."""
        prepared = cls.prepare(model, device, **kwargs)
        try:
            return prepared.run(inputs)
        finally:
            prepared.close()

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether it is "CPU"."""
        return device.partition(":")[0] == "CPU"


prepare = HostBackend.prepare
run_model = HostBackend.run_model
run_node = HostBackend.run_node
supports_device = HostBackend.supports_device
is_compatible = HostBackend.is_compatible
