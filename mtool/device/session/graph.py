"""The graph executor on the host: it reads the graph's JSON and calls the operators on the device one by one.

The tensors stay on the device. docs/executors.md describes the JSON, mtool/compiler/codegen/graph.py writes it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtool.base import plural, records, spelling
from mtool.base.errors import UsageError
from mtool.device.rpc import Client, protocol
from mtool.device.rpc.protocol import Placed
from mtool.device.session import tensors
from mtool.device.session.tensors import Array, array_of, bytes_of, place_of
from mtool.manifest import Manifest, Operand, Tensor

_NOTHING = "__nop"  # TVM's name for a reshape
Number = Annotated[int, Field(ge=0)]
Reference = tuple[Number, Number, Number]
Numbers = tuple[Literal["list_int"], tuple[Number, ...]]


class _Part(BaseModel):
    """A part of the JSON; keys that this executor does not need are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _NodeAttributes(_Part):
    func_name: str
    num_outputs: Number


class _Node(_Part):
    op: Literal["null", "tvm_op"]
    name: str
    inputs: tuple[Reference, ...]
    attrs: _NodeAttributes | None = None


class _Attributes(_Part):
    dltype: tuple[Literal["list_str"], tuple[str, ...]]
    shape: tuple[Literal["list_shape"], tuple[tuple[Number, ...], ...]]
    storage_memory: Numbers
    storage_place: Numbers


class _Graph(_Part):
    nodes: tuple[_Node, ...]
    arg_nodes: tuple[Number, ...]
    heads: tuple[Reference, ...]
    node_row_ptr: tuple[Number, ...]
    attrs: _Attributes

    def placed(self, reference: Reference) -> Placed:
        """Return a node's output tensor by [node, index, version]."""
        node, index, _ = reference
        number = self.node_row_ptr[node] + index
        if number >= self.node_row_ptr[node + 1]:
            raise IndexError(number)
        memory, place = self.attrs.storage_memory[1][number], self.attrs.storage_place[1][number]
        index, offset = (0, place) if memory == protocol.ARENA else (place, 0)
        return Placed(self.attrs.dltype[1][number], self.attrs.shape[1][number], memory, index, offset)


