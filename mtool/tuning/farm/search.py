"""The search on a board farm: several firmwares are in flight, each is cut into slices, and a slice goes to one board.

Each measurement gets its id when it is requested. Its answer is logged as soon as it arrives, and once even if it
arrives again; the missing answers of a lost slice are requested from another board.
"""

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mtool import boards
from mtool.base import plural
from mtool.base.errors import BoardError, BuildError, FitError, UsageError
from mtool.compiler.tuned.record import Unit, new_id
from mtool.stages.building import BuiltProject
from mtool.tuning.farm.client import Built, Ended, Farm, Refused
from mtool.tuning.farm.messages import Answer, pack
from mtool.tuning.farm.security import FarmAddress
from mtool.tuning.firmware import TrialSite
from mtool.tuning.measuring import (
    ROUNDS,
    MeasurementRequest,
    Mode,
    Operators,
    Outcome,
    Runs,
    Slice,
    WholeRun,
    round_ident,
)
from mtool.tuning.search import PendingCandidate, Progress, Search
from mtool.tuning.trial import Names
from mtool.tuning.whole import Whole

# The work in progress of a search on a board farm: firmware being built, slices, requested measurements.


@dataclass(slots=True)
class Firmware:
    """A firmware: the candidates it was made for, and the number of unfinished slices."""

    ident: str
    batch: Sequence[PendingCandidate]
    mode: Mode
    names: tuple[Names, ...] = ()
    open_slices: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A slice to submit: its requests, the number of boards that have tried it, and the workers to avoid."""

    firmware: Firmware
    requests: tuple[MeasurementRequest, ...]
    tries: int = 0
    avoid: frozenset[str] = frozenset()


@dataclass(slots=True)
class UnderWay:
    """The work in progress."""

    making: dict[str, Firmware] = field(default_factory=dict)
    waiting: deque[Part] = field(default_factory=deque)
    running: dict[str, Part] = field(default_factory=dict)  # slices that workers have
    again: deque[Sequence[PendingCandidate]] = field(default_factory=deque)  # halves of failed builds
    suspects: dict[str, list[str]] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)  # boards whose different speed was reported


log = logging.getLogger(__name__)
_LEAST = 8  # candidates worth flashing a board for, if there are enough
_MOST = 48  # candidates in a slice: the most that are lost with a board and measured again
_BASELINE_READINGS = 3  # of the baseline, at the beginning of each slice
_TRIES = 8  # of a slice, on different boards if possible
_SUSPECT = 2  # boards that did not recover from the same candidate; then it is the cause
_DIFFERENT = 0.01  # a smaller difference in a board's speed is not reported
_POLL_S = 1.0
_EMPTY_S = 20.0  # wait for a board if none is left and some are quarantined


class FarmSearch(Search):
    """A search over the candidates of a model's tasks on the boards of a board farm.

    Args:
        farm: the connection to the board farm.
        given: the arguments of `Search`; the bench only makes firmware.
    """

    def __init__(self, farm: Farm, *args: Any) -> None:
        super().__init__(*args)
        self.farm = farm
        self.quarantined: dict[str, str] = {}
        self._state = UnderWay()
        self._speeds: dict[str, list[float]] = {}
        self._empty_since: float | None = None
        self._makers = ThreadPoolExecutor(1, thread_name_prefix="mtool-build")

    def run(self) -> None:
        """Measure the remaining candidates until the goal is reached.

        Raises:
            MtoolError: nothing can be built, no board is left, or the scheduler does not come back.
        """
        try:
            super().run()
        finally:
            self._makers.shutdown(wait=True, cancel_futures=True)

    def _trials_left(self) -> int:
        on_the_way = sum(request.kind == "candidate" for request in self._open.values())
        on_the_way += sum(len(firmware.batch) for firmware in self._state.making.values())
        on_the_way += sum(len(batch) for batch in self._state.again)
        return max(super()._trials_left() - on_the_way, 0)

    def _drive(self, source: Callable[[], list[PendingCandidate]], mode: Mode) -> None:
        """Keep the boards busy with batches from the source until it is empty and all answers have arrived."""
        self._state = state = UnderWay()
        self._open.clear()
        while not self._is_late():
            self._fill(source, mode)
            if not (state.making or state.waiting or state.running or state.again):
                return
            self._check_boards()
            on = plural.count(self.farm.boards, "board")
            self.progress.set_phase(f"{'measuring' if mode == 'once' else 'finals'} on {on}")
            for event in self.farm.wait(_POLL_S):
                self._take(event)

    def _fill(self, source: Callable[[], list[PendingCandidate]], mode: Mode) -> None:
        """Submit a slice to each free board, and make firmware for the next ones."""
        state, farm = self._state, self.farm
        while state.waiting and farm.free > 0:
            self._submit(state.waiting.popleft())
        while len(state.waiting) < max(farm.boards, 1) and len(state.making) <= max(farm.builders, 1):
            batch = state.again.popleft() if state.again else source()
            if not batch:
                return
            firmware = Firmware(new_id(), batch, mode)
            state.making[firmware.ident] = firmware
            self._makers.submit(self._make, firmware)

    def _make(self, firmware: Firmware) -> None:
        """Make a firmware; runs in its own thread."""
        try:
            shares = self._shares(firmware.batch, firmware.mode)
            firmware.names, project = self.bench.make(shares, build=not self.farm.builders)
            self.farm.post((firmware, pack(project) if isinstance(project, BuiltProject) else project))
        except BaseException as failed:
            self.farm.post(Refused(firmware.ident, failed))

    def _take(self, event: Any) -> None:
        match event:
            case Answer():
                self._answer(event.ident, event.outcome, event.board)
            case Ended():
                self._ended(event)
            case Built():
                self._built(event)
            case Refused():
                self._not_built(event)
            case (Firmware() as firmware, payload):
                self.farm.add(firmware.ident, payload)

    def _built(self, event: Built) -> None:
        firmware = self._state.making.pop(event.firmware)
        if event.toolchain and event.toolchain != self.target.compiler:
            raise BuildError(
                f"a worker compiles with {event.toolchain}, this computer with {self.target.compiler}",
                hint="times can't be compared: install the same one, or let this computer compile (no worker --builds)",
            )
        self.progress.firmwares += 1
        parts = [*self._parts(firmware)]
        firmware.open_slices = len(parts)
        self._state.waiting += parts
        if not parts:
            self.farm.release(firmware.ident)

    def _not_built(self, event: Refused) -> None:
        """Split a firmware that can't be built into halves; a single candidate is recorded as failed."""
        if not isinstance(event.error, FitError | BuildError):
            raise event.error
        batch = self._state.making.pop(event.firmware).batch
        self.farm.release(event.firmware)
        self._state.again += self._halves(batch, event.error)

    def _parts(self, firmware: Firmware) -> Iterator[Part]:
        """Cut a firmware into slices that share the coming work among all boards, but are not too small."""
        requests = self._requests(firmware.names, firmware.batch)
        if firmware.mode == "turns":  # a task's candidates have to be on one board
            cut = [part for part in requests if part]
        else:
            everything = [request for part in requests for request in part]
            parts = (*self._state.waiting, *self._state.running.values())
            to_come = len(everything) + len(self._pending) + sum(len(part.requests) for part in parts)
            to_come += sum(len(other.batch) for other in self._state.making.values())
            size = even(len(everything), min(max(-(-to_come // max(self.farm.boards, 1)), _LEAST), _MOST))
            cut = [tuple(everything[at : at + size]) for at in range(0, len(everything), size)]
        for part in cut:
            self._note_open(firmware.names, part, firmware.mode)
            yield Part(firmware, part)

    def _submit(self, part: Part) -> None:
        firmware, ident = part.firmware, new_id()
        requests = part.requests
        if firmware.mode == "once":
            requests = (*self._baseline_request(firmware.names, _BASELINE_READINGS), *requests)
        operators = tuple(_without_share(names) for names in firmware.names)
        slice_ = Slice(
            operators,
            requests,
            self.setup.unit,
            self.goal.repeats,
            firmware.mode,
            ident,
            self.farm.topic,
            self.farm.board,
        )
        self.farm.submit(slice_, firmware.ident, part.avoid)
        self._state.running[ident] = part

    def _ended(self, event: Ended) -> None:
        part, end = self._state.running.pop(event.ident, None), event.end
        if part is None:
            return
        is_whole = end is not None and not end.failed and not end.is_stopped
        for answer in end.answers if end is not None else ():
            self._answer(answer.ident, answer.outcome, answer.board)
        if end is not None and end.failed:
            self._board_failed(end.board or event.worker, end.failed, end.is_quarantined)
            self._suspect(end.measurement, end.board, end.failed)
        elif not is_whole:
            log.info("submitting a slice again: %s", event.reason or "its worker has ended")
        rest = self._open_requests(part, is_whole=is_whole)
        if not rest:
            part.firmware.open_slices -= 1
            if not part.firmware.open_slices:
                self.farm.release(part.firmware.ident)
            return
        if part.tries + 1 >= _TRIES:
            raise BoardError(
                f"no board of the farm could measure {plural.count(len(rest), 'candidate')}",
                details=[f"tried {_TRIES} times; the last: {end.failed if end and end.failed else event.reason}"],
                hint="check the workers, then run the same command again: finished measurements are in the log",
            )
        avoid = part.avoid | ({event.worker} if end and end.failed else set())
        self._state.waiting.appendleft(replace(part, requests=rest, tries=part.tries + 1, avoid=avoid))

    def _open_requests(self, part: Part, *, is_whole: bool) -> tuple[MeasurementRequest, ...]:
        """Return the requests of a slice that are still open; interrupted turns begin again, with new ids."""
        if part.firmware.mode == "once":
            return tuple(request for request in part.requests if request.ident in self._open)
        for request in part.requests:
            for number in range(ROUNDS):
                self._open.pop(round_ident(request.ident, number), None)
        if is_whole:
            return ()
        again = tuple(MeasurementRequest(new_id(), request.task, request.place) for request in part.requests)
        self._note_open(part.firmware.names, again, "turns")
        return again

    def _suspect(self, ident: str, board: str, reason: str) -> None:
        """Record a candidate as a fault once enough boards did not recover from it: the next would not either."""
        if ident not in self._open:
            return
        boards = self._state.suspects.setdefault(ident, [])
        boards.append(board)
        if len(boards) >= _SUSPECT:
            text = f"{' and '.join(dict.fromkeys(boards))} did not recover from it: {reason}"
            self._answer(ident, Outcome("fault", reason=text[:400]), board)

    def _board_failed(self, board: str, reason: str, is_quarantined: bool) -> None:
        log.warning("%s failed; its candidates go to another board: %s", board, reason)
        if is_quarantined and board not in self.quarantined:
            self.quarantined[board] = reason
            log.warning("%s is quarantined: it failed three times in a row", board)

    def _check_boards(self) -> None:
        """Wait for boards if there are none, up to a limit.

        Raises:
            BoardError: there are none.
        """
        if self.farm.boards:
            self._empty_since = None
            return
        now = time.monotonic()
        if self._empty_since is None:
            self._empty_since = now
            log.warning("no worker has a board %s: waiting for one", self.farm.board)
        if now - self._empty_since > (_EMPTY_S if self.quarantined else self.farm.patience_s):
            others = ", ".join(sorted(name for name, count in self.farm.offered.items() if count))
            raise BoardError(
                f"the board farm has no {self.farm.board} left",
                details=[
                    *(f"quarantined: {board}: {reason}" for board, reason in self.quarantined.items()),
                    f"the workers have: {others or 'no boards'}",
                ],
                hint=f"start one: mtool worker {self.farm.address} --board {self.farm.board}",
            )

    def _compare_speed(self, outcome: Outcome, board: str) -> None:
        """Warn once of a board that is faster or slower than the others."""
        self._speeds.setdefault(board, []).append(outcome.median)
        others = [time_ for other, times in self._speeds.items() if other != board for time_ in times]
        speeds = self._speeds[board]
        if len(others) < 3 or len(speeds) < 3 or board in self._state.reported:
            return
        change = statistics.median(speeds) / statistics.median(others) - 1
        if abs(change) > _DIFFERENT:
            self._state.reported.add(board)
            log.warning(
                "%s is %.1f%% %s than the others", board, abs(change) * 100, "slower" if change > 0 else "faster"
            )


def even(total: int, most: int) -> int:
    """Return the slice size that divides `total` evenly into the fewest slices of at most `most`."""
    return max(-(-total // max(-(-total // most), 1)), 1)


def _without_share(names: Names) -> Operators:
    """Return the operators of a task without its candidates and weights."""
    return Operators(*(getattr(names, field.name) for field in fields(Operators)))


# Runs of the whole model on a board farm: all plans on one board, since boards differ by more than plans do.


_WHOLE_TRIES = 4  # of a run, if no board was chosen yet or the failure may be temporary


class BoardLost(Exception):
    """The board that ran the first plan is gone: all plans have to run on another."""


class WholeRuns:
    """Runs models on the board of a farm that ran the first of them.

    Args:
        farm: the connection to the board farm.
    """

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self._where = ("", "")

    def __call__(self, prepared: BuiltProject, unit: Unit) -> WholeRun:
        """Run a built model.

        Raises:
            BoardLost: the board of the first run is gone.
            BoardError: no board can run it.
        """
        bundle = pack(prepared)
        reason = ""
        for _ in range(_WHOLE_TRIES):
            ended = self.farm.run(bundle, unit, self._where)
            end = ended.end
            if ended.run is not None and end is not None:
                self._where = (ended.worker, end.board)
                return ended.run
            reason = end.failed if end is not None else ended.reason
            log.info("running the whole model again: %s", reason)
            if self._where[1] and (end is None or end.is_quarantined or not end.board):
                raise BoardLost(reason)
        raise BoardError(f"no {self.farm.board} of the farm could run the whole model", details=[reason])


# Tune on a board farm: the search and the whole plan, with the boards of a Dask cluster.


_TUNING_TRIES = 3


def board_of(name: str, address: FarmAddress) -> str:
    """Return a board's name unchanged; for a core ("cortex-m4"), the farm's most numerous board with it.

    Raises:
        BoardError: no board of the farm has the core.
        CommunicationError: the scheduler can't be reached.
    """
    all_boards = boards.load_all()
    if name in all_boards or name not in {board.cpu for board in all_boards.values()}:
        return name
    with Farm(address.scheduler, name, address.tls) as farm:
        offered = {board: count for board, count in farm.offered.items() if count}
    able = {board: count for board, count in offered.items() if board in all_boards and all_boards[board].cpu == name}
    if not able:
        there = ", ".join(sorted(offered)) or "no boards"
        raise BoardError(f"no board of the farm has a {name}", details=[f"the workers have: {there}"])
    return max(able, key=lambda board: (able[board], board))


def tune_on(
    address: FarmAddress, site: TrialSite, progress: Progress, search: Sequence[Any], measure: Callable[[Runs], Whole]
) -> Whole | None:
    """Search on a board farm, and return the whole plan; None if no operator has a choice.

    Args:
        address: the board farm's address.
        site: where firmware is built on this computer.
        progress: the tasks.
        search: the arguments of `Search`.
        measure: returns the whole plan, using the given function to run models.

    Raises:
        MtoolError: of the failed stage's class.
    """
    if site.deployment.port or site.deployment.probe:
        raise UsageError(
            "--port and --probe select a board on this computer and can't be combined with --scheduler",
            hint="give them to mtool worker",
        )
    with Farm(address.scheduler, site.board.name, address.tls) as farm:
        FarmSearch(farm, *search).run()
        for _ in range(_TUNING_TRIES if progress.rows else 0):
            try:
                return measure(WholeRuns(farm))
            except BoardLost as lost:
                log.warning("measuring the whole model on another board: %s", lost)
        if progress.rows:
            raise BoardError(f"no {site.board.name} of the farm could finish measuring the whole model")
    return None
