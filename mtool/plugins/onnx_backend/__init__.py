"""ONNX's Backend API (onnx.backend.base): models run as the C that mtool makes of them.

    import mtool.plugins.onnx_backend as backend
    outputs = backend.run_model(model, inputs)                          # on this computer
    outputs = backend.run_model(model, inputs, device="mps2_an386")     # on a board, in its emulator

Some inputs' values determine the C (a Reshape's shape, a Slice's starts), as do symbolic dimensions. If these are not
known before a run, `prepare` waits for the first `run` and compiles for its values and sizes; a run with others
compiles again. `constants=`, a mapping from input names to arrays, and `dims=`, the values of symbolic dimensions, give
them in advance; each run must then pass the same value for such an input. `maxima=` limits sizes that depend on data,
to reserve less than the largest possible size; such outputs are returned with their true size.
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
_MOST_PROGRAMS = 4  # of one model, built for different values


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
        """Run the model; outputs have their true sizes."""
        return self.specialisation.outputs(self._built.run(0, arrays))

    def close(self) -> None:
        """End the program and delete its files."""
        self._built.close()
        self._folder.cleanup()


class Prepared(BackendRep):  # type: ignore[misc]
    """One model for a device: built, or waiting for the inputs that determine the C."""

    def __init__(self, model: onnx.ModelProto, given: ModelOptions, board: boards.Board | None) -> None:
        self._model, self._given, self._board = onnx.ModelProto(), given, board
        self._model.CopyFrom(model)  # a copy, as the caller may change the model before it runs
        self.programs: list[Program] = []
        if waits_for_run(model, given):
            return
        with contextlib.suppress(NeedsValues):  # the first run provides them
            self._build(None)

    def run(self, inputs: Sequence[Array] | Array, **kwargs: Any) -> tuple[Array, ...]:
        """Run the model; inputs are in the ONNX model's order, outputs are a named tuple.

        Raises:
            UsageError: the inputs are not those of the model, or one differs from its value in `constants=`.
            ModelError, FitError, BuildError: the program for these inputs can't be built.
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
        """Build a program for a run, and close the oldest one if there are too many."""
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
    """An onnx.backend.base.Backend: the device "CPU" is this computer; others are the names of emulated boards."""

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
        """Compile and build a model, or wait for values that only its first run provides.

        Raises:
            UsageError: the device is unknown.
            ModelError: the model can't be compiled.
            FitError: it does not fit the board.
            BuildError: a tool is missing: the C compiler, the emulator.
        """
        if not cls.supports_device(device):
            raise UsageError(
                f"unknown device {device!r}",
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
