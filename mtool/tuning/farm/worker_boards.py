"""A worker's boards. Each has its own thread, so that a board that hangs does not block the others.

A board that fails three times in a row gets no more work. A candidate's failure does not count as its board's.
"""

import logging
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mtool.base.errors import BoardError, MtoolError
from mtool.boards import Board
from mtool.compiler.tuned.record import Unit, reason_of
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options
from mtool.tuning.farm.messages import Answer, Bundle, SliceEnd, unpack
from mtool.tuning.firmware import TrialSite
from mtool.tuning.measuring import Measuring, OpenBoard, Slice, WholeRun, measure_slice, run_on
from mtool.version import __version__

log = logging.getLogger(__name__)

STRIKES = 3
HANG_S = 600.0
"""A board that is silent for this long hangs: longer than flashing and the longest time limit of a candidate."""

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Opener:
    """Flashes firmware to one board and opens it.

    Attributes:
        board: the board.
        deployment: its port, probe, and flash and power commands; all empty: its emulator.
    """

    board: Board
    deployment: Deployment

    @contextmanager
    def open(self, bundle: Bundle) -> Iterator[OpenBoard]:
        """Flash the firmware of a trial and open a session with it.

        Raises:
            MtoolError: the board can't be flashed, or does not answer.
        """
        with (
            tempfile.TemporaryDirectory(prefix="mtool-farm-") as folder,
            closing(self.site(Path(folder)).opened(unpack(bundle, Path(folder)))) as opened,
        ):
            yield opened

    def run(self, bundle: Bundle, unit: Unit) -> WholeRun:
        """Flash the firmware of a whole model and run it.

        Raises:
            MtoolError: the board can't be flashed, or does not answer.
        """
        with tempfile.TemporaryDirectory(prefix="mtool-farm-") as folder:
            return run_on(self.site(Path(folder)).open)(unpack(bundle, Path(folder)), unit)

    def site(self, folder: Path) -> TrialSite:
        """Return the trial site for the firmware in a folder."""
        deployment = replace(self.deployment, folder=folder)
        return TrialSite(self.board, Options(), folder, deployment, has_build_folder=False)


@dataclass(slots=True)
class HeldBoard:
    """A board of the board farm.

    Attributes:
        board: its name in boards.yaml.
        label: its name, and its probe or port, for people.
        opener: flashes and opens it.
        strikes: the number of failures in a row.
        is_busy: it works or hangs.
        is_hung: it hangs, until its thread ends.
        beat: the time of its last sign of life, by `time.monotonic`; -1: given up.
        measurement: the id of the current measurement.
    """

    board: str
    label: str
    opener: Opener
    strikes: int = 0
    is_busy: bool = False
    is_hung: bool = False
    beat: float = 0.0
    measurement: str = ""
    reasons: list[str] = field(default_factory=list)

    def begins(self, ident: str) -> None:
        """Record the current measurement."""
        self.measurement = ident

    def answers(self) -> None:
        """Record a sign of life, unless the board was given up."""
        if self.beat >= 0:
            self.beat = time.monotonic()

    @property
    def is_quarantined(self) -> bool:
        """Whether the failure limit is reached."""
        return self.strikes >= STRIKES

    @property
    def is_able(self) -> bool:
        """Whether it gets work."""
        return not (self.is_quarantined or self.is_hung)


