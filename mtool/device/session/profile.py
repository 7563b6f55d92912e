"""The time of each operator: the device times them, with the firmware that runs the model."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import ArrayLike

from mtool.base.errors import UsageError
from mtool.device.rpc import Client
from mtool.device.session.stepping import Stepping
from mtool.device.session.tensors import to_bytes
from mtool.manifest import Manifest, Operator


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The cost of one operator of an inference.

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
        backend: who computes it, if it is a region of a backend.
        device_cycles: the backend's estimate of the accelerator's cycles; 0: there is none.
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
    backend: str = ""
    device_cycles: float = 0.0

    @property
    def title(self) -> str:
        """Return what a person calls it, and in how many parts it is computed."""
        return self.label if self.parts == 1 else f"{self.label}, {self.parts} parts"

    @property
    def by(self) -> str:
        """Return what computes it: the schedule, or the backend."""
        return self.backend or self.schedule

    @property
    def per_mac(self) -> float | None:
        """Return the time per multiply-accumulate; None: it has none."""
        return self.median / self.macs if self.macs else None


@dataclass(frozen=True, slots=True)
class Profile:
    """The time of each operator of an inference.

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
                f"{row.index:>3}  {row.title:<28.28} {row.by:<16.16} {row.median:>14,.0f} {each:>7} "
                f"{self.share(row):>6.1%}"
            )
        return "\n".join([*lines, f"{'':>3}  {'all':<45} {self.total:>14,.0f}"])


def operator_times(
    client: Client, manifest: Manifest, inputs: Mapping[str, ArrayLike], *, repeat: int, work_s: float
) -> tuple[OperatorTime, ...]:
    """Time each operator of an inference, as `step_times` does; what is computed in parts is one operator.

    Raises:
        MtoolError: as `step_times`.
    """
    medians = step_times(client, manifest, inputs, repeat=repeat, work_s=work_s)
    parts: dict[str, list[Operator]] = {}
    for operator in manifest.operators:
        parts.setdefault(operator.whole or operator.name, []).append(operator)
    return tuple(_time_of(of, [medians[part.index] for part in of]) for of in parts.values())


def step_times(
    client: Client, manifest: Manifest, inputs: Mapping[str, ArrayLike], *, repeat: int, work_s: float
) -> list[float]:
    """Return the time of each step of an inference, less what starting and stopping the timer takes.

    Args:
        client: an open session's.
        manifest: of the project.
        inputs: what to run on.
        repeat: inferences, over which each operator's median is taken.
        work_s: how long an operator may take.

    Raises:
        UsageError: an input is wrong.
        DeviceError: an operator failed, or the timer ran over its range.
    """
    stepping = Stepping(client, manifest, to_bytes(manifest.inputs, inputs))
    times: list[list[float]] = [[] for _ in manifest.operators]
    for _ in range(repeat):
        stepping.begin()
        for operator in manifest.operators:
            idle = client.time(0, work_s=work_s, operator=operator.index)
            spent = stepping.run(operator, work_s=work_s)
            times[operator.index].append(max(spent - idle, 0.0))
    return [statistics.median(found) for found in times]


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
        backend=first.backend,
        device_cycles=first.device_cycles,
    )
