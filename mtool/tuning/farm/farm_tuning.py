"""Tune on a rack: the search and the whole plan, with the boards of a Dask cluster."""

import logging
from pathlib import Path
from typing import Any

from mtool import boards
from mtool.base.errors import BoardError, UsageError
from mtool.compiler.tuned.record import Unit
from mtool.stages.options import Options
from mtool.tuning.bench import BoardBench
from mtool.tuning.farm.client import Farm
from mtool.tuning.farm.making import TrialMaker
from mtool.tuning.farm.search import RackSearch
from mtool.tuning.farm.security import RackAt
from mtool.tuning.farm.whole import BoardLost, WholeRuns
from mtool.tuning.firmware import Place
from mtool.tuning.progress import Progress
from mtool.tuning.whole import Whole, best_whole

log = logging.getLogger(__name__)

_TRIES = 3


def board_of(name: str, rack: RackAt) -> str:
    """Return a board's name as it is; for a core ("cortex-m4") the name of those boards with it that are most.

    Raises:
        BoardError: it is neither, or no board of the rack has the core.
        CommunicationError: the scheduler can't be reached.
    """
    known = boards.load_all()
    if name in known or name not in {board.cpu for board in known.values()}:
        return name
    with Farm(rack.scheduler, name, rack.tls) as farm:
        able = {one: count for one, count in farm.offered.items() if count and one in known and known[one].cpu == name}
        there = ", ".join(sorted(one for one, count in farm.offered.items() if count))
    if not able:
        raise BoardError(f"no board of the rack has a {name}", details=[f"the workers have: {there or 'no boards'}"])
    return max(able, key=lambda one: (able[one], one))


def tune_on(
    rack: RackAt,
    place: Place,
    source: Path,
    options: Options,
    progress: Progress,
    unit: Unit,
    repeats: int,
    *given: Any,
    pareto: bool = False,
) -> Whole | None:
    """Search on a rack, and return the whole plan that was found; None, if no operator has a choice.

    Args:
        rack: where it is.
        place: where firmware is built here.
        source: the model.
        options: of its compilation.
        progress: the tasks.
        unit: of the objective.
        repeats: readings of each candidate.
        given: what `Search` takes behind the bench.
        pareto: plans for less arena and less flash are measured too.

    Raises:
        MtoolError: of the class that tells the stage.
    """
    if place.deployment.port or place.deployment.probe:
        raise UsageError(
            "--port and --probe are of a board on this computer, --scheduler is of a rack's",
            hint="give them to: mtool worker",
        )
    with Farm(rack.scheduler, place.board.name, rack.tls) as farm:
        RackSearch(farm, TrialMaker(place), repeats, progress, BoardBench(place, unit, repeats), *given).run()
        for _ in range(_TRIES if progress.rows else 0):
            try:
                return best_whole(source, options, place, progress, unit, WholeRuns(farm), pareto=pareto)
            except BoardLost as lost:
                log.warning("the whole model is measured on another board: %s", lost)
        if progress.rows:
            raise BoardError(f"no {place.board.name} of the rack has run the whole model to the end")
    return None
