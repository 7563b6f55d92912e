"""The graph executor on the host: reads the graph's JSON and calls the operators on the device one by one.

The tensors stay on the device. docs/executors.md describes the JSON, mtool/compiler/codegen/graph.py writes it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtool.base import invalid as problems
from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.device.rpc import Client, protocol
from mtool.device.rpc.protocol import Placed
from mtool.device.session.tensors import (
    Array,
    array_of,
    as_array,
    bytes_at,
    bytes_of,
    check_named,
    from_bytes,
    named,
    sizes_in,
    to_bytes,
)
from mtool.manifest import Manifest, Operand, Tensor

_NOTHING = "__nop"  # TVM's name for a reshape
Number = Annotated[int, Field(ge=0)]
Reference = tuple[Number, Number, Number]
Numbers = tuple[Literal["list_int"], tuple[Number, ...]]


class _Part(BaseModel):
    """A part of the JSON; keys that this executor has no use for are left alone."""

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
        """Return the tensor that is a node's output, by [node, index, version]."""
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
        manifest: of the project.
        text: the graph's JSON.
        work_s: seconds that an operator may take.

    Raises:
        UsageError: the JSON is malformed, or of another model.
        DeviceError: the device has no such functions.
    """

    def __init__(self, client: Client, manifest: Manifest, text: str | bytes, *, work_s: float) -> None:
        self._client = client
        self._manifest = manifest
        self._work_s = work_s
        self._set: dict[str, ArrayLike] = {}
        try:
            graph = _Graph.model_validate_json(text)
            self._inputs = [graph.placed((node, 0, 0)) for node in graph.arg_nodes]
            self._outputs = [graph.placed(head) for head in graph.heads]
            self._calls = list(self._read_calls(graph))
            self._written = dict(self._read_written(graph))
        except (ValidationError, IndexError) as invalid:
            details = [str(invalid)]
            if isinstance(invalid, ValidationError):
                details = problems.lines(invalid, 5)
            raise UsageError(
                f"the graph of {manifest.model} is malformed", details=details, hint="build it again"
            ) from None
        expected = [tensor.shape for tensor in (*manifest.inputs, *manifest.outputs)]
        found = [placed.shape for placed in (*self._inputs, *self._outputs)]
        if expected != found:
            raise UsageError(
                f"the graph is not that of {manifest.model}",
                details=[f"expected inputs and outputs of the shapes {expected}", f"found {found}"],
            )

    @classmethod
    def read(cls, client: Client, manifest: Manifest, folder: Path, *, work_s: float) -> Self:
        """Return the executor of a project folder's graph.

        Raises:
            UsageError: the project was built without one, or its JSON is malformed.
        """
        if not manifest.graph or manifest.project is None:
            raise UsageError(
                f"{folder} has no graph", details=["its operators are no packed functions"],
                hint="build it with: --executor graph-host",
            )  # fmt: skip
        path = folder / manifest.project.model / manifest.graph
        try:
            text = path.read_bytes()
        except OSError as missing:
            raise UsageError(f"{path} can't be read", details=[str(missing)], hint="build it again") from None
        return cls(client, manifest, text, work_s=work_s)

    def set_input(self, name: str, array: ArrayLike) -> None:
        """Set one input, for each `run` that is not given it.

        Raises:
            UsageError: the model has no such input, or it has another shape or type.
        """
        described = named(self._manifest.inputs, name)
        if described.dims is None and described.range is None:
            bytes_of(name, described, np.asarray(array))
        self._set[name] = array

    def get_input(self, name: str) -> Array:
        """Return what lies in the memory of an input now: what was written last, unless it was computed over since.

        Raises:
            UsageError: the model has no such input.
        """
        described = named(self._manifest.inputs, name)
        placed = self._inputs[self._manifest.inputs.index(described)]
        return array_of(described, self._client.read_at(placed.kind, placed.index, placed.offset, described.bytes))

    def tensor(self, name: str, inputs: Mapping[str, ArrayLike] | None = None) -> Array | tuple[Array, ...]:
        """Write the inputs, call the operators up to the node of a name, and return what it wrote: a debug executor.

        Args:
            name: of a node in the graph's JSON.
            inputs: as for `run`.

        Returns:
            The node's output, or a tuple of them, in the shape and layout that the compiled model has them.

        Raises:
            UsageError: there is no such node, or an input is wrong.
            DeviceError: an operator failed.
        """
        if name not in self._written:
            alike = spelling.near(name, self._written)
            raise UsageError(
                f"the graph of {self._manifest.model} has no node {name!r}",
                details=[f"{'alike' if alike else 'there are'}: {', '.join(alike or [*self._written])}"],
            )
        count, outputs = self._written[name]
        with self._client.owner.alone():
            return self._tensor(count, outputs, {**self._set, **(inputs or {})})

    def _tensor(self, count: int, outputs: list[Placed], inputs: Mapping[str, ArrayLike]) -> Array | tuple[Array, ...]:
        self._write(inputs)
        for number, arguments in self._calls[:count]:
            self._client.invoke(number, arguments, work_s=self._work_s)
        found = []
        for placed in outputs:
            dtype = np.dtype(placed.dtype)
            count_bytes = dtype.itemsize * math.prod(placed.shape)
            data = self._client.read_at(placed.kind, placed.index, placed.offset, count_bytes)
            found.append(np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(placed.shape))
        return found[0] if len(found) == 1 else tuple(found)

    def run(self, inputs: Mapping[str, ArrayLike] | None = None) -> dict[str, Array]:
        """Write the inputs, call every operator, read the outputs.

        Args:
            inputs: an array for each input, of the model's own shape and type; those that were set need not be given.

        Raises:
            UsageError: an input is missing or unknown, or has another shape or type.
            DeviceError: an operator failed.
            CommunicationError: the device stopped answering.
        """
        if inputs is not None:
            check_named(self._manifest.inputs, inputs)
        outputs = self._manifest.outputs
        with self._client.owner.alone():
            sizes = sizes_in(self._manifest.inputs, self._write({**self._set, **(inputs or {})}))
            for number, arguments in self._calls:
                self._client.invoke(number, arguments, work_s=self._work_s)
            pieces = [
                self._client.read_at(placed.kind, placed.index, placed.offset, bytes_at(tensor, sizes))
                for placed, tensor in zip(self._outputs, outputs, strict=True)
            ]
        return from_bytes(outputs, pieces, sizes)

    def _write(self, inputs: Mapping[str, ArrayLike]) -> list[bytes]:
        """Write the inputs and return their bytes."""
        given = to_bytes(self._manifest.inputs, inputs)
        for placed, data in zip(self._inputs, given, strict=True):
            self._client.write_at(placed.kind, placed.index, placed.offset, data)
        return given

    def _read_written(self, graph: _Graph) -> Iterator[tuple[str, tuple[int, list[Placed]]]]:
        """Yield each node's name, the calls until it has written its outputs, and these."""
        calls = 0
        for number, node in enumerate(graph.nodes):
            if node.attrs is not None:
                calls += node.attrs.func_name != _NOTHING
                yield node.name, (calls, [graph.placed((number, i, 0)) for i in range(node.attrs.num_outputs)])

    def _read_calls(self, graph: _Graph) -> list[tuple[int, list[Placed]]]:
        """Return each operator's function on the device, and what it is called with."""
        calls = []
        for number, node in enumerate(graph.nodes):
            if node.attrs is not None and node.attrs.func_name != _NOTHING:
                writes = [graph.placed((number, index, 0)) for index in range(node.attrs.num_outputs)]
                arguments = [*map(graph.placed, node.inputs), *writes]
                calls.append((self._client.lookup(node.attrs.func_name), arguments))
        return calls


