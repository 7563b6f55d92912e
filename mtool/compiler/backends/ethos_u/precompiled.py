"""What Vela has compiled before mtool got the model: the operator `ethos-u` of a TFLite file."""

from collections.abc import Sequence

import numpy as np

from mtool.compiler.backends.ethos_u.vela import Compiled, Place
from mtool.compiler.backends.interface import BackendError
from mtool.compiler.backends.operation import Operand, Operation
from mtool.compiler.operators.external import EthosU

COMPILED = "EthosU"
"""The kind of the operation."""
_MAGIC = b"COP1"
_SCRATCH, _FAST = 1, 2  # numbers of base addresses, as ethosu.cc of TensorFlow Lite Micro has them


def precompiled(operation: Operation) -> Compiled:
    """Return what is in the file.

    Raises:
        BackendError: its command stream is none of the driver's.
    """
    attrs = operation.attrs
    assert isinstance(attrs, EthosU)
    commands, constants = (np.asarray(operation.operand(number).data, np.uint8) for number in (0, 1))
    if commands[:4].tobytes() != _MAGIC or commands.size % 4:
        raise BackendError(
            f"the command stream of {operation.name} is none of the Ethos-U core driver",
            details=[
                f"expected a multiple of 4 bytes that begins with {_MAGIC!r}",
                f"found {commands[:4].tobytes()!r}",
            ],
            hint="give the model that Vela was given",
        )
    return Compiled(
        commands=commands,
        constants=constants,
        bases=(constants.size, attrs.scratch, attrs.fast or attrs.scratch),
        constant_base=0,
        inputs=_places(attrs.read, operation.variables),
        outputs=_places(attrs.written, operation.outputs),
        cycles=0.0,
        same={} if attrs.fast else {_FAST: _SCRATCH},
    )


def _places(offsets: Sequence[int], operands: Sequence[Operand]) -> tuple[Place, ...]:
    return tuple(Place(_SCRATCH, offset, one.type.bytes) for offset, one in zip(offsets, operands, strict=True))