class GraphExecutor:
    """A graph whose operators are functions of a device.

    Args:
        client: the session with the device.
        manifest: the project's.
        text: the graph's JSON.
        work_s: the time limit of an operator in seconds, more than 0.

    Raises:
        UsageError: the JSON is malformed, or is another model's.
        DeviceError: the device does not have the functions.
    """

    def __init__(self, client: Client, manifest: Manifest, text: str | bytes, *, work_s: float) -> None:
        self._client = client
        self._manifest = manifest
        self._work_s = work_s
        self._set: dict[str, ArrayLike] = {}
        self._calls: list[tuple[int, list[Placed]]] = []
        """Each operator's function on the device, and its arguments."""
        self._written: dict[str, tuple[int, list[Placed]]] = {}
        """For each node's name, the number of calls until its outputs are written, and the outputs."""
        try:
            graph = _Graph.model_validate_json(text)
            self._inputs = [graph.placed((node, 0, 0)) for node in graph.arg_nodes]
            self._outputs = [graph.placed(head) for head in graph.heads]
            for number, node in enumerate(graph.nodes):
                if node.attrs is None:
                    continue
                writes = [graph.placed((number, index, 0)) for index in range(node.attrs.num_outputs)]
                if node.attrs.func_name != _NOTHING:
                    arguments = [*map(graph.placed, node.inputs), *writes]
                    self._calls.append((client.lookup(node.attrs.func_name), arguments))
                self._written[node.name] = len(self._calls), writes
        except (ValidationError, IndexError) as invalid:
            details = [str(invalid)]
            if isinstance(invalid, ValidationError):
                details = records.lines(invalid, 5)
            raise UsageError(
                f"the graph of {manifest.model} is malformed", details=details, hint="build it again"
            ) from None
        expected = [tensor.shape for tensor in (*manifest.inputs, *manifest.outputs)]
        actual = [placed.shape for placed in (*self._inputs, *self._outputs)]
        if expected != actual:
            raise UsageError(
                f"the graph does not belong to {manifest.model}",
                details=[f"expected input and output shapes {expected}", f"found {actual}"],
            )

    @classmethod
    def read(cls, client: Client, manifest: Manifest, folder: Path, *, work_s: float) -> Self:
        """Return the executor of a project folder's graph.

        Raises:
            UsageError: the project was built without a graph, or its JSON is malformed.
        """
        if not manifest.graph or manifest.project is None:
            raise UsageError(
                f"{folder} has no graph", details=["its operators are not packed functions"],
                hint="build it with: --executor graph-host",
            )  # fmt: skip
        path = folder / manifest.project.model / manifest.graph
        try:
            text = path.read_bytes()
        except OSError as missing:
            raise UsageError(f"{path} can't be read", details=[str(missing)], hint="build it again") from None
        return cls(client, manifest, text, work_s=work_s)

    def set_input(self, name: str, array: ArrayLike) -> None:
        """Set one input for each `run` that does not pass it.

        Args:
            name: the input's, as in the model.
            array: of the model's own shape and dtype; run-time sizes must be in range.

        Raises:
            UsageError: the model has no such input, or it has another shape or type.
        """
        tensors.check_set(self._manifest.inputs, name, array)
        self._set[name] = array

    def get_input(self, name: str) -> Array:
        """Return the contents of an input's memory: the last written values, unless they were overwritten since.

        Args:
            name: the input's, as in the model.

        Returns:
            An array of the input's shape (at its largest run-time sizes) and dtype.

        Raises:
            UsageError: the model has no such input.
            CommunicationError: the device stopped answering.
        """
        tensor = tensors.named(self._manifest.inputs, name)
        placed = self._inputs[self._manifest.inputs.index(tensor)]
        return array_of(tensor, self._client.read_at(*placed.place, tensor.bytes))

    def tensor(self, name: str, inputs: Mapping[str, ArrayLike] | None = None) -> Array | tuple[Array, ...]:
        """Write the inputs, call the operators up to a node, and return the node's output: a debug executor.

        Args:
            name: the name of a node in the graph's JSON.
            inputs: as for `run`.

        Returns:
            The node's output, or a tuple of outputs, in the compiled model's shape and layout.

        Raises:
            UsageError: the node is unknown, or an input is wrong.
            DeviceError: an operator failed, or exceeded the executor's `work_s` seconds.
            CommunicationError: the device stopped answering.
        """
        if name not in self._written:
            raise UsageError(
                f"the graph of {self._manifest.model} has no node {name!r}", details=[_alike(name, [*self._written])]
            )
        count, outputs = self._written[name]
        arrays = []
        with self._client.owner.alone():
            self._call(count, inputs)
            for placed in outputs:
                dtype = np.dtype(placed.dtype)
                data = self._client.read_at(*placed.place, dtype.itemsize * math.prod(placed.shape))
                arrays.append(np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(placed.shape))
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def run(self, inputs: Mapping[str, ArrayLike] | None = None) -> dict[str, Array]:
        """Write the inputs, call every operator, read the outputs.

        Args:
            inputs: an array for each input, of the model's own shape and dtype; inputs that were set may be omitted.
                Run-time sizes follow from the shapes, and must be in range.

        Returns:
            An array for each output, of the model's own shape and dtype.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: an operator failed, or exceeded the executor's `work_s` seconds.
            CommunicationError: the device stopped answering.
        """
        if inputs is not None:
            tensors.check_named(self._manifest.inputs, inputs)
        outputs = self._manifest.outputs
        with self._client.owner.alone():
            sizes = tensors.sizes_in(self._manifest.inputs, self._call(len(self._calls), inputs))
            pieces = [
                self._client.read_at(*placed.place, tensors.bytes_at(tensor, sizes))
                for placed, tensor in zip(self._outputs, outputs, strict=True)
            ]
        return tensors.from_bytes(outputs, pieces, sizes)

    def _call(self, count: int, inputs: Mapping[str, ArrayLike] | None) -> list[bytes]:
        """Write the inputs, call the first operators, and return the inputs' bytes."""
        written = tensors.to_bytes(self._manifest.inputs, {**self._set, **(inputs or {})})
        for placed, data in zip(self._inputs, written, strict=True):
            self._client.write_at(*placed.place, data)
        for number, arguments in self._calls[:count]:
            self._client.invoke(number, arguments, work_s=self._work_s)
        return written


