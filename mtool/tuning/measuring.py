"""Measure candidates: whether the output is right, how long it takes, and what happens after a failure."""

import itertools
import logging
import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from mtool.base.errors import CommunicationError, DeviceError, MtoolError, NoAnswerError
from mtool.compiler.ir import TensorType
from mtool.compiler.tuned.record import Measurement, Status, Unit, reason_of
from mtool.compiler.tuned.summary import relative_spread
from mtool.device.rpc import protocol
from mtool.device.session import Device
from mtool.stages import samples as sampling
from mtool.stages.building import BuiltProject
from mtool.stages.samples import Sample
from mtool.version import __version__

if TYPE_CHECKING:
    from mtool.tuning.candidates import Candidate, Space


# The operators of a trial by name: all that the board's side needs to measure one task.


IDLE = "idle"
"""The operator that does nothing: its time is the overhead of a call."""


@dataclass(frozen=True, slots=True)
class Operators:
    """The operators of one task in a trial, and its inputs by their numbers in the model.

    Attributes:
        inputs: the numbers of its inputs.
        input_types: their types.
        reference: the operator that computes the right output.
        candidates: one operator for each candidate.
        spoil: the operators that overwrite the output with wrong values before a candidate runs.
        compare: the operators that count the elements that differ.
        differences: the values with those counts, one for each output.
        elements: the number of elements of all outputs.
    """

    inputs: tuple[int, ...]
    input_types: tuple[TensorType, ...]
    reference: str
    candidates: tuple[str, ...]
    spoil: tuple[str, ...]
    compare: tuple[str, ...]
    differences: tuple[str, ...]
    elements: int


# A meter: a board that runs a trial and times one operator after another.


_LEAST_LIMIT_S = 0.5  # in addition to the client's own timeout
_SLOWEST_HZ = 16e6
_CYCLES_PER_MAC = 200  # of a core without a multiplier
_RESTARTS = 3


class Meter(Protocol):
    """A board that measures, or a fake in a test.

    Attributes:
        unit: the unit that it counts.
        granularity: its smallest step, in that unit.
    """

    unit: Unit
    granularity: float

    def begin(self, names: Operators) -> None:
        """Write a task's inputs and run the reference."""

    def time(self, operator: str, number: int) -> float:
        """Run an operator `number` times and return the total time."""

    def differences(self, names: Operators) -> int:
        """Return the number of elements that differ from the reference's, as counted by the comparison."""

    def restart(self) -> None:
        """Restore the board's first state after a candidate has failed."""


class BoardMeter:
    """A board, or its emulator, through a session with the firmware of a trial.

    Args:
        open_device: flashes the firmware, or starts its emulator, and opens a session.
        reconnect: reconnects to the board without writing its flash, and opens a session; its argument is whether the
            board hangs; returns None if it failed.

    Raises:
        MtoolError: the session can't be opened.
    """

    def __init__(
        self, open_device: Callable[[], Device], *, reconnect: Callable[[bool], Device | None] = lambda hangs: None
    ) -> None:
        self._open, self._reconnect = open_device, reconnect
        self._hangs = False
        self._device = open_device()
        self.unit: Unit = "instructions" if self._device.unit == "instructions" else "ns"
        self.granularity = float(max(self._device.info().timer_granularity_ns, 1))
        manifest = self._device.manifest
        self._numbers = {operator.name: operator.index for operator in manifest.operators}
        self._work_s = {op.name: op.macs * _CYCLES_PER_MAC / _SLOWEST_HZ for op in manifest.operators}
        self._counts = {operand.value: operand.offset for operator in manifest.operators for operand in operator.writes}
        self._limit_s = _LEAST_LIMIT_S

    def begin(self, names: Operators) -> None:
        """Write random inputs and run the reference; its time sets the time limit of a candidate."""
        client = self._device.client
        for index, data in zip(names.inputs, inputs(names), strict=True):
            client.write_at(protocol.INPUTS, index, 0, data)
        self._limit_s = _LEAST_LIMIT_S + self._work_s[names.reference]
        start = time.monotonic()
        self.time(names.reference, 1)
        self._limit_s = _LEAST_LIMIT_S + 20 * (time.monotonic() - start)

    def time(self, operator: str, number: int) -> float:
        """Time an operator with the device's timer."""
        limit_s = self._limit_s * max(1, number / 10)
        try:
            return float(self._device.client.time(number, work_s=limit_s, operator=self._numbers[operator]))
        except NoAnswerError:
            self._hangs = True
            raise

    def differences(self, names: Operators) -> int:
        """Read the counts from the arena."""
        client = self._device.client
        counts = (client.read_at(protocol.ARENA, 0, self._counts[value], 4) for value in names.differences)
        return sum(int.from_bytes(data, "little") for data in counts)

    def restart(self) -> None:
        """Open the session again; flash the firmware again only if nothing less helps."""
        self.close()
        reconnected = self._reconnect(self._hangs)
        self._hangs = False
        if reconnected is not None:
            self._device = reconnected
            return
        for attempt in range(1, _RESTARTS + 1):
            try:
                self._device = self._open()
                return
            except CommunicationError:
                if attempt == _RESTARTS:
                    raise

    def close(self) -> None:
        """Release the board. May be called again."""
        try:
            self._device.close()
        except MtoolError:
            return


