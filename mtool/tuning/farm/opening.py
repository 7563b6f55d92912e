"""A real board of a rack, or its emulator: a bundle is unpacked, flashed, and driven through a session."""

import logging
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtool.base.errors import BoardError
from mtool.boards import Board
from mtool.compiler.tuned.record import Unit
from mtool.device.flash import ports
from mtool.stages.building import Prepared
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options
from mtool.tuning.bench import estimated
from mtool.tuning.farm.board_farm import Held, Opened
from mtool.tuning.farm.bundle import Bundle, unpack
from mtool.tuning.farm.messages import Slice
from mtool.tuning.firmware import Place
from mtool.tuning.measuring import Outcome
from mtool.tuning.meter import BoardMeter
from mtool.tuning.whole_run import WholeRun, run_on

log = logging.getLogger(__name__)


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
        deployment: how it is found, flashed, and how its power is cycled; nothing at all: its emulator.
    """

    board: Board
    deployment: Deployment

    def open(self, bundle: Bundle, asked: Slice) -> Opened:
        """Flash the firmware of a trial and open a session with it.

        Raises:
            MtoolError: the board can't be flashed, or does not answer.
        """
        folder = tempfile.TemporaryDirectory(prefix="mtool-rack-")
        try:
            prepared = unpack(bundle, Path(folder.name))
            place = self._place(folder.name)
            return OpenedBoard(place.meter(prepared, asked.seed), prepared, folder)
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
        deployment = replace(self.deployment, folder=Path(folder))
        return Place(self.board, Options(), Path(folder), deployment, has_build_folder=False)


def held(board: Board, deployment: Deployment, number: int) -> tuple[Held, tuple[str, ...]]:
    """Return a board for a rack, and its devices, which are to be locked while the rack has it.

    One that was named and is not there now is told: it is asked when it is there.

    Args:
        board: the board.
        deployment: how it is found.
        number: of the board on this computer, by which an emulator is called.

    Raises:
        BoardError: nothing was named, and not exactly one is attached.
    """
    name = deployment.probe or deployment.port
    place = Place(board, Options(), Path(), deployment, has_build_folder=False)
    devices: tuple[str, ...] = ()
    if place.is_attached:
        try:
            found = ports.require(board, ports.Wanted(deployment.port, deployment.probe))
            devices = (found.lock, f"at {found.port}")
            name = name or found.probe or found.port
            deployment = replace(deployment, port=deployment.port or ("" if found.probe else found.port))
        except BoardError as missing:
            if not name:
                raise
            log.warning("%s %s is not there yet: %s", board.name, name, missing.what)
            devices = (ports.Attached(deployment.port, "", deployment.probe, "").lock,)
    label = f"{board.name} {name or f'{number}'} at {platform.node()}"
    return Held(board.name, label, BoardOpener(board, deployment)), devices


def check_tool(board: Board, deployment: Deployment) -> None:
    """Check that something here can flash a board with a firmware file.

    Raises:
        FlashError: nothing can, or the tool is missing.
    """
    place = Place(board, Options(), Path(), deployment, has_build_folder=False)
    if place.is_attached:
        place.runner(next(iter(board.templates), "")).probe_version()
