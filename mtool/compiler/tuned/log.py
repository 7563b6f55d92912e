"""The tuning log: JSON Lines, to which each measurement is appended as it is made.

Two logs are merged by writing one behind the other. A line that a power failure has cut is skipped with a warning, and
a line of a schema that this mtool does not know is refused.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError

from mtool.base import files
from mtool.base import invalid as problems
from mtool.base.errors import UsageError, of_os_error
from mtool.compiler.tuned.record import SCHEMA, Measurement, Record, WholePlan

log = logging.getLogger(__name__)

SUFFIX = ".jsonl"
_LONGEST = 1 << 20  # bytes of a line
MAX_FILE_BYTES = 1 << 30  # bytes of a file
_RECORD: TypeAdapter[Measurement | WholePlan] = TypeAdapter(Record)


@dataclass(frozen=True, slots=True)
class Log:
    """What some logs hold: measurements and whole plans in the order of the lines, each id once."""

    measurements: tuple[Measurement, ...] = ()
    plans: tuple[WholePlan, ...] = ()

    @classmethod
    def of(cls, records: Iterable[Measurement | WholePlan]) -> Self:
        """Return a log of records; one whose id was there already is left out."""
        by_id = {record.id: record for record in records}
        return cls(
            tuple(record for record in by_id.values() if isinstance(record, Measurement)),
            tuple(record for record in by_id.values() if isinstance(record, WholePlan)),
        )


def append(path: Path, record: Measurement | WholePlan) -> None:
    """Write a record as a line of its own behind what a log holds; it is on the disk when this returns.

    Raises:
        UsageError: the file can't be written.
    """
    files.append_line(path, record.model_dump_json().encode())


def read(paths: Sequence[Path]) -> Log:
    """Read logs, and all logs of folders (`*.jsonl`), in the order given.

    Raises:
        UsageError: one is missing or no log, or has a line of another schema or with an unknown key.
    """
    records: list[Measurement | WholePlan] = []
    for path in paths:
        for one in _files(path):
            records += _read(one)
    return Log.of(records)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob(f"*{SUFFIX}"))
    if not found:
        raise UsageError(f"{path} holds no tuning log", details=[f"expected  files whose names end in {SUFFIX}"])
    return found


def _read(path: Path) -> list[Measurement | WholePlan]:
    try:
        with path.open("rb") as file:  # a pipe too: --tuned <(cat a.jsonl b.jsonl)
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no tuning log {path}", hint="make one with: mtool tune MODEL -o FILE") from None
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is no tuning log", details=[f"it is larger than {MAX_FILE_BYTES:,} B"])
    records = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            records += [_record(value, path, number) for value in _values(line, path, number)]
    return records


def _values(line: bytes, path: Path, number: int) -> list[Any]:
    """Return the objects of a line: one, or two where one file was written behind another that had no end of line."""
    decoder, at = json.JSONDecoder(parse_constant=_refused), 0
    values: list[Any] = []
    try:
        text = line.decode() if len(line) <= _LONGEST else ""
        text = text.strip()
        while at < len(text) or not values:
            value, at = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                raise ValueError
            values.append(value)
    except (ValueError, RecursionError):
        log.warning("%s, line %d is cut or no JSON: it is skipped", path, number)
    return values


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _record(value: dict[str, Any], path: Path, number: int) -> Measurement | WholePlan:
    where, version = f"{path}, line {number}", value.get("schema_version")
    if version != SCHEMA or isinstance(version, bool):
        raise UsageError(
            f"{where} is of schema {version!r}; this mtool knows schema {SCHEMA}",
            hint="it was written by another version of mtool, or is no tuning log",
        )
    try:
        return _RECORD.validate_json(json.dumps(value))
    except ValidationError as invalid:
        details = problems.lines(invalid, 5)
        raise UsageError(f"{where} is no record of schema {SCHEMA}", details=details) from None
