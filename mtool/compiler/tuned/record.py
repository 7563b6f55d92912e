"""The records of a tuning log: one JSON object a line. docs/files.md lists the keys.

Unknown keys are refused. `key` decides what may be reused: two measurements with one key are of the same task and
candidate, on the same target and setup, by the same version of mtool.
"""

import hashlib
import json
import logging
import re
import secrets
import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from mtool.base import files, records
from mtool.base.errors import UsageError, of_os_error
from mtool.base.escaping import one_line
from mtool.base.frozen import frozen
from mtool.base.option_values import Order, Partial
from mtool.base.records import Strict
from mtool.boards import Board
from mtool.version import __version__

SCHEMA = 1
_KEY_DIGITS = 20
_LONGEST = 400  # characters of a reason
Positive = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
"""A number with a limit, so that sums stay finite: 1e30 ns exceed the universe's age."""
Times = Annotated[tuple[Positive, ...], Field(min_length=1)]
LONGEST_TEXT = 10_000  # characters
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Unit = Literal["ns", "instructions", "cycles"]
Status = Literal["ok", "wrong", "fault", "timeout", "unbuildable", "too large"]
"""How a measurement ended; only "ok" may be chosen.

"wrong": its output differs from the reference's; "fault": the device reported one, or its program ended; "timeout": it
did not end in time; "unbuildable": the compiler refuses it; "too large": it does not fit the board even by itself.
"""


def digest(value: Any) -> str:
    """Return a short hash of plain values, equal for equal values on every computer."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


class Target(Strict):
    """The core, its features, and the compiler with its version and flags."""

    cpu: Text
    features: tuple[Text, ...]
    compiler: Text
    flags: tuple[Text, ...]


class Setup(Strict):
    """The board, its clock, the contents of its memories, and the unit of its timer."""

    board: Text
    template: Text
    clock_hz: int
    memories: dict[Text, Text]
    unit: Unit


class TaskRecord(Strict):
    """The properties of an operator that its time depends on: kind, operands, attributes, the shape of its expression.

    `key` is a hash of all of them. `label` is a readable name.
    """

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")]
    op: Text
    label: Text
    reads: tuple[Text, ...]
    writes: tuple[Text, ...]
    attributes: dict[Text, Text]
    expression: Text


class _Record(Strict):
    schema_version: Literal[1] = 1
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")]
    when: Annotated[str, Field(max_length=40)]
    mtool: Text
    target: Target
    setup: Setup


class Measurement(_Record):
    """One measurement of one candidate: a line whose `kind` is `measurement`.

    `id` is unique to a line; lines with equal `key` measure the same. `candidate` has the form of `--schedule`. Each of
    `times` is the time of one call, the mean over `number` timed calls, in `setup.unit`. `estimate` is the cost model's
    in instructions. `baseline`: it was measured to see whether the board's speed changes, not to choose.
    """

    kind: Literal["measurement"] = "measurement"
    task: TaskRecord
    candidate: Text
    estimate: Positive
    status: Status
    times: tuple[Positive, ...] = ()
    number: Annotated[int, Field(ge=1)] = 1
    reason: Text = ""
    baseline: bool = False

    @model_validator(mode="after")
    def _has_times(self) -> Self:
        if self.status == "ok" and not self.times:
            raise ValueError("its status is ok, but it has no times")
        return self

    @property
    def median(self) -> float:
        """The median of the times; infinite, if there are none."""
        return statistics.median(self.times) if self.times else float("inf")


class WholePlan(_Record):
    """A whole model, measured with the schedules chosen for it, and with the default ones: `kind` is `plan`.

    `choices` has the candidate of each task by the task's key, including the cost model's own choices. `model_hash` is
    the hash of the model's file. `partial` is how operators are computed in parts, `order` in which order.
    `flash_bytes` are those of the measured firmware, including its RPC server; 0: unknown. `is_point`: it is a point
    of the front, which is only used if it is requested.
    """

    kind: Literal["plan"] = "plan"
    model: Text
    model_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    choices: dict[Text, Text]
    arena_bytes: Annotated[int, Field(ge=0)]
    default_arena_bytes: Annotated[int, Field(ge=0)]
    times: Times
    default_times: Times
    partial: Partial = "auto"
    order: Order = "auto"
    flash_bytes: Annotated[int, Field(ge=0)] = 0
    default_flash_bytes: Annotated[int, Field(ge=0)] = 0
    is_point: bool = False

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.times)

    @property
    def default_median(self) -> float:
        """The median of the default's times."""
        return statistics.median(self.default_times)


Record = Annotated[Measurement | WholePlan, Field(discriminator="kind")]


