"""The search: all candidates, the most promising first, in few firmwares; if times are noisy, the best ones again.

Each measurement is logged before the next begins. What is already in the log is not measured again.
"""

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from mtool.base.errors import BuildError, FitError
from mtool.base.option_values import LEVEL, WEIGHTS, Level
from mtool.boards import Board
from mtool.compiler.compilation import target_of
from mtool.compiler.kernels.schedule import schedule_text
from mtool.compiler.plan.function_knobs import LEVELS, RAM, Built, built
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import (
    Log,
    Measurement,
    Setup,
    Status,
    Target,
    Unit,
    measurement_key,
    new_id,
    now,
    reason_of,
)
from mtool.compiler.tuned.summary import relative_spread
from mtool.tuning.candidates import Candidate, Space
from mtool.tuning.firmware import TrialLimits, TrialSite, shares_of
from mtool.tuning.measuring import (
    REPEATS,
    ROUNDS,
    MeasurementRequest,
    Measuring,
    Mode,
    Outcome,
    Slice,
    finalists,
    measure_slice,
    round_ident,
)
from mtool.tuning.trial import Names, Share
from mtool.version import __version__

# The progress of a search: shown while it runs, and its result.


@dataclass(slots=True)
class Row:
    """A task: its nodes, its candidates, and the fastest so far.

    `measured` has the last measurement of each candidate, by its text.
    """

    space: Space
    measured: dict[str, Measurement] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The task's name for people: its first node, and what it computes."""
        more = len(self.space.task.nodes) - 1
        return f"{self.space.task.nodes[0]}{f' and {more} more' if more else ''}  {self.space.task.record.label}"

    @property
    def failed(self) -> int:
        """The number of candidates without a time."""
        return sum(record.status != "ok" for record in self.measured.values())

    @property
    def default(self) -> Measurement | None:
        """The measurement of the cost model's choice; None: there is none."""
        measurement = self.measured.get(self.space.default.text)
        return measurement if measurement is not None and measurement.status == "ok" else None

    @property
    def best(self) -> Measurement | None:
        """The fastest measurement, the cost model's choice if none is faster; None: there is none."""
        right = [record for record in self.measured.values() if record.status == "ok" and record.times]
        first = self.space.default.text
        return min(right, key=lambda row: (row.median, row.candidate != first, row.candidate), default=None)


@dataclass(slots=True)
class Progress:
    """The progress of a search.

    Attributes:
        rows: the tasks, by key.
        unit: the unit of the measurements.
        firmwares: the number of firmwares built.
        measured: the number of candidates measured in this run.
        reused: the number of candidates already in the log.
        phase: the current activity.
        drift: the largest change of the baseline from its first measurement, as a ratio.
        seconds: the time limit of a run; 0: until all is measured.
        trials: the most candidates to measure in this run; 0: all.
        listener: called after each change.
    """

    rows: dict[str, Row]
    unit: Unit
    firmwares: int = 0
    measured: int = 0
    reused: int = 0
    phase: str = ""
    drift: float = 0.0
    seconds: float = 0.0
    trials: int = 0
    started: float = field(default_factory=time.monotonic)
    listener: "Callable[[Progress], None] | None" = None

    @classmethod
    def of(
        cls, spaces: Iterable[Space], unit: Unit, listener: "Callable[[Progress], None] | None" = None
    ) -> "Progress":
        """Return the progress of a new search."""
        return cls({space.task.record.key: Row(space) for space in spaces}, unit, listener=listener)

    @property
    def total(self) -> int:
        """The number of candidates."""
        return sum(len(row.space.candidates) for row in self.rows.values())

    @property
    def tried(self) -> int:
        """The number of candidates measured, now or earlier."""
        return sum(len(row.measured) for row in self.rows.values())

    @property
    def failed(self) -> int:
        """The number of measured candidates without a time."""
        return sum(row.failed for row in self.rows.values())

    def take(self, record: Measurement) -> None:
        """Record a measurement."""
        self.rows[record.task.key].measured[record.candidate] = record
        self.changed()

    def set_phase(self, phase: str) -> None:
        """Record the current activity."""
        self.phase = phase
        self.changed()

    def changed(self) -> None:
        """Notify the listener."""
        if self.listener is not None:
            self.listener(self)


