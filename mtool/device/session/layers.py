"""Look inside an inference: run it operator by operator, and read each operator's outputs.

Nothing is kept on the device: an output is read before a later operator overwrites it. So this
works with the normal firmware, on a board without memory to spare.
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
    """Run one inference operator by operator and yield each output as soon as it is written.

    Args:
        device: an open session.
        inputs: an array for each input.
        correct: may return the values that an operand should have: the device continues with them, so that an
            operator is judged only by its own result.

    Yields:
        The operator, its output at the inputs' run-time sizes, and its array in that shape and layout.

    Raises:
        UsageError: an input is wrong, or mtool.json is from an older mtool, without operands' places.
        DeviceError: an operator failed.
    """
    client = device.client
    operators = device.manifest.operators
    if any(not operator.writes for operator in operators):
        raise UsageError("mtool.json does not have the operators' outputs", hint="build the project again")
    input_bytes = to_bytes(device.manifest.inputs, inputs)
    sizes = sizes_in(device.manifest.inputs, input_bytes)
    stepping = Stepping(client, device.manifest, input_bytes)
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
    """Run one inference up to a tensor and return it, in the compiled model's shape and layout.

    Args:
        device: an open session.
        name: of a tensor that an operator writes: its name in the compiled model, that of the model's own tensor,
            or the operator's name; or of an input.
        inputs: an array for each input.

    Raises:
        UsageError: no operator writes such a tensor (it may be internal to one), or an input is wrong.
        DeviceError: an operator failed.
    """
    if name in inputs:
        to_bytes(device.manifest.inputs, inputs)
        return np.array(inputs[name])
    names = {tensor_name for operator in device.manifest.operators for tensor_name in _names(operator)}
    if name not in names:
        raise UsageError(
            f"no operator of {device.manifest.model} writes {name!r}",
            details=[f"similar: {', '.join(spelling.near(name, names)) or 'none'}"],
            hint="tensors inside an operator can't be read; list the operators with mtool bench --layers",
        )
    for operator, operand, array in intermediates(device, inputs):
        if name in _names(operator) and (name == operator.name or name in _called(operand)):
            return array
    raise AssertionError(name)


def _names(operator: Operator) -> set[str]:
    return {operator.name}.union(*map(_called, operator.writes))


def _called(operand: Operand) -> set[str]:
    return {operand.value, *([operand.source.tensor] if operand.source is not None else [])}
