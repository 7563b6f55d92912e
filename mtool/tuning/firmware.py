"""The firmware of a trial: as many candidates as the board's memories take, in one project that is built again."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool import codegen, flash, session
from mtool.boards import Board
from mtool.compiler import target_of
from mtool.session import Device
from mtool.tuning.candidates import Candidate, Space
from mtool.tuning.trial import NAME, Share, Trial, arena_bytes, trial_of
from mtool.workflow import flashing
from mtool.workflow.deployment import Deployment
from mtool.workflow.stages import Model, Options, Prepared, build_model

_RUNTIME_CODE = 48 * 1024  # bytes, generously, of a firmware without any operator
_RUNTIME_DATA = 24 * 1024
_CODE_PER_CHARACTER = 0.6  # bytes of machine code that a character of C becomes at most
_LEAST_CODE = 700  # of a candidate
_HOST_BYTES = 64 << 20  # of flash and of RAM, where the board says nothing
_MOST_TASKS = 200  # whose inputs a session can number


@dataclass(frozen=True, slots=True)
class Place:
    """Where trials are built and run.

    Attributes:
        board: the board.
        options: its template, and the options of that.
        folder: the project folder.
        deployment: the port and the probe of an attached board.
    """

    board: Board
    options: Options
    folder: Path
    deployment: Deployment

    @property
    def is_attached(self) -> bool:
        """Whether firmware has to be flashed: it runs neither on this computer nor in an emulator."""
        return bool(self.deployment.port or self.deployment.probe) or not (
            self.board.emulator is not None or self.board.cpu == "host"
        )

    def build(self, trial: Trial) -> Prepared:
        """Build the firmware of a trial.

        Raises:
            FitError: it does not fit the board.
            BuildError: the compiler is missing, or refuses a candidate.
        """
        said = [text for names in trial.tasks for text in (names.share.space.task.record.key, *_texts(names.share))]
        files, manifest = codegen.generate(trial.plan, NAME, hashlib.sha256("\n".join(said).encode()).hexdigest())
        options = dataclasses.replace(self.options, edits="force")
        return build_model(Model(Path(NAME), self.board, options, files, manifest), self.folder)

    def open(self, prepared: Prepared) -> Device:
        """Flash the firmware, or start its emulator, and return a session with it.

        Raises:
            FlashError: the board can't be flashed.
            CommunicationError: the firmware does not answer.
        """
        if not self.is_attached:
            return session.open(prepared.folder)
        runner = flash.choose(self.board, template=_template(prepared))
        return flashing.open_flashed(prepared, runner, self.deployment)


def _template(prepared: Prepared) -> str:
    assert prepared.manifest.project is not None
    return prepared.manifest.project.template


def _texts(share: Share) -> Iterator[str]:
    return (candidate.text for candidate in share.candidates)


@dataclass(frozen=True, slots=True)
class Room:
    """What candidates may take in one firmware: bytes of code and constants, and of the arena; and their number."""

    flash_bytes: int
    arena_bytes: int
    most: int

    @classmethod
    def of(cls, board: Board, most: int) -> "Room":
        """Return the room of a board, less what the runtime takes."""
        code, weights, arena = (board.memory_for(role) for role in ("code", "weights", "arena"))
        sizes = [memory.size for memory in (code, weights) if memory is not None]
        flash_bytes = min(sizes, default=_HOST_BYTES) - (_RUNTIME_CODE if sizes else 0)
        shared = arena is not None and "stack" in arena.holds
        ram = _HOST_BYTES if arena is None else arena.size - (_RUNTIME_DATA if shared else 0)
        return cls(flash_bytes, ram, most)

    def holds(self, space: Space, candidate: Candidate) -> bool:
        """Return whether a candidate fits alone, beside its reference."""
        need = _size(candidate) + _size(space.reference)
        return need <= self.flash_bytes and arena_bytes(space, candidate) <= self.arena_bytes


def shares_of(wanted: Sequence[tuple[Space, Candidate]], room: Room) -> tuple[tuple[Share, ...], int]:
    """Return as many candidates as fit a firmware, those of one task together, and how many of `wanted` these are."""
    taken: dict[str, list[Candidate]] = {}
    spaces: dict[str, Space] = {}
    left, count = room.flash_bytes, 0
    for space, candidate in wanted:
        key = space.task.record.key
        new = key not in spaces
        need = _size(candidate) + (_size(space.reference) if new else 0)
        if count >= room.most or (count and need > left) or (new and len(spaces) >= _MOST_TASKS):
            break
        spaces[key] = space
        taken.setdefault(key, []).append(candidate)
        left -= need
        count += 1
    return tuple(Share(spaces[key], tuple(candidates)) for key, candidates in taken.items()), count


def made(place: Place, shares: Sequence[Share]) -> Trial:
    """Return the trial of some candidates on a board."""
    return trial_of(shares, target_of(place.board))


def _size(candidate: Candidate) -> int:
    return candidate.constant_bytes + max(int(candidate.code_bytes * _CODE_PER_CHARACTER), _LEAST_CODE)
