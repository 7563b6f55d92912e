"""A simulated board: times with a heavy tail, a step in its speed, faults, and a clock that flashing advances.

Its noise is that of a bad board: 3% lognormal, one reading in fifty ten times as long, a step of 2% at a random moment,
and of all measurements 5% each in which it crashes, hangs or computes something wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mtool import boards
from mtool.base.errors import BuildError, DeviceError, FitError, NoAnswerError
from mtool.compiler.compilation import target_of
from mtool.compiler.tuned.record import Unit
from mtool.tuning.measuring import IDLE
from mtool.tuning.trial import Names, Share, trial_of

BOARD = boards.get("mps2_an386")
FLASH_S = 4.0
CALL_S = 0.02  # a request and its reply at 115,200 baud
HANG_S = 12.0


@dataclass
class World:
    """The truth about some candidates, by their texts: nanoseconds of a call; and those that always fail, and how.

    `now` is the time, in seconds; `calls` counts the calls of candidates, `flashes` the firmwares.
    """

    truth: Mapping[str, float]
    seed: int = 0
    noise: float = 0.0
    tail: float = 0.0
    step_at: float = float("inf")
    faults: float = 0.0
    broken: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0
    calls: int = 0
    flashes: int = 0
    stop_after: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @classmethod
    def bad(cls, truth: Mapping[str, float], seed: int) -> "World":
        """Return a bad board."""
        step = float(np.random.default_rng(1000 + seed).uniform(0, 200))
        return cls(truth, seed, noise=0.03, tail=0.02, step_at=step, faults=0.05)

    def clock(self) -> float:
        return self.now


class SimulatedMeter:
    """A session with the board."""

    granularity = 40.0

    def __init__(self, world: World, names: Sequence[Names], unit: Unit) -> None:
        self.world, self.unit = world, unit
        self.texts = {
            operator: candidate.text
            for one in names
            for operator, candidate in zip(one.candidates, one.share.candidates, strict=True)
        }
        self.is_dead = False
        self.is_wrong = False
        self.fault = ""

    def begin(self, names: Names) -> None:
        assert not self.is_dead
        self.world.now += CALL_S

    def time(self, operator: str, number: int) -> float:
        world = self.world
        world.now += CALL_S
        assert not self.is_dead, "a call after a crash, without a restart"
        if operator == IDLE:
            return 500.0 * number
        if operator not in self.texts:
            if operator.endswith("_spoil"):  # a measurement begins
                draw = world.random.uniform()
                self.fault = ("fault", "timeout", "wrong")[int(draw / world.faults)] if draw < 3 * world.faults else ""
            return 1000.0
        world.calls += 1
        if world.stop_after and world.calls > world.stop_after:
            raise KeyboardInterrupt
        text = self.texts[operator]
        kind = world.broken.get(text, self.fault)
        self.is_wrong = kind == "wrong"
        if kind in ("fault", "timeout"):
            self.is_dead = True
            world.now += HANG_S if kind == "timeout" else 0
            raise DeviceError("hard fault") if kind == "fault" else NoAnswerError("it has not come to an end")
        took = world.truth[text] * float(world.random.lognormal(0, world.noise) if world.noise else 1)
        took *= 10 if world.random.uniform() < world.tail else 1
        took *= 1.02 if world.now > world.step_at else 1
        world.now += took * number * 1e-9
        return (took + 500.0) * number

    def differences(self, names: Names) -> int:
        self.world.now += CALL_S
        return 3 if self.is_wrong else 0

    def restart(self) -> None:
        self.world.now += FLASH_S
        self.is_dead = False


@dataclass
class SimulatedSession:
    meter: SimulatedMeter

    def close(self) -> None:
        pass


@dataclass
class SimulatedBench:
    """Builds nothing, and refuses candidates that `unbuildable` and `too_large` name."""

    world: World
    unit: Unit = "ns"
    unbuildable: frozenset[str] = frozenset()
    too_large: frozenset[str] = frozenset()

    def start(self, shares: Sequence[Share]) -> tuple[tuple[Names, ...], SimulatedSession]:
        texts = {candidate.text for share in shares for candidate in share.candidates}
        if texts & self.unbuildable:
            raise BuildError("the compiler refuses it")
        if texts & self.too_large:
            raise FitError("it does not fit")
        self.world.flashes += 1
        self.world.now += FLASH_S
        names = trial_of(shares, target_of(BOARD)).tasks
        return names, SimulatedSession(SimulatedMeter(self.world, names, self.unit))
