"""Packed functions of a device: the model and its operators, called by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.device.rpc import Client, protocol
from mtool.device.rpc.protocol import Placed
from mtool.device.session.tensors import Array, array_of, as_array, bytes_of
from mtool.manifest import Manifest, Operand, Tensor

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