def inputs(names: Operators) -> list[bytes]:
    """Return random inputs of a task: integers over their whole range, floats from the standard normal distribution."""
    random = np.random.default_rng(0)
    return [_drawn(kind, random) for kind in names.input_types]


def _drawn(kind: TensorType, random: np.random.Generator) -> bytes:
    dtype = kind.dtype
    if dtype.is_float:
        return random.standard_normal(kind.shape).astype(dtype.numpy).tobytes()
    low, high = (0, 1) if dtype.name == "BOOL" else dtype.limits
    wide = np.int64 if low < 0 else np.uint64
    return random.integers(low, high, kind.shape, dtype=wide, endpoint=True).astype(dtype.numpy).tobytes()


REPEATS = 3
_LEAST_NS = 2e6  # shortest reading, if the timer counts time
_STEPS = 1000  # fewest timer steps of a reading
_MOST_RUNS = 100_000
_IDLE_RUNS = 50
_TRIES: Mapping[Status, int] = {"wrong": 3, "fault": 3, "timeout": 3}
_BEGIN_TRIES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a measurement: times per call, each the mean over `number` calls; or why there are none."""

    status: Status
    times: tuple[float, ...] = ()
    number: int = 1
    reason: str = ""

    @property
    def median(self) -> float:
        """The median of the times; infinite if there are none."""
        return statistics.median(self.times) if self.times else math.inf


class Measuring:
    """Measures the operators of one trial on one meter.

    Args:
        meter: the board.
        repeats: readings of each candidate; one is enough if the timer counts instructions.
        heard: called at each sign of life; a board that is silent for too long hangs.
    """

    def __init__(self, meter: Meter, repeats: int = REPEATS, heard: Callable[[], object] = lambda: None) -> None:
        self.meter, self._heard = meter, heard
        self.repeats = 1 if meter.unit == "instructions" else repeats
        self._begun: Operators | None = None
        self._idle: float | None = None

    def measure(self, names: Operators, place: int, repeats: int | None = None) -> Outcome:
        """Return the outcome of a task's candidate with the number `place`; the board is restarted after a failure.

        A failure counts only if it happens again: a single disturbance of the board is not the candidate's fault.

        Raises:
            MtoolError: the board does not come back, or can't run the reference.
        """
        operator, tries = names.candidates[place], 0
        while True:
            self._begin(names)
            outcome = self._tried(names, operator, repeats or self.repeats)
            tries += 1
            if outcome.status == "ok" or tries >= _TRIES[outcome.status]:
                return outcome

    def _tried(self, names: Operators, operator: str, repeats: int) -> Outcome:
        """Return the outcome of one try; after a failure the task begins again, on a restarted board if necessary."""
        try:
            outcome = self._measured(names, operator, repeats)
            if outcome.status != "ok":
                self._begun = None
            return outcome
        except NoAnswerError as failed:
            outcome = Outcome("timeout", reason=_reason(failed))
        except (DeviceError, CommunicationError) as failed:
            outcome = Outcome("fault", reason=_reason(failed))
        self._restart()
        return outcome

    def _begin(self, names: Operators) -> None:
        for tries in itertools.count(1):
            try:
                if self._idle is None:
                    self._idle = self._time(IDLE, _IDLE_RUNS) / _IDLE_RUNS
                if self._begun is not names:
                    self.meter.begin(names)
                    self._heard()
                    self._begun = names
                return
            except (DeviceError, CommunicationError):
                if tries >= _BEGIN_TRIES:
                    raise
                self._restart()

    def _restart(self) -> None:
        self._begun = None
        self._heard()
        self.meter.restart()
        self._heard()

    def _time(self, operator: str, number: int) -> float:
        duration = self.meter.time(operator, number)
        self._heard()
        return duration

    def _measured(self, names: Operators, operator: str, repeats: int) -> Outcome:
        for other in names.spoil:
            self._time(other, 1)
        first = self._time(operator, 1)
        for other in names.compare:
            self._time(other, 1)
        wrong = self.meter.differences(names)
        if wrong:
            return Outcome("wrong", reason=f"{wrong} of {names.elements} elements differ from the reference's")
        number = self._number(first)
        idle = self._idle or 0.0
        readings = (self._time(operator, number) / number - idle for _ in range(repeats))
        return Outcome("ok", tuple(max(reading, 0.0) for reading in readings), number)

    def _number(self, once: float) -> int:
        """Return the number of calls that makes a reading long enough for the timer's steps and for disturbances."""
        least = _STEPS * self.meter.granularity
        if self.meter.unit == "ns":
            least = max(least, _LEAST_NS)
        return max(1, min(math.ceil(least / max(once, self.meter.granularity)), _MOST_RUNS))


