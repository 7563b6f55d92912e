"""The bench: builds trials for a board and runs them there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtool.compiler.tuned.record import Unit
from mtool.device import cycles
from mtool.device.cycles import Estimate
from mtool.stages import samples as sampling
from mtool.stages.building import Prepared
from mtool.tuning.firmware import Place, made
from mtool.tuning.measuring import Measuring, Outcome
from mtool.tuning.meter import BoardMeter
from mtool.tuning.trial import Names, Share


@dataclass(slots=True)
class BoardSession:
    """A trial's firmware on a board, and a session with it.

    Attributes:
        names: the operators of each task.
        measuring: times them.
        prepared: the project that was built.
        unit: of the objective; "cycles" are estimated of what the emulator runs.
    """

    names: tuple[Names, ...]
    measuring: Measuring
    prepared: Prepared
    unit: Unit
    _meter: BoardMeter = field(repr=False)

    def outcomes(self, measured: Mapping[tuple[int, int], Outcome]) -> Mapping[tuple[int, int], Outcome]:
        """Return outcomes with the cycles that are estimated of one call each, in place of instructions."""
        self.close()
        found = estimated(self.prepared)
        numbers = {
            (task, place): name for task, names in enumerate(self.names) for place, name in enumerate(names.candidates)
        }
        return {
            key: Outcome("ok", (found[numbers[key]],)) if outcome.status == "ok" else outcome
            for key, outcome in measured.items()
        }

    def close(self) -> None:
        """End the session."""
        self._meter.close()


@dataclass(frozen=True, slots=True)
class BoardBench:
    """Builds trials and runs them on a board.

    Attributes:
        place: the board, and the project folder.
        unit: of the objective.
        repeats: readings of each candidate.
        seed: of the inputs.
    """

    place: Place
    unit: Unit
    repeats: int
    seed: int = 0

    def start(self, shares: Sequence[Share]) -> BoardSession:
        """Build the firmware of some candidates and bring it onto the board.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler refuses it, or is missing.
            MtoolError: the board can't be flashed, or does not answer.
        """
        trial = made(self.place, shares)
        prepared = self.place.build(trial)
        meter = self.place.meter(prepared, self.seed)
        return BoardSession(trial.tasks, Measuring(meter, self.repeats), prepared, self.unit, meter)


def estimated(prepared: Prepared) -> dict[str, float]:
    """Return the cycles of one call of each operator of a built project, by its name, estimated on the board's core.

    Raises:
        UsageError: the board's core has no table, or it has no emulator.
        BuildError: a tool is missing.
    """
    described = prepared.manifest
    (sample,) = sampling.seeded(described.inputs, count=1, seed=0)
    found = cycles.estimate(prepared.folder, sample)
    return _by_operator(prepared, found)


def _by_operator(prepared: Prepared, found: Estimate) -> dict[str, float]:
    """Return cycles by operator; those that share a function, where only the function is told, have an equal part."""
    operators, cpu = prepared.manifest.operators, prepared.board.cpu
    told = {part.name: float(part.cycles[cpu]) for part in found.operators}
    users = Counter(operator.function for operator in operators)
    return {
        operator.name: told.get(operator.name, told.get(operator.function, 0.0) / users[operator.function])
        for operator in operators
    }


def whole_cycles(prepared: Prepared) -> float:
    """Return the estimated cycles of one inference of a built project."""
    described = prepared.manifest
    (sample,) = sampling.seeded(described.inputs, count=1, seed=0)
    return float(cycles.estimate(prepared.folder, sample).cycles[prepared.board.cpu])
