"""What makes the firmware of trials for a rack."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mtool.stages.compiling import Model
from mtool.tuning.farm.bundle import Bundle, pack
from mtool.tuning.firmware import Place, made
from mtool.tuning.trial import Names, Share


class Maker(Protocol):
    """Makes firmware, or what a worker makes it of; or in a test stands for that."""

    def make(self, shares: Sequence[Share], *, build: bool) -> tuple[tuple[Names, ...], Bundle | Model]:
        """Return the operators of a trial, and its firmware, or what a worker builds that of.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler refuses it.
        """


@dataclass(frozen=True, slots=True)
class TrialMaker:
    """Makes the firmware of trials for a board."""

    place: Place

    def make(self, shares: Sequence[Share], *, build: bool) -> tuple[tuple[Names, ...], Bundle | Model]:
        """Return the operators of a trial, and its firmware, or what a worker builds that of.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler refuses it.
        """
        trial = made(self.place, shares)
        model = self.place.written(trial)
        return trial.tasks, pack(self.place.built(model)) if build else model
