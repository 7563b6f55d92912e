"""Symbolic dimensions of a model's inputs: their names, their values, and a suggestion where one is missing."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import onnx

from mtool.base.errors import ModelError
from mtool.base.escaping import argument
from mtool.base.frozen import frozen
from mtool.compiler.frontend import tensors
from mtool.compiler.frontend.user_values import check_names

_TRIED = (1, 2, 8, 32, 128, 256, 512, 1024, 4096, 16000)
_MAX_TRIES = 60
_MAX_NODES = 20_000  # imported for one suggestion,
_MAX_BYTES = 1 << 26  # and bytes of the model copied

Works = Callable[[Mapping[str, int]], bool]
"""Returns whether a model can be imported with these values of its dimensions."""


@frozen
class SymbolicDimension:
    """A dimension without a size: `number` of the input `value`; `name` is what `--dim` calls it."""

    value: str
    number: int
    name: str


def open_negative_dimensions(model: onnx.ModelProto) -> None:
    """Replace negative dimensions (-1), which some exporters write, by symbolic ones."""
    for graph in tensors.graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
                if dim.HasField("dim_value") and dim.dim_value < 0:
                    dim.ClearField("dim_value")


def symbolic_dimensions(model: onnx.ModelProto) -> Iterator[SymbolicDimension]:
    """Yield the symbolic dimensions of a model's inputs, in order.

    Raises:
        ModelError: an input is not a tensor.
    """
    for value, number, dim in _of_inputs(model, "the model"):
        if not dim.HasField("dim_value"):
            yield SymbolicDimension(value.name, number, _name(value, number, dim))


def bind_dimensions(
    model: onnx.ModelProto,
    dims: Mapping[str, int],
    title: str,
    works: Works | None = None,
    maxima: Collection[str] = (),
) -> None:
    """Set every symbolic dimension of every input to its value.

    Args:
        model: the model, which is changed.
        dims: the values, by name.
        title: what messages call the model.
        works: returns whether the model can be compiled with suggested values.
        maxima: the names given with --max, for the message.

    Raises:
        UsageError: a name in `dims` is not a dimension of the model.
        ModelError: a dimension has no value.
    """
    entries = list(_of_inputs(model, title))
    named = [(_name(*entry), *entry) for entry in entries if not entry[2].HasField("dim_value")]
    unbound = [entry for entry in named if entry[0] not in dims]
    if unbound:
        names = list(dict.fromkeys(name for name, *_ in unbound))
        raise ModelError(
            f"{title} has {'a dimension' if len(names) == 1 else 'dimensions'} without a value",
            details=[
                *(f"input {value.name!r}, dimension {number}: {name}" for name, value, number, _ in unbound),
                *(f"--max {name}: no input has a dimension {name}" for name in maxima if name not in dims),
            ],
            hint=_hint(names, {name: dims[name] for name, *_ in named if name in dims}, _tries(model), works),
        )
    for name, _, _, dim in named:
        dim.Clear()
        dim.dim_value = dims[name]
    check_names(dims, (name for name, *_ in named), "symbolic dimension", title)


_Dimension = tuple[onnx.ValueInfoProto, int, onnx.TensorShapeProto.Dimension]


def _of_inputs(model: onnx.ModelProto, title: str) -> Iterator[_Dimension]:
    initialised = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in initialised:
            continue
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"input {value.name!r} of {title} is not a tensor")
        for number, dim in enumerate(value.type.tensor_type.shape.dim):
            yield value, number, dim


def _name(value: onnx.ValueInfoProto, number: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    return dim.dim_param or f"{value.name}_{number}"


def _tries(model: onnx.ModelProto) -> int:
    size: int = model.ByteSize()
    return min(_MAX_TRIES, _MAX_NODES // max(len(model.graph.node), 1), _MAX_BYTES // max(size, 1))


def _hint(names: Sequence[str], fixed_sizes: Mapping[str, int], tries: int, works: Works | None) -> str:
    """Return the hint: the options with sizes that work, or without sizes if none are found."""
    for sizes in itertools.islice(_guesses(names), tries):
        if works is not None and works({**fixed_sizes, **sizes}):
            options = " ".join(f"--dim {argument(name)}={sizes[name]}" for name in names)
            if max(sizes.values()) == 1:
                return f"give {options}"
            return f"give {options}; the model compiles with these sizes, but may have been trained with others"
    options = " ".join(f"--dim {argument(name)}=N" for name in names)
    return f"give {options}, with the sizes that the model was trained for"


def _guesses(names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Yield sizes to try, the smallest first: one dimension with the size and the others 1, or all with the size."""
    for size in _TRIED:
        if size > 1:
            yield from ({**dict.fromkeys(names, 1), name: size} for name in reversed(names))
        if size == 1 or len(names) > 1:
            yield dict.fromkeys(names, size)
