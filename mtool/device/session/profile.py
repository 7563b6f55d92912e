"""The time of each operator: the device measures it, with the normal firmware."""

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
        index: its position in the order of execution; of its first part, if there are several.
        name: its name in the C code.
        label: a readable name.
        shape: its input and output shapes.
        schedule: its schedule.
        origins: the model's nodes that it was compiled from.
        median: its time over the repeats, in the profile's unit.
        macs: its multiply-accumulates.
        bytes: the memory that it uses at one time: tensors, constants and scratch.
        parts: the number of parts in which it is computed, each some rows of its result.
        backend: the backend, if it is a backend's region.
        device_cycles: the backend's estimate of the accelerator's cycles; 0: unknown.
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
        """Return a readable name, with the number of parts if there are several."""
        return self.label if self.parts == 1 else f"{self.label}, {self.parts} parts"

    @property
    def by(self) -> str:
        """Return the schedule or the backend that computes it."""
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
        whole: an inference through the model's entry point. The operators' sum is slightly higher, as each is called
            by its number, and lower if the entry point copies the caller's inputs.
        repeat: the number of inferences for the medians.
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
        """Return an operator's share of the sum, 0 to 1."""
        return operator.median / self.total if self.total else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the profile as plain values."""
        rows = [
            {**asdict(operator), "per_mac": operator.per_mac, "share": self.share(operator)}
            for operator in self.operators
        ]
        return {"unit": self.unit, "whole": self.whole, "total": self.total, "repeat": self.repeat, "operators": rows}

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, one row for each operator.

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
            per_mac = "" if row.per_mac is None else f"{row.per_mac:.2f}"
            lines.append(
                f"{row.index:>3}  {row.title:<28.28} {row.by:<16.16} {row.median:>14,.0f} {per_mac:>7} "
                f"{self.share(row):>6.1%}"
            )
        return "\n".join([*lines, f"{'':>3}  {'all':<45} {self.total:>14,.0f}"])


def operator_times(
    client: Client, manifest: Manifest, inputs: Mapping[str, ArrayLike], *, repeat: int, work_s: float
) -> tuple[OperatorTime, ...]:
    """Time each operator of an inference, as `step_times` does; the parts of an operator are added up.

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
    """Return the time of each step of an inference, without the time to start and stop the timer.

    Args:
        client: an open session's.
        manifest: of the project.
        inputs: the inputs.
        repeat: the number of inferences for each operator's median.
        work_s: the time limit of an operator.

    Raises:
        UsageError: an input is wrong.
        DeviceError: an operator failed, or the timer overflowed.
    """
    stepping = Stepping(client, manifest, to_bytes(manifest.inputs, inputs))
    times: list[list[float]] = [[] for _ in manifest.operators]
    for _ in range(repeat):
        stepping.begin()
        for operator in manifest.operators:
            idle = client.time(0, work_s=work_s, operator=operator.index)
            spent = stepping.run(operator, work_s=work_s)
            times[operator.index].append(max(spent - idle, 0.0))
    return [statistics.median(samples) for samples in times]


def _time_of(parts: Sequence[Operator], medians: Sequence[float]) -> OperatorTime:
    """Return the cost of an operator from its parts, usually one."""
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
