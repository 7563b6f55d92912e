"""Look inside an inference: run it operator by operator, read what each writes, time each.

Nothing is kept on the device: a result is read as soon as it is there, before a later operator overwrites it. So this
works with the firmware that runs the model, on a board with no memory to spare.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mtool.errors import UsageError
from mtool.manifest import Operand, Operator
from mtool.rpc import protocol
from mtool.session.tensors import Array, to_bytes

if TYPE_CHECKING:
    from mtool.session.device import Device

Correct = Callable[[Operator, Operand, Array], Array | None]

_KINDS = {"inputs": protocol.INPUTS, "outputs": protocol.OUTPUTS, "arena": protocol.ARENA}


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """What one operator of an inference costs.

    Attributes:
        index: its place in the order of execution; that of its first part.
        name: its own, as in the C.
        label: what a person calls it.
        shape: what it reads and writes.
        schedule: how it is computed.
        origins: the nodes of the model that went into it.
        median: its time over the repeats, in the profile's unit.
        macs: its multiply-accumulates.
        bytes: what it reads, writes and works on at one time: tensors, constants and scratch.
        parts: in how many parts it is computed, each some rows of its result.
    """

    index: int
    name: str
    label: str
    shape: str
    schedule: str
    origins: tuple[str, ...]
    median: float
    macs: int
    bytes: int
    parts: int = 1

    @property
    def title(self) -> str:
        """Return what a person calls it, and in how many parts it is computed."""
        return self.label if self.parts == 1 else f"{self.label}, {self.parts} parts"

    @property
    def per_mac(self) -> float | None:
        """Return the time per multiply-accumulate; None: it has none."""
        return self.median / self.macs if self.macs else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of an inference goes.

    Attributes:
        operators: in the order of execution.
        unit: "ns", or "instructions" where the timer counts those.
        whole: an inference through the model's entry point. The operators' sum is a little more, as each is called
            by its number, and less where the entry point copies the caller's inputs.
        repeat: how many inferences the medians are over.
    """

    operators: tuple[OperatorTime, ...]
    unit: str
    whole: float
    repeat: int

    @property
    def total(self) -> float:
        """Return the sum over the operators."""
        return sum(operator.median for operator in self.operators)

    def share(self, operator: OperatorTime) -> float:
        """Return an operator's part of the sum, 0 to 1."""
        return operator.median / self.total if self.total else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the profile as plain values."""
        rows = [
            {**asdict(operator), "per_mac": operator.per_mac, "share": self.share(operator)}
            for operator in self.operators
        ]
        return {"unit": self.unit, "whole": self.whole, "total": self.total, "repeat": self.repeat, "operators": rows}

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, a row an operator.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise UsageError("pandas is not installed", hint="pip install pandas") from None
        return pandas.DataFrame(self.as_json()["operators"])

    def __str__(self) -> str:
        lines = [f"{'#':>3}  {'operator':<28} {'schedule':<16} {self.unit:>14} {'/MAC':>7} {'share':>6}"]
        for row in self.operators:
            each = "" if row.per_mac is None else f"{row.per_mac:.2f}"
            lines.append(
                f"{row.index:>3}  {row.title:<28.28} {row.schedule:<16.16} {row.median:>14,.0f} {each:>7} "
                f"{self.share(row):>6.1%}"
            )
        return "\n".join([*lines, f"{'':>3}  {'all':<45} {self.total:>14,.0f}"])


def intermediates(
    device: "Device", inputs: Mapping[str, ArrayLike], *, correct: Correct | None = None
) -> Iterator[tuple[Operator, Operand, Array]]:
    """Run one inference operator by operator and yield what each writes, as soon as it has.

    Args:
        device: an open session.
        inputs: an array for each input.
        correct: may return the values that an operand should have had: the device goes on from those, so that an
            operator is judged by what it does itself.

    Yields:
        The operator, what it wrote, and its array in the operand's own shape and layout.

    Raises:
        UsageError: an input is wrong, or the firmware was built by an mtool whose mtool.json does not know places.
        DeviceError: an operator failed.
    """
    client = device.client
    operators = device.manifest.operators
    if any(not operator.writes for operator in operators):
        raise UsageError("mtool.json does not say where the operators write", hint="build the project again")
    client.write(to_bytes(device.manifest.inputs, inputs))
    for operator in operators:
        client.time(1, work_s=device.work_s, operator=operator.index)
        for operand in operator.writes:
            place = (_KINDS[operand.memory], operand.index, operand.offset)
            wire = np.dtype(operand.dtype).newbyteorder("<")
            array = np.frombuffer(client.read_at(*place, operand.bytes), wire).astype(operand.dtype)
            array = array.reshape(operand.shape)
            yield operator, operand, array
            better = correct(operator, operand, array) if correct is not None else None
            if better is not None:
                client.write_at(*place, np.ascontiguousarray(better, wire).tobytes())


def profile(device: "Device", inputs: Mapping[str, ArrayLike], *, repeat: int = 3) -> Profile:
    """Time each operator of an inference, less what starting and stopping the timer takes.

    Args:
        device: an open session.
        inputs: what to run on.
        repeat: inferences, over which each operator's median is taken.

    Raises:
        UsageError: `repeat` is no positive number, or an input is wrong.
        DeviceError: an operator failed, or the timer ran over its range.
    """
    if repeat < 1:
        raise UsageError("repeat has to be positive", details=[f"found repeat={repeat}"])
    client, operators = device.client, device.manifest.operators
    data = to_bytes(device.manifest.inputs, inputs)
    whole = device.time(1, repeat, inputs=inputs).median
    times: list[list[float]] = [[] for _ in operators]
    for _ in range(repeat):
        client.write(data)
        for operator in operators:
            idle = client.time(0, work_s=device.work_s, operator=operator.index)
            spent = client.time(1, work_s=device.work_s, operator=operator.index)
            times[operator.index].append(max(spent - idle, 0.0))
    parts: dict[str, list[Operator]] = {}
    for operator in operators:
        parts.setdefault(operator.whole or operator.name, []).append(operator)
    rows = tuple(_time_of(of, [statistics.median(times[part.index]) for part in of]) for of in parts.values())
    return Profile(rows, device.unit, whole, repeat)


def _time_of(parts: Sequence[Operator], medians: Sequence[float]) -> OperatorTime:
    """Return what an operator costs that is computed in parts, most often in one."""
    first = parts[0]
    return OperatorTime(
        index=first.index,
        name=first.whole or first.name,
        label=first.label,
        shape=first.shape,
        schedule=first.schedule,
        origins=first.origins,
        median=sum(medians),
        macs=sum(part.macs for part in parts),
        bytes=max(
            sum(operand.bytes for operand in (*part.reads, *part.writes)) + part.constant_bytes + part.scratch_bytes
            for part in parts
        ),
        parts=len(parts),
    )
