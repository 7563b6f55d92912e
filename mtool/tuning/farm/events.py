"""What a rack tells who asked."""

from dataclasses import dataclass

from mtool.tuning.farm.messages import SliceEnd
from mtool.tuning.whole_run import WholeRun


@dataclass(frozen=True, slots=True)
class Built:
    """A firmware is built, by a compiler."""

    firmware: str
    toolchain: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A firmware can't be built; or the task has failed in another way."""

    firmware: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Ended:
    """A slice has ended; without an end it was lost, for a reason: its worker, or the scheduler, is gone."""

    ident: str
    end: SliceEnd | None
    reason: str = ""
    run: WholeRun | None = None