def setup_of(board: Board, template: str, unit: Unit | None = None) -> Setup:
    """Return the setup of a board's firmware; the unit is its timer's by default."""
    placed = board.placed_by(template)
    memories: dict[str, str] = {
        role: f"{name} {memory.size} B at {memory.base:#x}"
        for name, memory in placed.memories.items()
        for role in memory.holds
    }
    timer = "ns" if board.timer is None else board.timer.unit
    return Setup(board=board.name, template=template, clock_hz=board.clock_hz, memories=memories, unit=unit or timer)


def target_of(board: Board, compiler: str, options: dict[str, str]) -> Target:
    """Return the target of a board's code; `options` are its template's, without buffer sizes."""
    chosen = (f"{name}={value}" for name, value in sorted(options.items()) if not name.endswith("_bytes"))
    flags = (*board.cflags, *chosen)
    return Target(cpu=board.cpu, features=tuple(sorted(board.features)), compiler=compiler, flags=flags)


def measurement_key(target: Target, setup: Setup, task_key: str, candidate: str) -> str:
    """Return the key of a measurement, which may be reused if its key is equal."""
    return digest([__version__, target.model_dump(mode="json"), setup.model_dump(mode="json"), task_key, candidate])


def new_id() -> str:
    """Return a unique id."""
    return secrets.token_hex(8)


def now() -> str:
    """Return the current time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def reason_of(text: str) -> str:
    """Return the message of a device or a tool as one line that a terminal can show."""
    return one_line(re.sub(r"\s+", " ", text), _LONGEST)


# The tuning log: JSON Lines, to which each measurement is appended as it is made.
#
# Two logs are merged by concatenation. A line that a power failure has truncated is skipped with a warning, and a line
# with a schema that this mtool does not support is refused.


log = logging.getLogger(__name__)
SUFFIX = ".jsonl"
_LONGEST_LINE = 1 << 20  # bytes of a line
MAX_FILE_BYTES = 1 << 30  # bytes of a file
_RECORD: TypeAdapter[Measurement | WholePlan] = TypeAdapter(Record)


@frozen
class Log:
    """The contents of logs: measurements and whole plans in the order of the lines, each id once."""

    measurements: tuple[Measurement, ...] = ()
    plans: tuple[WholePlan, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Measurement | WholePlan]) -> Self:
        """Return a log of records; records with a repeated id are left out."""
        by_id = {record.id: record for record in records}
        return cls(
            tuple(record for record in by_id.values() if isinstance(record, Measurement)),
            tuple(record for record in by_id.values() if isinstance(record, WholePlan)),
        )


def append(path: Path, record: Measurement | WholePlan) -> None:
    """Append a record to a log as a separate line; it is on the disk when this returns.

    Raises:
        UsageError: the file can't be written.
    """
    files.append_line(path, record.model_dump_json().encode())


def read(paths: Sequence[Path]) -> Log:
    """Read logs, and all logs of folders (`*.jsonl`), in this order.

    Raises:
        UsageError: one is missing or not a log, or has a line with another schema or an unknown key.
    """
    records: list[Measurement | WholePlan] = []
    for path in paths:
        for file in _files(path):
            records += _read(file)
    return Log.of(records)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    logs = sorted(path.glob(f"*{SUFFIX}"))
    if not logs:
        raise UsageError(f"{path} contains no tuning log", details=[f"expected  files whose names end in {SUFFIX}"])
    return logs


def _read(path: Path) -> list[Measurement | WholePlan]:
    try:
        with files.open_named(path) as file:  # a pipe too: --tuned <(cat a.jsonl b.jsonl)
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no tuning log {path}", hint="make one with: mtool tune MODEL -o FILE") from None
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is not a tuning log", details=[f"it is larger than {MAX_FILE_BYTES:,} B"])
    records = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            records += [_record(value, path, number) for value in _values(line, path, number)]
    return records


def _values(line: bytes, path: Path, number: int) -> list[Any]:
    """Return the objects in a line: one, or two if a file was appended to another without a final newline."""
    decoder, at = json.JSONDecoder(parse_constant=_refused), 0
    values: list[Any] = []
    try:
        text = line.decode() if len(line) <= _LONGEST_LINE else ""
        text = text.strip()
        while at < len(text) or not values:
            value, at = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                raise ValueError
            values.append(value)
    except (ValueError, RecursionError):
        log.warning("%s, line %d is truncated or not JSON: skipped", path, number)
    return values


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _record(value: dict[str, Any], path: Path, number: int) -> Measurement | WholePlan:
    where, version = f"{path}, line {number}", value.get("schema_version")
    if version != SCHEMA or isinstance(version, bool):
        raise UsageError(
            f"{where} has schema {version!r}; this mtool supports schema {SCHEMA}",
            hint="it was written by another version of mtool, or is not a tuning log",
        )
    try:
        return _RECORD.validate_json(json.dumps(value))
    except ValidationError as invalid:
        details = records.lines(invalid, 5)
        raise UsageError(f"{where} is not a record of schema {SCHEMA}", details=details) from None
