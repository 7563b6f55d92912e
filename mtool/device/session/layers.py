"""Look inside an inference: run it operator by operator, and read what each writes.

Nothing is kept on the device: a result is read as soon as it is there, before a later operator overwrites it. So this
works with the firmware that runs the model, on a board with no memory to spare.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.device.session.device import Device
from mtool.device.session.stepping import Stepping
from mtool.device.session.tensors import Array, array_of, bytes_of, operand_at, place_of, sizes_in, to_bytes
from mtool.manifest import Operand, Operator

Correct = Callable[[Operator, Operand, Array], Array | None]


def intermediates(
    device: Device, inputs: Mapping[str, ArrayLike], *, correct: Correct | None = None
) -> Iterator[tuple[Operator, Operand, Array]]:
    """Run one inference operator by operator and yield what each writes, as soon as it has.

    Args:
        device: an open session.
        inputs: an array for each input.
        correct: may return the values that an operand should have had: the device goes on from those, so that an
            operator is judged by what it does itself.

    Yields:
        The operator, what it wrote, as it is at the inputs' run-time sizes, and its array in that shape and layout.

    Raises:
        UsageError: an input is wrong, or the firmware was built by an mtool whose mtool.json does not know places.
        DeviceError: an operator failed.
    """
    client = device.client
    operators = device.manifest.operators
    if any(not operator.writes for operator in operators):
        raise UsageError("mtool.json does not say where the operators write", hint="build the project again")
    given = to_bytes(device.manifest.inputs, inputs)
    sizes = sizes_in(device.manifest.inputs, given)
    stepping = Stepping(client, device.manifest, given)
    stepping.begin()
    for operator in operators:
        stepping.run(operator, work_s=device.work_s)
        for operand in (operand_at(operand, sizes) for operand in operator.writes):
            array = array_of(operand, client.read_at(*place_of(operand), operand.bytes))
            yield operator, operand, array
            better = correct(operator, operand, array) if correct is not None else None
            if better is not None:
                client.write_at(*place_of(operand), bytes_of(operand.value, operand, better))


def tensor(device: Device, name: str, inputs: Mapping[str, ArrayLike]) -> Array:
    """Run one inference as far as a tensor and return it, in the shape and layout that the compiled model has it.

    Args:
        device: an open session.
        name: of a tensor that an operator writes: as the compiled model calls it, as the model's own tensor that it is,
            or the operator's name; or of an input.
        inputs: an array for each input.

    Raises:
        UsageError: no operator writes such a tensor (it may be computed within one), or an input is wrong.
        DeviceError: an operator failed.
    """
    if name in inputs:
        to_bytes(device.manifest.inputs, inputs)
        return np.array(inputs[name])
    known = {each for operator in device.manifest.operators for each in _names(operator)}
    if name not in known:
        raise UsageError(
            f"no operator of {device.manifest.model} writes {name!r}",
            details=[f"alike: {', '.join(spelling.near(name, known)) or 'none'}"],
            hint="what is computed within an operator is not there: mtool bench --layers lists them",
        )
    for operator, operand, array in intermediates(device, inputs):
        if name in _names(operator) and (name == operator.name or name in _called(operand)):
            return array
    raise AssertionError(name)


def _names(operator: Operator) -> set[str]:
    return {operator.name}.union(*map(_called, operator.writes))


def _called(operand: Operand) -> set[str]:
    return {operand.value, *([operand.source.tensor] if operand.source is not None else [])}
