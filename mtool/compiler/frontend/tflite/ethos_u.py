"""ethos-u: a part of a network that Vela has compiled for Arm's NPU.

Its inputs are the command stream, the constants, the working memory, a second one or the same again, and what it reads
of the network, which lies in the working memory as what it writes does: the file's metadata `OfflineMemoryAllocation`
says where. Source: ethosu.cc of TensorFlow Lite Micro, tflite_writer.py of Vela.
"""

from collections.abc import Sequence

import numpy as np

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.custom import reason
from mtool.compiler.frontend.tflite.description import Operator, Tensor
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir import DType
from mtool.compiler.operators.external import kind_number

KIND = "CUSTOM ethos-u"
_FIXED = 4  # inputs before those of the network
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


def working_memories(operators: Sequence[Operator]) -> set[int]:
    """Return the tensors that such operators read and nothing makes."""
    made = {number for one in operators for number in one.outputs}
    return {number for one in operators if one.kind == KIND for number in one.inputs} - made


def _bytes(tensor: Tensor) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize


def _places(scratch: Tensor, tensors: list[Tensor]) -> list[int]:
    """Return where tensors begin in the working memory.

    Raises:
        Unsupported: the file does not say it, or one lies outside.
    """
    if scratch.place is None:
        raise Unsupported("the file has no OfflineMemoryAllocation that says where its tensors lie")
    found = []
    for one in tensors:
        place = -1 if one.place is None else one.place - scratch.place
        if place < 0 or place + _bytes(one) > _bytes(scratch):
            raise Unsupported(f"its tensor {one.name!r} lies outside of its working memory")
        found.append(place)
    return found


def _ethos_u(t: Translation) -> None:
    count = len(t.op.inputs)
    if count <= _FIXED or min(t.op.inputs) < 0:
        raise Unsupported(reason(t.op.kind))
    fixed = [t.tensors[number] for number in t.op.inputs[:_FIXED]]
    if any(one.dtype not in _BYTES for one in fixed):
        raise Unsupported("its command stream, constants and working memory are not of bytes")
    if any(one.data is None for one in fixed[:2]) or any(one.data is not None and one.data.size for one in fixed[2:]):
        raise Unsupported("its command stream or its constants are not in the file")
    read = [t.tensor(number) for number in range(_FIXED, count)]
    written = [t.result(number) for number in range(len(t.op.outputs))]
    commands, constants, scratch, fast = fixed
    names = [
        t.constant(stem, np.asarray(one.data).reshape(-1).view(np.uint8))
        for stem, one in (("commands", commands), ("constants", constants))
    ]
    made = t.several(
        "EthosU",
        [*names, *(t.stored(number) for number in range(_FIXED, count))],
        len(written),
        domain=OWN,
        scratch=_bytes(scratch),
        fast=0 if t.op.inputs[2] == t.op.inputs[3] else _bytes(fast),
        read=_places(scratch, read),
        written=_places(scratch, written),
        types=[kind_number(DType.of(one.dtype)) for one in written],
        ranks=[len(one.shape) for one in written],
        **({"sizes": sizes} if (sizes := [size for one in written for size in one.shape]) else {}),
    )
    for number, value in enumerate(made):
        t.put(value, number)


TRANSLATIONS = {KIND: _ethos_u}
