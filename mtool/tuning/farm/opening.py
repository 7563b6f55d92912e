"""A real board of a rack, or its emulator: a bundle is unpacked, flashed, and driven through a session."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.boards import Board
from mtool.tuned.record import Unit
from mtool.tuning.bench import estimated
from mtool.tuning.farm.asks import Slice
from mtool.tuning.farm.bundle import Bundle, unpack
from mtool.tuning.firmware import Place
from mtool.tuning.measuring import Outcome
from mtool.tuning.meter import BoardMeter
from mtool.tuning.whole_run import WholeRun, run_on
from mtool.workflow.deployment import Deployment
from mtool.workflow.stages import Options, Prepared


@dataclass(slots=True)
class OpenedBoard:
    """A board that runs a firmware."""

    meter: BoardMeter
    prepared: Prepared
    folder: "tempfile.TemporaryDirectory[str]"

    def in_unit(self, asked: Slice, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return outcomes with the cycles that are estimated of one call each, in place of instructions."""
        self.meter.close()
        found = estimated(self.prepared)
        names = (asked.operators[ask.task].candidates[ask.place] for ask in asked.asks)
        return [
            Outcome("ok", (found[name],)) if outcome.status == "ok" else outcome
            for name, outcome in zip(names, outcomes, strict=False)
        ]

    def close(self) -> None:
        """End the session, and remove the firmware's folder."""
        self.meter.close()
        self.folder.cleanup()


@dataclass(frozen=True, slots=True)
class BoardOpener:
    """Brings firmware onto one board.

    Attributes:
        board: the board.
        port, probe: by which it is found; both empty: its emulator.
    """

    board: Board
    port: str
    probe: str

    def open(self, bundle: Bundle, asked: Slice) -> OpenedBoard:
        """Flash the firmware of a trial and open a session with it.

        Raises:
            MtoolError: the board can't be flashed, or does not answer.
        """
        folder = tempfile.TemporaryDirectory(prefix="mtool-rack-")
        try:
            prepared = unpack(bundle, Path(folder.name))
            place = self._place(folder.name)
            return OpenedBoard(BoardMeter(lambda: place.open(prepared), asked.seed), prepared, folder)
        except BaseException:
            folder.cleanup()
            raise

    def run(self, bundle: Bundle, unit: Unit) -> WholeRun:
        """Flash the firmware of a whole model and run it.

        Raises:
            MtoolError: the board can't be flashed, or does not answer.
        """
        with tempfile.TemporaryDirectory(prefix="mtool-rack-") as folder:
            return run_on(self._place(folder).open)(unpack(bundle, Path(folder)), unit)

    def _place(self, folder: str) -> Place:
        return Place(self.board, Options(), Path(folder), Deployment(Path(folder), self.port, self.probe))
