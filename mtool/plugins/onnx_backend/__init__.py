"""ONNX's Backend API (onnx.backend.base): models run as the C that mtool makes of them.

    import mtool.plugins.onnx_backend as backend
    outputs = backend.run_model(model, inputs)                          # on this computer
    outputs = backend.run_model(model, inputs, device="mps2_an386")     # on a board, in its emulator

An input whose value shapes the C (a Reshape's shape, a Slice's starts) and a symbolic dimension are known when the
model runs: `prepare` then waits for the first `run`, and the C is made for the values and sizes of that; a run with
others makes another. `constants=`, a mapping from input names to arrays, and `dims=`, the values of symbolic
dimensions, say them before; a run gives such an input the same value again. `maxima=` has the largest sizes of what has
a size that depends on data, where not as many elements shall have room as there can be; such outputs come back at their
true size.
"""

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from mtool import boards
from mtool.base.errors import NeedsValues, UsageError
from mtool.compiler.compilation import target_of
from mtool.compiler.frontend import ModelOptions
from mtool.plugins.onnx_backend import batch, firmware
from mtool.plugins.onnx_backend.batch import HOST, Array, Built
from mtool.plugins.onnx_backend.specialization import (
    Specialisation,
    check_constants,
    specialise,
    waits_for_run,
)

__all__ = ["Prepared", "ToolBackend", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_HOST = "CPU"
_MOST_PROGRAMS = 4  # of one model, built for runs with other values


class Program:
    """A model built for runs of one kind; its files are deleted when it is closed."""

    def __init__(self, specialisation: Specialisation, board: boards.Board | None) -> None:
        self.specialisation = specialisation
        self._folder = tempfile.TemporaryDirectory(prefix="mtool-")
        models = [specialisation.model]
        try:
            self._built: Built = (
                batch.build(models, Path(self._folder.name))
                if board is None
                else firmware.build(models, Path(self._folder.name) / "project", board)
            )
        except BaseException:
            self._folder.cleanup()
            raise

    def run(self, arrays: Sequence[Array]) -> Mapping[str, Array]:
        """Run it; the outputs have their true sizes."""
        return self.specialisation.outputs(self._built.run(0, arrays))

    def close(self) -> None:
        """End the program and delete its files."""
        self._built.close()
        self._folder.cleanup()


class Prepared(BackendRep):  # type: ignore[misc]
    """One model for a device: built, or waiting for the inputs that say how."""

    def __init__(self, model: onnx.ModelProto, given: ModelOptions, board: boards.Board | None) -> None:
        self._model, self._given, self._board = onnx.ModelProto(), given, board
        self._model.CopyFrom(model)  # whose owner may change it before it runs
        self.programs: list[Program] = []
        if waits_for_run(model, given):
            return
        with contextlib.suppress(NeedsValues):  # which the first run has
            self._build(None)

    def run(self, inputs: Sequence[Array] | Array, **kwargs: Any) -> tuple[Array, ...]:
        """Run it; the inputs are those of the ONNX model in its order, the outputs a named tuple.

        Raises:
            UsageError: the inputs are not those of the model, or one has another value than `constants=` gave it.
            ModelError, FitError, BuildError: what has to be built for these inputs can't be.
            DeviceError: the program died.
        """
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        check_constants(self._model, arrays, self._given)
        program = next((one for one in self.programs if one.specialisation.fits(arrays)), None)
        if program is None:
            program = self._build(arrays)
        named = program.run(arrays)
        outputs: tuple[Array, ...] = namedtupledict("Outputs", list(named))(*named.values())
        return outputs

    def _build(self, arrays: Sequence[Array] | None) -> Program:
        """Build a program for a run, and let go of the oldest if there are many."""
        target = HOST if self._board is None else target_of(self._board)
        program = Program(specialise(self._model, arrays, self._given, target=target), self._board)
        self.programs.append(program)
        if len(self.programs) > _MOST_PROGRAMS:
            self.programs.pop(0).close()
        return program

    def close(self) -> None:
        """End its programs and delete their files."""
        while self.programs:
            self.programs.pop().close()

    def __del__(self) -> None:  # onnx's own runner does not close what it prepares
        if hasattr(self, "programs"):
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
        """Compile and build a model, or wait for what only its first run tells.

        Raises:
            UsageError: there is no such device.
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
        board = None if device.partition(":")[0] == _HOST else boards.get(device)
        return Prepared(model, ModelOptions(dims or {}, constants or {}, maxima=maxima or {}), board)

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