_SHOWN = 8  # names in an error


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a device: its inputs and outputs, and their places."""

    name: str
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]


def find(manifest: Manifest, name: str) -> Function:
    """Return a function by its name.

    Raises:
        UsageError: there is none; the message lists similar names.
    """
    names = manifest.functions
    if not names:
        raise UsageError(
            f"the firmware of {manifest.model} has no functions that can be called by name",
            details=[f"it was built with --operators-api {manifest.operators_api}"],
            hint="build it with: --operators-api packed",
        )
    if name not in names:
        raise UsageError(
            f"{manifest.model} has no function {name!r}",
            details=[_alike(name, names)],
            hint="device.functions() lists them all",
        )
    number = names.index(name)
    if number < len(manifest.operators):
        return Function(name, manifest.operators[number].reads, manifest.operators[number].writes)
    reads = tuple(_operand(tensor, "inputs", index) for index, tensor in enumerate(manifest.inputs))
    return Function(
        name, reads, tuple(_operand(tensor, "outputs", index) for index, tensor in enumerate(manifest.outputs))
    )


def operator_of(manifest: Manifest, name: str) -> int | None:
    """Return the number of an operator by its name, number or C function; None: the name is the model's.

    Raises:
        UsageError: there is none, or several operators share the function; the message says which.
    """
    if name == f"{manifest.model}_run":
        return None
    numbers = {key: operator.index for operator in manifest.operators for key in (operator.name, str(operator.index))}
    shared = [operator for operator in manifest.operators if operator.function == name]
    if name in numbers or len(shared) == 1:
        return numbers[name] if name in numbers else shared[0].index
    if shared:
        raise UsageError(
            f"{name} computes {plural.count(len(shared), 'operator')} of {manifest.model}",
            details=[f"choose one: {', '.join(operator.name for operator in shared)}"],
        )
    names = [*(operator.name for operator in manifest.operators), f"{manifest.model}_run"]
    raise UsageError(
        f"{manifest.model} has no function {name!r}",
        details=[_alike(name, names)],
        hint="mtool bench --layers lists the operators",
    )


def _alike(name: str, names: Sequence[str]) -> str:
    """Return an error detail with names similar to an unknown one, or else the first ones."""
    alike = spelling.near(name, names, _SHOWN)
    more = [f"and {len(names) - _SHOWN} more"] if not alike and len(names) > _SHOWN else []
    return f"{'similar' if alike else 'available'}: {', '.join([*(alike or names[:_SHOWN]), *more])}"


def call(
    client: Client, function: Function, arguments: Sequence[ArrayLike], *, work_s: float
) -> Array | tuple[Array, ...]:
    """Write the arguments to the function's operands, call it, and read its outputs.

    Raises:
        UsageError: the number of arguments is wrong, or one has another shape or type.
        DeviceError: there is no such function on the device, or it failed.
    """
    if len(arguments) != len(function.reads):
        expected = [f"{operand.value} ({tensors.shown(operand.dtype, operand.shape)})" for operand in function.reads]
        raise UsageError(
            f"{function.name} takes {len(function.reads)} array{'s' * (len(function.reads) != 1)}",
            details=[f"expected  {', '.join(expected) or 'none'}", f"found     {len(arguments)}"],
        )
    arrays = [tensors.as_array(operand.value, array) for operand, array in zip(function.reads, arguments, strict=True)]
    written = [bytes_of(operand.value, operand, array) for operand, array in zip(function.reads, arrays, strict=True)]
    for operand, data in zip(function.reads, written, strict=True):
        client.write_at(*place_of(operand), data)
    placed = [Placed(value.dtype, value.shape, *place_of(value)) for value in (*function.reads, *function.writes)]
    client.invoke(client.lookup(function.name), placed, work_s=work_s)
    results = tuple(array_of(operand, client.read_at(*place_of(operand), operand.bytes)) for operand in function.writes)
    return results[0] if len(results) == 1 else results


def _operand(tensor: Tensor, memory: str, index: int) -> Operand:
    """Return the place of an input or output: in the arena, unless the caller keeps it."""
    in_arena = tensor.arena_offset is not None
    return Operand(
        value=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        bytes=tensor.bytes,
        memory="arena" if in_arena else "inputs" if memory == "inputs" else "outputs",
        index=tensor.pool if in_arena else index,
        offset=tensor.arena_offset or 0,
    )
