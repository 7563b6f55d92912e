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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from mtool import boards
from mtool.base.errors import NeedsValues, UsageError
from mtool.compiler.compilation import target_of
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.frontend.dimensions import open_negative_dimensions, symbolic_dimensions
from mtool.compiler.kernels.target import Target
from mtool.plugins.onnx_backend import batch, firmware
from mtool.plugins.onnx_backend.batch import HOST, Array, Built, CModel, input_names, to_c
from mtool.stages import samples as sampling

# Compile a model for one run: values that are known only from its inputs become part of the C.
#
# These are the values of inputs that determine the code (the axes of a reduction, the starts of a slice) and the sizes
# of symbolic dimensions. For a size that depends on data, memory for the largest possible size is reserved.

_SHOWN = 8  # elements of an array in a message; a longer one is shortened


@dataclass(frozen=True, slots=True)
class Specialisation:
    """A model as C for runs whose inputs match (`fits`): the inputs in `fixed`, by name, are constants."""

    model: CModel
    inputs: Sequence[str]
    fixed: Mapping[str, Array]

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Return whether it can run with these inputs, which are all inputs of the ONNX model."""
        if len(arrays) != len(self.inputs):
            return False
        fed = zip(self.model.fed, self.model.manifest.inputs, strict=True)
        return all(np.shape(arrays[index]) == tensor.shape for index, tensor in fed) and all(
            _same(np.asarray(data), self.fixed[name])
            for name, data in zip(self.inputs, arrays, strict=True)
            if name in self.fixed
        )

    def outputs(self, arrays: Sequence[Array]) -> dict[str, Array]:
        """Return the outputs by name, in order and with their true sizes, from the C function's outputs."""
        tensors = self.model.manifest.outputs
        return sampling.cut(tensors, {tensor.name: data for tensor, data in zip(tensors, arrays, strict=True)})


def waits_for_run(model: onnx.ModelProto, options: ModelOptions) -> bool:
    """Return whether a model has dimensions that are unknown before it runs."""
    return any(dimension.name not in options.dims for dimension in symbolic_dimensions(_opened(model)))


def specialise(
    model: onnx.ModelProto,
    arrays: Sequence[Array] | None,
    options: ModelOptions,
    name: str = "model",
    target: Target = HOST,
) -> Specialisation:
    """Compile a model to C for a run.

    Args:
        model: the model.
        arrays: the run's inputs, all of the ONNX model's in its order; None: they are unknown.
        options: options that are known in advance.
        name: the prefix of its C symbols.
        target: the target to compile for.

    Raises:
        NeedsValues: the values of some inputs must be known, and `arrays` is None.
        UsageError: the inputs are not those of the model.
        ModelError: the model can't be compiled.
    """
    model = _opened(model)
    names = input_names(model)
    if arrays is not None and len(arrays) != len(names):
        details = [f"expected {len(names)}: {', '.join(names)}", f"found    {len(arrays)}"]
        raise UsageError("wrong number of inputs for the model", details=details)
    fixed: dict[str, Array] = {}
    while True:  # the next request may depend on the values known now
        constants, dims = {**options.constants, **fixed}, options.dims
        if arrays is not None:
            open_inputs = {value: data for value, data in zip(names, arrays, strict=True) if value not in constants}
            dims = {**dims, **_sizes(model, open_inputs, dims)}
        try:
            run_options = replace(options, constants=constants, dims=dims, natural_maxima=True)
            compiled = to_c(model, name, run_options, target)
            return Specialisation(compiled, names, fixed)
        except NeedsValues as needed:
            missing = [value for value in needed.inputs if value not in constants]
            if arrays is None or not missing:
                raise
            fixed |= {value: np.array(arrays[names.index(value)]) for value in missing}


def check_constants(model: onnx.ModelProto, arrays: Sequence[Array], options: ModelOptions) -> None:
    """Refuse inputs that differ from their values in `constants=`, which are part of the C.

    Raises:
        UsageError: an input differs; the message has its name.
    """
    for name, data in zip(input_names(model), arrays, strict=False):
        if name not in options.constants:
            continue
        expected, actual = np.asarray(options.constants[name]), np.asarray(data)
        if not _same(actual, expected):
            shown, other = (np.array2string(array, threshold=_SHOWN) for array in (expected, actual))
            raise UsageError(
                f"input {name!r} differs from its value in constants=",
                details=[f"expected {shown}, as in constants=", f"found    {other}"],
                hint="leave it out of constants= if it differs between runs",
            )


def _opened(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    open_negative_dimensions(copy)
    return copy


def _sizes(model: onnx.ModelProto, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions that these inputs of a run have.

    Raises:
        UsageError: two inputs disagree, or one has the wrong number of dimensions.
    """
    sizes: dict[str, int] = {}
    for dimension in symbolic_dimensions(model):
        if dimension.value not in arrays:
            continue
        shape = np.shape(arrays[dimension.value])
        where = f"dimension {dimension.number} of input {dimension.value!r}"
        if dimension.number >= len(shape):
            raise UsageError(f"missing {where}", details=[f"its shape is {list(shape)}"])
        size = shape[dimension.number]
        expected = dims.get(dimension.name, sizes.get(dimension.name, size))
        if expected != size:
            details = [f"expected {expected}", f"found    {size}, {where}"]
            raise UsageError(f"dimension {dimension.name} has two sizes", details=details)
        sizes[dimension.name] = size
    return sizes


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.astype(b.dtype).tobytes() == b.tobytes()


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

    def __init__(self, model: onnx.ModelProto, options: ModelOptions, board: boards.Board | None) -> None:
        self._model, self._options, self._board = onnx.ModelProto(), options, board
        self._model.CopyFrom(model)  # a copy, as the caller may change the model before it runs
        self.programs: list[Program] = []
        if waits_for_run(model, options):
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
        check_constants(self._model, arrays, self._options)
        program = next((program for program in self.programs if program.specialisation.fits(arrays)), None)
        if program is None:
            program = self._build(arrays)
        outputs_by_name = program.run(arrays)
        outputs: tuple[Array, ...] = namedtupledict("Outputs", list(outputs_by_name))(*outputs_by_name.values())
        return outputs

    def _build(self, arrays: Sequence[Array] | None) -> Program:
        """Build a program for a run, and close the oldest one if there are too many."""
        target = HOST if self._board is None else target_of(self._board)
        program = Program(specialise(self._model, arrays, self._options, target=target), self._board)
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
