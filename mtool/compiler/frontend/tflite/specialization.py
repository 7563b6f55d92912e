"""Make a model what a user says of it: sizes of dimensions that the file leaves open, inputs that are constants."""

from dataclasses import replace

import numpy as np

from mtool.base.errors import UsageError
from mtool.compiler.frontend.given_values import found_in, limits_of, stored_as
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array


def specialise(t: Translation, options: ModelOptions, title: str) -> None:
    """Give open dimensions of the inputs their sizes, and inputs their values.

    Raises:
        UsageError: the model has no such dimension or input, or the value does not go into the input.
    """
    inputs = {t.names[number]: number for number in t.model.inputs}
    unknown = sorted(set(options.constants) - set(inputs))
    if unknown:
        raise UsageError(f"{title} has no input named {', '.join(unknown)}")
    sizes = dict(options.dims)
    for name, number in inputs.items():
        t.tensors[number] = _sized(t.tensors[number], name, sizes)
    if sizes:
        raise UsageError(f"{title} has no symbolic dimension named {', '.join(sorted(sizes))}")
    for name, data in options.constants.items():
        t.fix(inputs[name], _value(t.tensors[inputs[name]], name, data, title))


def _sized(tensor: Tensor, name: str, sizes: dict[str, int]) -> Tensor:
    """Return a tensor with the sizes of its open dimensions, which are taken out of `sizes`."""
    shape = list(tensor.shape)
    for dim in tensor.open:
        shape[dim] = sizes.pop(f"{name}_{dim}", shape[dim])
    return replace(tensor, shape=tuple(shape))


def _value(tensor: Tensor, name: str, data: Array, title: str) -> Array:
    value = np.asarray(data)
    stored = stored_as(value, tensor.dtype)
    if stored is not None and tensor.allows(value.shape):
        return stored
    if stored is None or value.size != int(np.prod(tensor.shape)):
        wanted = f"{tensor.dtype}{list(tensor.shape)}{limits_of(tensor.dtype)}"
        raise UsageError(
            f"--const {name} does not go into that input of {title}",
            details=[f"expected  {wanted}", f"found     {found_in(value)}"],
        )
    return stored.reshape(tensor.shape)