class WorkerBoards:
    """The boards of one worker.

    Args:
        boards: all boards.
        hang_s: a board that is silent for this long hangs.
        on_change: called when the number of boards that get work has changed.
    """

    def __init__(
        self, boards: Sequence[HeldBoard], hang_s: float = HANG_S, on_change: Callable[[], object] = lambda: None
    ) -> None:
        self.boards, self.hang_s, self.on_change = tuple(boards), hang_s, on_change
        self._changed = threading.Condition()

    def counts(self) -> dict[str, int]:
        """Return the number of boards of each name that get work."""
        counts = dict.fromkeys((held.board for held in self.boards), 0)
        for held in self.boards:
            counts[held.board] += held.is_able
        return counts

    def measure(
        self, bundle: Bundle, slice_: Slice, report: Callable[[Answer], object], is_stopped: Callable[[], bool]
    ) -> SliceEnd:
        """Measure a slice on a free board.

        Args:
            bundle: the firmware.
            slice_: what to measure.
            report: called with each answer as it comes.
            is_stopped: whether the slice is no longer needed.

        Raises:
            BoardError: the slice comes from another version of mtool.
        """
        if slice_.version != __version__:
            raise BoardError(
                f"the worker has mtool {__version__}, the tuning process has mtool {slice_.version}",
                hint="install the same version on all computers of the board farm",
            )
        answers: list[Answer] = []
        held = self._take(slice_.board, "", is_stopped)
        if held is None:
            return SliceEnd((), "", failed=f"no {slice_.board} is free", is_stopped=is_stopped())

        def work() -> None:
            with held.opener.open(bundle) as opened:
                measuring = Measuring(opened.meter, slice_.repeats, held.answers)
                for ident, outcome in measure_slice(
                    opened, measuring, slice_, lambda: held.beat < 0 or is_stopped(), held.begins
                ):
                    answers.append(Answer(ident, outcome, held.label))
                    report(answers[-1])

        failed, at = self._work(held, work)
        return SliceEnd(tuple(answers), held.label, failed, at, held.is_quarantined, is_stopped())

    def run(
        self, bundle: Bundle, board: str, label: str, unit: Unit, is_stopped: Callable[[], bool]
    ) -> tuple[WholeRun | None, SliceEnd]:
        """Run a whole model on a free board, or on the one with a label; None, with the reason, if that fails."""
        held = self._take(board, label, is_stopped)
        if held is None:
            return None, SliceEnd((), "", failed=f"{label or board} is not free", is_stopped=is_stopped())
        runs: list[WholeRun] = []
        failed, at = self._work(held, lambda: runs.append(held.opener.run(bundle, unit)))
        end = SliceEnd((), held.label, failed, at, held.is_quarantined, is_stopped())
        return (runs[0] if runs else None), end

    def _take(self, board: str, label: str, is_stopped: Callable[[], bool]) -> HeldBoard | None:
        """Take the free board with the fewest failures, the least recently used of several; wait for one."""
        with self._changed:
            while not is_stopped():
                able = [held for held in self.boards if held.board == board and held.is_able]
                able = [held for held in able if label in ("", held.label)]
                if not able:
                    return None
                free = [held for held in able if not held.is_busy]
                if free:
                    held = min(free, key=lambda board: (board.strikes, board.beat))
                    held.is_busy, held.measurement, held.beat = True, "", time.monotonic()
                    return held
                self._changed.wait(_POLL_S)
        return None

    def _work(self, held: HeldBoard, work: Callable[[], None]) -> tuple[str, str]:
        """Let a board work in a thread, and return why it failed and during which measurement; "" if it did not.

        A board that hangs keeps its thread, and is free again when the thread ends.
        """
        ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            with self._changed:
                came_back = held.is_hung
                held.is_busy = held.is_hung = False
                held.beat = time.monotonic()
                self._changed.notify_all()
            ended.put(error)
            if came_back:
                self.on_change()

        threading.Thread(target=run, name=held.label, daemon=True).start()
        while True:
            try:
                error = ended.get(timeout=_POLL_S)
                break
            except queue.Empty:
                silent_s = time.monotonic() - held.beat
                if silent_s > self.hang_s:
                    at, held.beat = held.measurement, -1.0  # it stops, if it ever comes back
                    with self._changed:
                        held.is_hung = held.is_busy
                        self._changed.notify_all()
                    self.on_change()
                    self._strike(held, f"it has been silent for {silent_s:.0f} s")
                    return held.reasons[-1], at
        if error is None:
            held.strikes = 0
            held.reasons.clear()
            return "", ""
        if not isinstance(error, MtoolError | OSError):
            raise error
        text = "; ".join([error.what, *error.details]) if isinstance(error, MtoolError) else str(error)
        self._strike(held, reason_of(text))
        return held.reasons[-1], held.measurement

    def _strike(self, held: HeldBoard, reason: str) -> None:
        held.strikes += 1
        held.reasons.append(reason)
        log.warning("%s failed: %s", held.label, reason)
        if held.strikes == STRIKES:
            log.error("%s is quarantined after %d failures in a row: %s", held.label, STRIKES, "; ".join(held.reasons))
            self.on_change()
