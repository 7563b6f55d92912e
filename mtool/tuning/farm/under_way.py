"""What a search on a rack has under way: firmware that is made, slices, measurements that are asked for."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtool.tuning.candidates import Candidate, Space
from mtool.tuning.farm.messages import Ask, Mode, Slice
from mtool.tuning.search import Wanted
from mtool.tuning.trial import Names


@dataclass(slots=True)
class Firmware:
    """A firmware: what it was made for, and how many slices of it are not done."""

    ident: str
    batch: Sequence[Wanted]
    mode: Mode
    names: tuple[Names, ...] = ()
    open_slices: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A slice to be asked: the candidates by task and place with their ids, and on how many boards it was tried."""

    firmware: Firmware
    asks: tuple[Ask, ...]
    tries: int = 0
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class OpenMeasurement:
    """A measurement that was asked for and not told yet."""

    space: Space
    candidate: Candidate
    kind: str  # "candidate", "baseline" or "final"
    part: str  # the slice


@dataclass(frozen=True, slots=True)
class Running:
    """A slice that a worker has."""

    part: Part
    asked: Slice
    worker: str


@dataclass(slots=True)
class UnderWay:
    """What is under way."""

    making: dict[str, Firmware] = field(default_factory=dict)
    waiting: deque[Part] = field(default_factory=deque)
    running: dict[str, Running] = field(default_factory=dict)
    open: dict[str, OpenMeasurement] = field(default_factory=dict)
    again: deque[Sequence[Wanted]] = field(default_factory=deque)  # halves of what could not be built
    suspects: dict[str, list[str]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
