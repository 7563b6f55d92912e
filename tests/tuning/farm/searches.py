"""Searches on simulated boards: a small network's tasks, invented times, and the search with or without a farm."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtool.base.errors import FitError
from mtool.compiler.compilation import plan_model, target_of
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import Log, Unit
from mtool.compiler.tuned.tasks import tasks_of
from mtool.tuning.candidates import Space, space_of
from mtool.tuning.farm.client import Farm
from mtool.tuning.farm.messages import Bundle
from mtool.tuning.farm.search import FarmSearch
from mtool.tuning.firmware import TrialLimits
from mtool.tuning.search import Goal, Progress
from mtool.tuning.trial import Names, Share
from tests.compiler.tuned.pointwise import network
from tests.compiler.tuned.records import SETUP, TARGET
from tests.tuning.farm.stand_in import Firmware
from tests.tuning.simulated import BOARD


def spaces_of(folder: Path) -> list[Space]:
    found = [space_of(task, target_of(BOARD)) for task in tasks_of(*plan_model(network(folder / "m.onnx"), BOARD))]
    return [space for space in found if len(space.candidates) > 1][:2]


def truth_of(text: str) -> float:
    """Return the nanoseconds of a candidate: at least 1% from any other's."""
    return 10_000.0 * 1.01 ** (zlib.crc32(text.encode()) % 400)


def truly_best(spaces: Sequence[Space], without: str = "") -> list[str]:
    return [
        min((one.text for one in space.candidates if one.text != without), key=truth_of) for space in spaces
    ]  # fmt: skip


@dataclass
class StandInMaker:
    """Makes firmware without a compiler; `killers` are candidates that a board does not survive."""

    killer: str = ""
    too_large: str = ""
    times: Mapping[str, float] = field(default_factory=dict)
    unit: Unit = "ns"

    def make(self, shares: Sequence[Share], *, build: bool) -> tuple[tuple[Names, ...], Bundle]:
        if self.too_large in {one.text for share in shares for one in share.candidates}:
            raise FitError("it does not fit")
        names = tuple(_names(number, share) for number, share in enumerate(shares))
        texts = {
            operator: one.text
            for each in names
            for operator, one in zip(each.candidates, each.share.candidates, strict=True)
        }
        killers = [operator for operator, text in texts.items() if text == self.killer]
        truth = {operator: truth_of(text) for operator, text in texts.items()}
        return names, Firmware(truth, killers, unit=self.unit, **self.times).bundle(TARGET.compiler)


def _names(number: int, share: Share) -> Names:
    """Return the operators of a task as a trial names them, without making one."""
    candidates = tuple(f"t{number}_c{place}" for place in range(len(share.candidates)))
    stem = f"t{number}_0"
    reference, spoil, compare = f"t{number}_ref", (f"{stem}_spoil",), (f"{stem}_compare",)
    return Names((), (), reference, candidates, spoil, compare, (f"{stem}_count",), 1, share)


def search(
    farm: Farm, spaces: Sequence[Space], path: Path, maker: StandInMaker, *, goal: Goal | None = None, most: int = 60
) -> Progress:
    """Search on a farm, and return how far it has come."""
    progress = Progress.of(spaces, maker.unit)
    known = tuning_log.read([path]) if path.exists() else Log()
    setup, room = SETUP.model_copy(update={"unit": maker.unit}), TrialLimits(1 << 22, None, 1 << 22, most)
    FarmSearch(farm, progress, maker, room, TARGET, setup, path, known, goal or Goal()).run()  # type: ignore[arg-type]
    return progress


def best(progress: Progress) -> list[str]:
    return [row.best.candidate if row.best else "" for row in progress.rows.values()]