# Packed functions of a device: the model and its operators, called by name.


_KINDS = {"inputs": protocol.INPUTS, "outputs": protocol.OUTPUTS, "arena": protocol.ARENA}
_SHOWN = 8  # names in an error


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a device: what it reads and what it writes, and where that lies."""

    name: str
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]


def find(manifest: Manifest, name: str) -> Function:
    """Return the function of that name.

    Raises:
        UsageError: there is none; the message lists the names that are alike.
    """
    known = manifest.functions
    if not known:
        raise UsageError(
            f"the firmware of {manifest.model} has no functions that can be called by name",
            details=[f"it was built with --operators-api {manifest.operators_api}"],
            hint="build it with: --operators-api packed",
        )
    if name not in known:
        alike = spelling.near(name, known, _SHOWN)
        shown = alike or known[:_SHOWN]
        more = [f"and {len(known) - len(shown)} more"] if not alike and len(known) > len(shown) else []
        raise UsageError(
            f"{manifest.model} has no function {name!r}",
            details=[f"{'alike' if alike else 'there are'}: {', '.join([*shown, *more])}"],
            hint="device.functions() lists them all",
        )
    number = known.index(name)
    if number < len(manifest.operators):
        return Function(name, manifest.operators[number].reads, manifest.operators[number].writes)
    reads = tuple(_operand(tensor, "inputs", index) for index, tensor in enumerate(manifest.inputs))
    return Function(
        name, reads, tuple(_operand(tensor, "outputs", index) for index, tensor in enumerate(manifest.outputs))
    )


def operator_of(manifest: Manifest, name: str) -> int | None:
    """Return the number of the operator of a name, its own, its number or its C function's; None: it is the model.

    Raises:
        UsageError: there is none, or several operators share the function; the message says which.
    """
    if name == f"{manifest.model}_run":
        return None
    own = {called: one.index for one in manifest.operators for called in (one.name, str(one.index))}
    shared = [operator for operator in manifest.operators if operator.function == name]
    if name in own or len(shared) == 1:
        return own[name] if name in own else shared[0].index
    if shared:
        raise UsageError(
            f"{name} computes {len(shared)} operators of {manifest.model}",
            details=[f"name one of them: {', '.join(operator.name for operator in shared)}"],
        )
    known = [*(operator.name for operator in manifest.operators), f"{manifest.model}_run"]
    alike = spelling.near(name, known, _SHOWN)
    raise UsageError(
        f"{manifest.model} has no function {name!r}",
        details=[f"{'alike' if alike else 'there are'}: {', '.join(alike or known[:_SHOWN])}"],
        hint="mtool bench --layers lists the operators",
    )


def call(
    client: Client, function: Function, arguments: Sequence[ArrayLike], *, work_s: float
) -> Array | tuple[Array, ...]:
    """Write the arguments where the function's operands lie, call it, and read what it wrote.

    Raises:
        UsageError: the arguments are more or fewer, or one has another shape or type.
        DeviceError: there is no such function on the device, or it failed.
    """
    if len(arguments) != len(function.reads):
        raise UsageError(
            f"{function.name} takes {len(function.reads)} arrays",
            details=[
                f"expected  {', '.join(map(_described, function.reads)) or 'none'}",
                f"found     {len(arguments)}",
            ],
        )
    pairs = list(
        zip(
            function.reads,
            (as_array(one.value, array) for one, array in zip(function.reads, arguments, strict=True)),
            strict=True,
        )
    )
    for operand, data in [(operand, bytes_of(operand.value, operand, array)) for operand, array in pairs]:
        client.write_at(_KINDS[operand.memory], operand.index, operand.offset, data)
    client.invoke(client.lookup(function.name), [*map(_placed, (*function.reads, *function.writes))], work_s=work_s)
    results = tuple(
        array_of(operand, client.read_at(_KINDS[operand.memory], operand.index, operand.offset, operand.bytes))
        for operand in function.writes
    )
    return results[0] if len(results) == 1 else results


def _operand(tensor: Tensor, memory: str, index: int) -> Operand:
    """Return where an input or output lies: in the arena, unless the caller keeps it."""
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


def _placed(operand: Operand) -> Placed:
    return Placed(operand.dtype, operand.shape, _KINDS[operand.memory], operand.index, operand.offset)


def _described(operand: Operand) -> str:
    return f"{operand.value} ({operand.dtype}[{','.join(map(str, operand.shape))}])"