# Builds as candidates: the fastest of a task again, at another optimization level, or with weights in RAM.
#
# A build changes a schedule's machine code, not what it computes, so that only candidates that are fast in the usual
# build are tried in others.


Build = Mapping[str, str]
"""The settings of the knobs `opt` and `weights`."""
_CODE = {"O2": 1.0, "O3": 2.0, "Os": 0.85}  # approximate code size at a level, relative to -O2
_FASTEST = 2  # candidates of a task that are tried in other builds
_LEAST_SHARE = 0.01  # of the model's time; a task with less gains nothing
_MOST_RAM = 0.5  # of the memory for data; the most for one operator's constants


def other_builds(board: Board, target: Target, unit: Unit) -> tuple[Build, ...]:
    """Return the builds that may be faster on a board than the usual one.

    Weights in RAM can only be faster if time is measured and the board keeps them elsewhere: the instructions are the
    same, and estimated cycles do not count wait states.
    """
    levels = tuple({LEVEL: level} for level in other_levels(target))
    if unit != "ns" or not ram_bytes(board):
        return levels
    return (*levels, {WEIGHTS: RAM}, {LEVEL: "O3", WEIGHTS: RAM})


def other_levels(target: Target) -> tuple[Level, ...]:
    """Return the optimization levels other than the target's own."""
    levels = [flag.removeprefix("opt=").removeprefix("-") for flag in target.flags if flag.startswith("opt=")]
    return tuple(level for level in LEVELS if level not in levels)


def ram_bytes(board: Board) -> int:
    """Return the size of the memory for data if it can hold constants that are now in another memory; else 0."""
    weights, data = board.memory_for("weights"), board.memory_for("data")
    if weights is None or data is None or weights == data or target_of(board).flash_is_apart:
        return 0
    return data.size


def built_otherwise(
    rows: Sequence[Row], builds: Sequence[Build], ram: int
) -> Iterator[tuple[Row, tuple[Candidate, ...]]]:
    """Yield the tasks that take a notable share of the model's time, each with its fastest candidates in other builds.

    Args:
        rows: all tasks.
        builds: the builds to try.
        ram: the size of the memory for data, in bytes.
    """
    times = {id(row): row.best.median * len(row.space.task.nodes) for row in rows if row.best is not None}
    total = sum(times.values())
    for row in rows:
        if times.get(id(row), 0.0) < _LEAST_SHARE * total or not total:
            continue
        right = sorted(
            (record for record in row.measured.values() if record.status == "ok" and record.times),
            key=lambda record: (record.median, record.candidate),
        )
        plain = {item.text: item for item in row.space.candidates if not isinstance(item.schedule, Built)}
        fastest = [plain[record.candidate] for record in right if record.candidate in plain][:_FASTEST]
        candidates = []
        for base, build in itertools.product(fastest, builds):
            if build.get(WEIGHTS) == RAM and not 0 < sum(base.constants.values()) <= _MOST_RAM * ram:
                continue  # without constants it is the same build; with too many it does not fit
            schedule, code_bytes = built(base.schedule, build), int(base.code_bytes * _CODE[build.get(LEVEL, "O2")])
            candidates.append(replace(base, schedule=schedule, text=schedule_text(schedule), code_bytes=code_bytes))
        yield row, tuple(candidates)


log = logging.getLogger(__name__)
PendingCandidate = tuple[Space, Candidate]
_HALVED = 0.1  # of the estimate: this much more cost halves a candidate's priority
_CHEAPER = -0.3  # the lowest relative cost that is believed, against the cost model's choice
_MOST_DEARER = 50.0  # times; more expensive candidates come last anyway
_BEFORE_BUILDS = 0.75  # of the trials and the time: for the schedules, before other builds
_BASELINE_REPEATS = 9
_DRIFT = 0.01  # of the baseline; a smaller change is not reported


@dataclass(frozen=True, slots=True)
class OpenMeasurement:
    """A requested measurement without an outcome yet."""

    space: Space
    candidate: Candidate
    kind: Literal["candidate", "baseline", "final"]