def _reason(failed: DeviceError | CommunicationError) -> str:
    return reason_of("; ".join([failed.what, *failed.details]))


# The finals: if times are noisy, the fastest candidates of a task take turns; the slower half leaves after each round.


_MOST = 8  # finalists of a task
_TURNS = (5, 9, 15)  # in each round, after which half of them leave
ROUNDS = len(_TURNS)
_NEAR = 0.02  # of the best time: candidates at least this near are finalists
_STRIKES = 3  # failed readings after which a finalist leaves, unless it has more good ones


def finalists(space: "Space", measured: Mapping[str, Measurement]) -> "list[Candidate]":
    """Return the candidates of a task that noise may have put in the wrong order; none if the best one stands out.

    Also none if an earlier run has completed the finals: all near candidates took part, and two reached the end.

    Args:
        space: the task's space.
        measured: the last measurement of each candidate, by its text.
    """
    valid = [record for record in measured.values() if record.status == "ok" and record.times]
    if not valid:
        return []
    ranked = sorted(valid, key=lambda record: record.median)[:_MOST]
    margin = max([_NEAR, *(3 * relative_spread(record.times) for record in ranked)])
    near = {record.candidate for record in ranked if record.median <= ranked[0].median * (1 + margin)}
    if near == {space.default.text}:
        return []
    near.add(space.default.text)
    if _are_over(valid, near):
        return []
    measured_texts = {record.candidate for record in valid}
    return [candidate for candidate in space.candidates if candidate.text in near & measured_texts]


def _are_over(valid: Sequence[Measurement], near: Collection[str]) -> bool:
    at_the_end = [record for record in valid if len(record.times) >= sum(_TURNS)]
    return len(at_the_end) > 1 and all(len(record.times) >= _TURNS[0] for record in valid if record.candidate in near)


