"""Results of trials: a model's properties, the file of results, and the summary."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

OUTCOMES = ("equal", "within", "not compared", "differs", "failed")  # of what is built and run, the worst last
NOT_RUN = ("too large", "built")
"""Outcomes on a board that does not have the memory, and of a model that takes too long in its emulator."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a model that loads fares on a board.

    outcome: one of OUTCOMES or NOT_RUN; "within" what `mtool verify` allows.
    note: by how much the outputs differ, or why there are none.
    samples: how many were run; of a model with states a sequence.
    instructions: of one inference, where the board counts them.
    code_bytes: of the standalone image without the constants; on the host the model's own functions alone.
    """

    outcome: str
    note: str = ""
    samples: int = 0
    instructions: int | None = None
    arena_bytes: int | None = None
    code_bytes: int | None = None
    const_bytes: int | None = None
    stack_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """How a model fares in one rounding.

    refused: the first line of the error that compiling it ended with; empty: it loads.
    details: what the error says besides.
    stopped: how the process ended that tried it, where not by itself: "slow", "big", "crash", "traceback".
    options: the model's options, those that mtool suggests and that were taken too.
    cpu_s: CPU seconds, with those of the compiler, the emulator and the reference.
    """

    refused: str = ""
    details: tuple[str, ...] = ()
    stopped: str = ""
    options: str = ""
    macs: int = 0
    states: int = 0
    operators: int = 0
    boards: Mapping[str, Found] = field(default_factory=dict)
    cpu_s: float = 0.0

    @property
    def loads(self) -> bool:
        """Tell whether it is compiled."""
        return not self.refused and not self.stopped

    @property
    def outcome(self) -> str:
        """Return the outcome of all boards together: the worst."""
        if self.stopped or self.refused:
            return self.stopped or "refused"
        ran = [found.outcome for found in self.boards.values() if found.outcome not in NOT_RUN]
        return max(ran, key=OUTCOMES.index, default=NOT_RUN[0])


def of_json(row: Mapping[str, Any]) -> Row:
    """Return a row that `asdict` made plain."""
    found = {name: Found(**values) for name, values in row["boards"].items()}
    return Row(**{**row, "details": tuple(row["details"]), "boards": found})


class State:
    """Results in a file, a line of JSON each, by a key and the version of mtool's sources; the last line counts.

    With `older` a result of other sources is as good as one of these, where there is none.
    """

    def __init__(self, path: Path, version: str, *, older: bool = False) -> None:
        self.version = version
        self._path = path
        self._older = older
        self._rows: dict[tuple[str, str], Row] = {}
        self._last: dict[str, str] = {}  # version, by key
        for line in path.read_text().splitlines() if path.is_file() else ():
            try:
                entry = json.loads(line)
                self._keep(entry["key"], entry["sources"], of_json(entry["row"]))
            except (ValueError, KeyError, TypeError):  # a line that was cut off, or of another version of this script
                continue

    def get(self, key: str) -> Row | None:
        """Return what is known, if anything is."""
        found = self._rows.get((key, self.version))
        return self._rows.get((key, self._last.get(key, ""))) if found is None and self._older else found

    def _keep(self, key: str, version: str, row: Row) -> None:
        self._rows[key, version] = row
        self._last[key] = version

    def add(self, key: str, name: str, row: Row) -> None:
        """Keep a result of these sources; `name` is the file's, for readers of the lines."""
        self._keep(key, self.version, row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "sources": self.version, "file": name, "row": asdict(row)}) + "\n")


def key(*parts: object) -> str:
    """Return a key of what a result depends on."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def digest(data: bytes) -> str:
    """Return the hash of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def sources_version(root: Path) -> str:
    """Return a hash over all sources of mtool that a result depends on."""
    digest = hashlib.sha256((root / "boards.yaml").read_bytes())
    for folder in ("mtool", "crt", "project_templates"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.parent.name != "__pycache__":
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def summary(rows: Iterable[tuple[str, Row]]) -> list[str]:
    """Return lines that say how many models load and are right in each rounding, from pairs of rounding and row."""
    groups: dict[str, list[Row]] = {}
    for rounding, row in rows:
        groups.setdefault(rounding, []).append(row)
    lines = []
    for rounding, group in groups.items():
        outcomes = Counter(row.outcome for row in group)
        loading = sum(row.loads for row in group)
        right = outcomes["equal"] + outcomes["within"]
        others = [f"{count:,} {name}" for name, count in outcomes.most_common() if name not in ("equal", "within")]
        parts = [f"{right:,} are right ({outcomes['equal']:,} equal, {outcomes['within']:,} within)", *others]
        share = 100 * loading / len(group)
        lines.append(f"{rounding}: {loading:,} of {len(group):,} load ({share:.0f}%), {', '.join(parts)}")
    return lines
