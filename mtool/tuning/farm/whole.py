"""Runs of the whole model on a rack: all plans on one board, since two boards differ by more than two plans do."""

import logging

from mtool.base.errors import BoardError
from mtool.compiler.tuned.record import Unit
from mtool.stages.building import Prepared
from mtool.tuning.farm.bundle import pack
from mtool.tuning.farm.client import Farm
from mtool.tuning.whole_run import WholeRun

log = logging.getLogger(__name__)

_TRIES = 4  # of a run, where no board was chosen yet or the failure may pass


class BoardLost(Exception):
    """The board on which the first plan ran is gone: all plans have to run on another."""


class WholeRuns:
    """Runs models on the board of a rack that has run the first of them.

    Args:
        farm: the connection to the rack.
    """

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self._where = ("", "")

    def __call__(self, prepared: Prepared, unit: Unit) -> WholeRun:
        """Run a built model.

        Raises:
            BoardLost: another board than that of the first run would have to do it.
            BoardError: no board can run it.
        """
        bundle = pack(prepared)
        reason = ""
        for _ in range(_TRIES):
            ended, worker = self.farm.run(bundle, unit, self._where)
            end = ended.end
            if ended.run is not None and end is not None:
                self._where = (worker, end.board)
                return ended.run
            reason = end.failed if end is not None else ended.reason
            log.info("a run of the whole model is asked again: %s", reason)
            if self._where[1] and (end is None or end.is_quarantined or not end.board):
                raise BoardLost(reason)
        raise BoardError(f"no {self.farm.board} of the rack runs the whole model", details=[reason])