def take_turns(
    measuring: Measuring, names: Operators, places: Collection[int], is_late: Callable[[], bool]
) -> Iterator[tuple[int, Outcome]]:
    """Let candidates take turns, and yield each one's number and outcome after each round.

    Args:
        measuring: measures them.
        names: the operators of their task.
        places: the finalists' numbers.
        is_late: whether to stop.
    """
    running = sorted(places)
    times: dict[int, list[float]] = {place: [] for place in running}
    number, strikes = dict.fromkeys(running, 1), dict.fromkeys(running, 0)
    for turns in _TURNS:
        failed: dict[int, Outcome] = {}
        for place in [place for _ in range(turns) for place in running]:
            if place in failed:
                continue
            if is_late():
                return
            outcome = measuring.measure(names, place, repeats=1)
            if outcome.status == "ok":
                times[place] += outcome.times
                number[place] = outcome.number
                continue
            strikes[place] += 1
            if outcome.status == "wrong" or strikes[place] >= max(_STRIKES, len(times[place])):
                failed[place] = outcome
        ranked = [place for place in running if place not in failed and times[place]]
        ranked.sort(key=lambda place: statistics.median(times[place]))
        yield from failed.items()
        for place in ranked:
            yield place, Outcome("ok", tuple(times[place]), number[place])
        if len(ranked) < 2:
            return
        running = ranked[: max(2, (len(ranked) + 1) // 2)]


# A slice: what a board measures with one firmware, in a search on this computer or in part of one on a board farm.


Mode = Literal["once", "turns"]
"""One candidate after another, or all of them in turns, the slower half leaving after each round."""


@dataclass(frozen=True, slots=True)
class MeasurementRequest:
    """A request to measure one candidate.

    Attributes:
        ident: the measurement's id, also in the log: an answer that comes twice counts once.
        task: the number of its task in the firmware.
        place: its number among the task's candidates.
        repeats: the number of readings; 0: the slice's.
    """

    ident: str
    task: int
    place: int
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """The measurements that one board makes with one firmware.

    Attributes:
        operators: the operators of each task.
        requests: what to measure, in this order.
        unit: the unit of the answers.
        repeats: readings of each candidate.
        mode: the order of the readings.
        ident: the slice's id.
        topic: the topic where answers are published as they come.
        board: the name of the boards that may measure it.
        version: the version of mtool, which has to be the worker's.
    """

    operators: tuple[Operators, ...]
    requests: tuple[MeasurementRequest, ...]
    unit: Unit
    repeats: int
    mode: Mode = "once"
    ident: str = ""
    topic: str = ""
    board: str = ""
    version: str = __version__


class OpenBoard(Protocol):
    """A board that runs a firmware, or a fake in a test."""

    @property
    def meter(self) -> Meter:
        """The board's meter."""

    def in_unit(self, operators: Sequence[str], outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Return the outcomes of operators in the slice's unit, if it is not the meter's."""

    def close(self) -> None:
        """Release the board."""


def measure_slice(
    opened: OpenBoard,
    measuring: Measuring,
    slice_: Slice,
    is_over: Callable[[], bool],
    begins: Callable[[str], object] = lambda ident: None,
) -> Iterator[tuple[str, Outcome]]:
    """Measure a slice until it is done or stopped, and yield each measurement's id and outcome as it comes.

    Args:
        opened: the board.
        measuring: measures there.
        slice_: what to measure; in turns, each request has an outcome after each of its rounds.
        is_over: whether to stop.
        begins: called with the id of each measurement that begins, and with "" when it has ended.
    """
    if slice_.mode == "turns":
        for task in dict.fromkeys(request.task for request in slice_.requests):
            idents = {request.place: request.ident for request in slice_.requests if request.task == task}
            rounds = dict.fromkeys(idents, 0)
            for place, outcome in take_turns(measuring, slice_.operators[task], idents, is_over):
                yield round_ident(idents[place], rounds[place]), outcome
                rounds[place] += 1
        return
    is_whole = slice_.unit != measuring.meter.unit  # the slice's unit is computed for all of them at once
    measured: list[tuple[MeasurementRequest, Outcome]] = []
    for request in slice_.requests:
        if is_over():
            break
        begins(request.ident)
        outcome = measuring.measure(slice_.operators[request.task], request.place, request.repeats or None)
        begins("")
        measured.append((request, outcome))
        if not is_whole:
            yield request.ident, outcome
    if measured and is_whole:
        operators = [slice_.operators[request.task].candidates[request.place] for request, _ in measured]
        outcomes = opened.in_unit(operators, [outcome for _, outcome in measured])
        yield from zip((request.ident for request, _ in measured), outcomes, strict=True)


def round_ident(ident: str, number: int) -> str:
    """Return the id of a request's answer in a round, the first of which is 0; deterministic."""
    return ident if not number else f"{(int(ident, 16) + number) % (1 << 64):016x}"


# A run of the whole model with one plan: its outputs and its time.


log = logging.getLogger(__name__)
_REPEATS = 25  # readings of a plan: enough to see 1% in 3% of noise


@dataclass(frozen=True, slots=True)
class WholeRun:
    """The outputs of one plan for random inputs, and the times per inference."""

    outputs: tuple[Sample, ...]
    times: tuple[float, ...]


Runs = Callable[[BuiltProject, Unit], WholeRun]
"""Flashes a built model and runs it; the unit is that of the times."""


def run_on(open_device: Callable[[BuiltProject], Device]) -> Runs:
    """Return a function that runs a model on a device, and again if it fails: a board may be disturbed or unplugged.

    Args:
        open_device: flashes the firmware and opens a session.
    """

    def run(prepared: BuiltProject, unit: Unit) -> WholeRun:
        try:
            return once(prepared, unit)
        except (CommunicationError, DeviceError) as failed:
            log.warning("running the whole model again: %s", failed.what)
            return once(prepared, unit)

    def once(prepared: BuiltProject, unit: Unit) -> WholeRun:
        sample = sampling.seeded(prepared.manifest.inputs, count=1, seed=0)
        with open_device(prepared) as device:
            outputs = tuple(device.run(inputs) for inputs in sample)
            count = 1 if device.unit == "instructions" else _REPEATS
            timing = device.time(1, count, min_repeat_ms=0 if count == 1 else 5, inputs=sample[0])
        if unit != "cycles":
            return WholeRun(outputs, tuple(timing.runs))
        from mtool.device import cycles

        estimate = cycles.estimate(prepared.folder, sample[0])
        return WholeRun(outputs, (float(estimate.cycles[prepared.board.cpu]),))

    return run
