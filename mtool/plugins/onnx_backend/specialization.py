"""Compile a model for one run: values that are known only from its inputs become part of the C.

These are the values of inputs that determine the code (the axes of a reduction, the starts of a slice) and the sizes of
symbolic dimensions. For a size that depends on data, memory for the largest possible size is reserved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from mtool.base.errors import NeedsValues, UsageError
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.frontend.dimensions import open_negative_dimensions, symbolic_dimensions
from mtool.compiler.kernels.target import Target
from mtool.plugins.onnx_backend.batch import HOST, Array, CModel, input_names, to_c
from mtool.stages import samples as sampling

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

    def outputs(self, found: Sequence[Array]) -> dict[str, Array]:
        """Return the outputs by name, in order and with their true sizes, from the C function's outputs."""
        tensors = self.model.manifest.outputs
        return sampling.cut(tensors, {tensor.name: data for tensor, data in zip(tensors, found, strict=True)})


def waits_for_run(model: onnx.ModelProto, given: ModelOptions) -> bool:
    """Return whether a model has dimensions that are unknown before it runs."""
    return any(dimension.name not in given.dims for dimension in symbolic_dimensions(_opened(model)))


def specialise(
    model: onnx.ModelProto,
    arrays: Sequence[Array] | None,
    given: ModelOptions,
    name: str = "model",
    target: Target = HOST,
) -> Specialisation:
    """Compile a model to C for a run.

    Args:
        model: the model.
        arrays: the run's inputs, all of the ONNX model's in its order; None: they are unknown.
        given: options that are known in advance.
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
        found = [f"expected {len(names)}: {', '.join(names)}", f"found    {len(arrays)}"]
        raise UsageError("wrong number of inputs for the model", details=found)
    fixed: dict[str, Array] = {}
    while True:  # the next request may depend on the values known now
        constants, dims = {**given.constants, **fixed}, given.dims
        if arrays is not None:
            open_inputs = {value: data for value, data in zip(names, arrays, strict=True) if value not in constants}
            dims = {**dims, **_sizes(model, open_inputs, dims)}
        try:
            options = replace(given, constants=constants, dims=dims, natural_maxima=True)
            made = to_c(model, name, options, target)
            return Specialisation(made, names, fixed)
        except NeedsValues as needed:
            missing = [value for value in needed.inputs if value not in constants]
            if arrays is None or not missing:
                raise
            fixed |= {value: np.array(arrays[names.index(value)]) for value in missing}


def check_constants(model: onnx.ModelProto, arrays: Sequence[Array], given: ModelOptions) -> None:
    """Refuse inputs that differ from their values in `constants=`, which are part of the C.

    Raises:
        UsageError: an input differs; the message has its name.
    """
    for name, data in zip(input_names(model), arrays, strict=False):
        if name not in given.constants:
            continue
        wanted, found = np.asarray(given.constants[name]), np.asarray(data)
        if not _same(found, wanted):
            shown, other = (np.array2string(array, threshold=_SHOWN) for array in (wanted, found))
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


def _sizes(model: onnx.ModelProto, arrays: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of symbolic dimensions that these inputs of a run have.

    Raises:
        UsageError: two inputs disagree, or one has the wrong number of dimensions.
    """
    found: dict[str, int] = {}
    for dimension in symbolic_dimensions(model):
        if dimension.value not in arrays:
            continue
        shape = np.shape(arrays[dimension.value])
        where = f"dimension {dimension.number} of input {dimension.value!r}"
        if dimension.number >= len(shape):
            raise UsageError(f"missing {where}", details=[f"its shape is {list(shape)}"])
        size = shape[dimension.number]
        wanted = given.get(dimension.name, found.get(dimension.name, size))
        if wanted != size:
            details = [f"expected {wanted}", f"found    {size}, {where}"]
            raise UsageError(f"dimension {dimension.name} has two sizes", details=details)
        found[dimension.name] = size
    return found


def _same(one: Array, two: Array) -> bool:
    return one.shape == two.shape and one.astype(two.dtype).tobytes() == two.tobytes()