@dataclass(frozen=True, slots=True)
class Goal:
    """When a search ends: after a number of measurements or seconds; 0: when all candidates are measured.

    The fastest are tried in other `builds` too; `ram_bytes` is the memory for data there. `repeats` is the number of
    readings of each candidate.
    """

    trials: int = 0
    seconds: float = 0.0
    builds: tuple[Build, ...] = ()
    ram_bytes: int = 0
    repeats: int = REPEATS


class Search:
    """A search over the candidates of a model's tasks.

    Args:
        progress: the tasks; updated by the search.
        bench: builds trials and runs them on its board.
        room: the limits of a firmware.
        target, setup: the target and setup of the measurements.
        path: the log.
        known: the log's present content.
        goal: when to end.
        clock: returns seconds, as `time.monotonic`.
    """

    def __init__(
        self,
        progress: Progress,
        bench: TrialSite,
        room: TrialLimits,
        target: Target,
        setup: Setup,
        path: Path,
        earlier: Log,
        goal: Goal,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress, self.bench, self.room, self.path, self.goal = progress, bench, room, path, goal
        self.target, self.setup = target, setup
        self._clock, self._start = clock, clock()
        self._part = _BEFORE_BUILDS if goal.builds else 1.0
        self._baseline: list[float] = []
        self._open: dict[str, OpenMeasurement] = {}
        self._heaviest_key = max(
            progress.rows,
            key=lambda key: progress.rows[key].space.default.estimate * len(progress.rows[key].space.task.nodes),
            default="",
        )
        self._earlier = {record.key: record for record in earlier.measurements if not record.baseline}
        self._pending = self._unknown(self._ordered())

    def run(self) -> None:
        """Measure the remaining candidates until the goal is reached.

        Raises:
            MtoolError: nothing can be built, or the board does not come back.
        """
        self._drive(self._next_batch, "once")
        self._add_builds()
        self._drive(self._next_batch, "once")
        if self.setup.unit == "ns":
            batches = self._final_batches()
            self._drive(lambda: next(batches, []), "turns")

    def _drive(self, source: Callable[[], list[PendingCandidate]], mode: Mode) -> None:
        """Measure batches from the source until it is empty."""
        while not self._is_late() and (batch := source()):
            self._batch(batch, mode)

    @property
    def _heaviest(self) -> Space | None:
        """The task that takes longest by the estimate."""
        return self.progress.rows[self._heaviest_key].space if self._heaviest_key else None

    def _unknown(self, candidates: Sequence[PendingCandidate]) -> list[PendingCandidate]:
        """Return the candidates to measure; those in the log are added to the progress."""
        result = []
        for space, candidate in candidates:
            record = self._earlier.get(self._key(space, candidate))
            if record is None:
                result.append((space, candidate))
            else:
                self.progress.rows[space.task.record.key].measured[candidate.text] = record
                self.progress.reused += 1
        return result

    def _add_builds(self) -> None:
        """Queue the fastest candidates in other builds before the remaining candidates."""
        self._part = 1.0
        added: list[PendingCandidate] = []
        rows, goal = [*self.progress.rows.values()], self.goal
        for row, candidates in built_otherwise(rows, goal.builds, goal.ram_bytes):
            row.space = replace(row.space, candidates=(*row.space.candidates, *candidates))
            added += [(row.space, candidate) for candidate in candidates]
        now = {key: row.space for key, row in self.progress.rows.items()}
        self._pending = [*self._unknown(added), *((now[space.task.record.key], item) for space, item in self._pending)]

    def _next_batch(self) -> list[PendingCandidate]:
        """Take the next candidates that fit one firmware from the queue; none if the search is over."""
        while self._pending and not self._is_over():
            self._pending = self._without_misfits(self._pending)
            room = self.room
            if self.goal.trials:
                room = replace(room, most=min(room.most, self._trials_left()))
            _, count = shares_of(self._pending, room)
            batch, self._pending = self._pending[:count], self._pending[count:]
            if batch:
                return batch
        return []

    def _trials_left(self) -> int:
        return max(math.ceil(self.goal.trials * self._part) - self.progress.measured, 0)

    def _is_over(self) -> bool:
        return self._is_late(self._part) or (self.goal.trials > 0 and self._trials_left() == 0)

    def _is_late(self, part: float = 1.0) -> bool:
        return self.goal.seconds > 0 and self._clock() >= self._start + self.goal.seconds * part

    def _ordered(self) -> list[PendingCandidate]:
        """Return all candidates: first the cost model's choices, then those that may gain most.

        A candidate's priority is its task's share of the model, halved for each `_HALVED` by which the cost model
        considers it more expensive than its choice.
        """
        pairs = [(row.space, candidate) for row in self.progress.rows.values() for candidate in row.space.candidates]

        def key(pending: PendingCandidate) -> tuple[bool, float]:
            space, candidate = pending
            default = max(space.expected(space.default), 1.0)
            dearer = min(max(space.expected(candidate) / default - 1, _CHEAPER), _MOST_DEARER)
            return candidate is not space.default, -default * len(space.task.nodes) * 0.5 ** (dearer / _HALVED)

        return sorted(pairs, key=key)

    def _without_misfits(self, candidates: Sequence[PendingCandidate]) -> list[PendingCandidate]:
        """Return the candidates that fit a firmware alone; the others are recorded as too large."""
        fitting = []
        for space, candidate in candidates:
            if self.room.holds(space, candidate):
                fitting.append((space, candidate))
            else:
                self._record(
                    space, candidate, Outcome("too large", reason="it alone does not fit the board's memories")
                )
        return fitting

    def _batch(self, batch: Sequence[PendingCandidate], mode: Mode) -> None:
        """Measure candidates with one firmware; if it can't be built, with one for each half."""
        phase = "measuring" if mode == "once" else "finals"
        self.progress.set_phase(f"build of {len(batch)} candidates" if mode == "once" else phase)
        try:
            names, board = self.bench.start(self._shares(batch, mode))
        except (FitError, BuildError) as refused:
            for part in self._halves(batch, refused):
                if not self._is_late():
                    self._batch(part, mode)
            return
        self.progress.firmwares += 1
        with contextlib.closing(board):
            self.progress.set_phase(phase)
            measuring = Measuring(board.meter, self.goal.repeats)

            def measure(requests: tuple[MeasurementRequest, ...], is_over: Callable[[], bool] = lambda: False) -> None:
                slice_ = Slice(names, requests, self.setup.unit, self.goal.repeats, mode)
                for ident, outcome in measure_slice(board, measuring, slice_, is_over):
                    self._answer(ident, outcome)

            if mode == "once":
                measure(self._baseline_request(names, _BASELINE_REPEATS))
            requests = tuple(request for group in self._requests(names, batch) for request in group)
            self._note_open(names, requests, mode)
            measure(requests, self._is_over if mode == "once" else self._is_late)
            if mode == "once":
                measure(self._baseline_request(names, _BASELINE_REPEATS))

    def _shares(self, batch: Sequence[PendingCandidate], mode: Mode) -> tuple[Share, ...]:
        """Return the candidates by task, with the baseline among them if there are others to compare."""
        shares, _ = shares_of(batch, self.room)
        return self._with_baseline(shares) if len(batch) > 1 and mode == "once" else shares

    def _halves(
        self, batch: Sequence[PendingCandidate], refused: FitError | BuildError
    ) -> Sequence[Sequence[PendingCandidate]]:
        """Return the halves of candidates whose firmware can't be built; a single one is recorded as failed."""
        half = len(batch) // 2
        if half:
            return batch[:half], batch[half:]
        self._refused(*batch[0], refused)
        return ()

    def _requests(
        self, firmware: Sequence[Names], batch: Sequence[PendingCandidate]
    ) -> list[tuple[MeasurementRequest, ...]]:
        """Return the requests for a batch's candidates in a firmware, by task."""
        keys = {(space.task.record.key, candidate.text) for space, candidate in batch}
        return [
            tuple(
                MeasurementRequest(new_id(), task, place)
                for place, candidate in enumerate(names.share.candidates)
                if (names.share.space.task.record.key, candidate.text) in keys
            )
            for task, names in enumerate(firmware)
        ]

    def _note_open(self, firmware: Sequence[Names], requests: Iterable[MeasurementRequest], mode: Mode) -> None:
        """Record the requests as open; in turns, each has an answer in each round."""
        for request in requests:
            share = firmware[request.task].share
            for number in range(1 if mode == "once" else ROUNDS):
                self._open[round_ident(request.ident, number)] = OpenMeasurement(
                    share.space, share.candidates[request.place], "candidate" if mode == "once" else "final"
                )

    def _baseline_request(self, firmware: Sequence[Names], repeats: int) -> tuple[MeasurementRequest, ...]:
        """Return the request that measures the board's speed; none if instructions are counted."""
        for task, names in enumerate(firmware if self.setup.unit == "ns" else ()):
            space = names.share.space
            if space is self._heaviest and space.default in names.share.candidates:
                request = MeasurementRequest(new_id(), task, names.share.candidates.index(space.default), repeats)
                self._open[request.ident] = OpenMeasurement(space, space.default, "baseline")
                return (request,)
        return ()

    def _refused(self, space: Space, candidate: Candidate, error: FitError | BuildError) -> None:
        """Record a candidate that can't be built; for the cost model's choice raise the error."""
        if isinstance(error, BuildError) and candidate is space.default:
            raise error
        status: Status = "too large" if isinstance(error, FitError) else "unbuildable"
        self._record(space, candidate, Outcome(status, reason=reason_of("; ".join([error.what, *error.details]))))

    def _with_baseline(self, shares: Sequence[Share]) -> tuple[Share, ...]:
        """Return shares that include the baseline: the cost model's choice for the task that takes longest."""
        heaviest = self._heaviest
        assert heaviest is not None
        if not any(share.space is heaviest for share in shares):
            return (*shares, Share(heaviest, (heaviest.default,)))
        return tuple(
            Share(heaviest, (heaviest.default, *share.candidates))
            if share.space is heaviest and heaviest.default not in share.candidates
            else share
            for share in shares
        )

    def _answer(self, ident: str, outcome: Outcome, board: str = "") -> None:
        """Write an outcome to the log, unless it is already there."""
        request = self._open.pop(ident, None)
        if request is None:
            return
        if request.kind != "baseline":
            self._record(request.space, request.candidate, outcome, counts=request.kind == "candidate", ident=ident)
            return
        self._append(request.space, request.candidate, outcome, baseline=True, ident=ident)
        if outcome.status == "ok":
            self._compare_speed(outcome, board)

    def _compare_speed(self, outcome: Outcome, board: str) -> None:
        """Warn if the board has become faster or slower since the search began."""
        self._baseline.append(outcome.median)
        change = outcome.median / self._baseline[0] - 1 if self._baseline[0] else 0.0
        if abs(change) > max(_DRIFT, 3 * relative_spread(outcome.times), 1.2 * abs(self.progress.drift)):
            self.progress.drift = change
            log.warning("the board has become %.1f%% %s", abs(change) * 100, "slower" if change > 0 else "faster")

    def _final_batches(self) -> Iterator[list[PendingCandidate]]:
        """Yield batches of each task's fastest candidates, to be measured again in turns."""
        rows = self.progress.rows.values()
        pending = [(row.space, candidate) for row in rows for candidate in finalists(row.space, row.measured)]
        while pending:
            _, count = shares_of(pending, self.room)
            yield pending[:count]
            pending = pending[count:]

    def _key(self, space: Space, candidate: Candidate) -> str:
        return measurement_key(self.target, self.setup, space.task.record.key, candidate.text)

    def _record(
        self, space: Space, candidate: Candidate, outcome: Outcome, *, counts: bool = True, ident: str = ""
    ) -> None:
        """Write a measurement to the log, with a new id if it has none, and add it to the progress."""
        record = self._append(space, candidate, outcome, ident=ident)
        self.progress.measured += counts
        self.progress.take(record)

    def _append(
        self, space: Space, candidate: Candidate, outcome: Outcome, *, baseline: bool = False, ident: str = ""
    ) -> Measurement:
        record = Measurement(
            id=ident or new_id(),
            key=self._key(space, candidate),
            when=now(),
            mtool=__version__,
            target=self.target,
            setup=self.setup,
            task=space.task.record,
            candidate=candidate.text,
            estimate=candidate.estimate,
            baseline=baseline,
            **{**asdict(outcome), "times": tuple(round(reading, 3) for reading in outcome.times)},
        )
        tuning_log.append(self.path, record)
        return record
