"""The firmware of a trial: as many candidates as the board's memories take, in one project that is built again."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool.boards import Board
from mtool.commands import flashing
from mtool.compiler import codegen
from mtool.compiler.compilation import target_of
from mtool.device import cycles, session
from mtool.device.flash import Runner, ports
from mtool.device.session import Device
from mtool.stages import samples as sampling
from mtool.stages.building import BuiltProject, build_model
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import LOST, Deployment, Reconnection
from mtool.stages.options import Options, weights_of
from mtool.tuning.candidates import Candidate, Space
from mtool.tuning.measuring import BoardMeter, OpenBoard, Outcome
from mtool.tuning.trial import NAME, Names, Share, arena_bytes, trial_of

_RUNTIME_CODE = 48 * 1024  # bytes, generously, of a firmware without any operator; half of a small memory
_RUNTIME_DATA = 600  # bytes of data, beside the buffers and the stack
_BUFFERS = 2  # of the RPC server
_CODE_PER_CHARACTER = 0.6  # bytes of machine code that a character of C becomes at most
_LEAST_CODE = 700  # of a candidate
_HOST_BYTES = 64 << 20  # of flash and of RAM, where the board says nothing
_ANSWERS_S = 2.0  # a board that was reset answers so soon
_MOST_TASKS = 200  # whose inputs a session can number


@dataclass(frozen=True, slots=True)
class TrialSite:
    """Where trials are built and run.

    Attributes:
        board: the board.
        options: its template, and the options of that.
        folder: the project folder.
        deployment: the port and the probe of an attached board.
        has_build_folder: projects are built there; else it gets firmware files from elsewhere.
    """

    board: Board
    options: Options
    folder: Path
    deployment: Deployment
    has_build_folder: bool = True

    @property
    def is_attached(self) -> bool:
        """Whether firmware has to be flashed: it runs neither on this computer nor in an emulator."""
        named = self.deployment.port not in ("", ports.EMULATOR) or self.deployment.probe
        return bool(named) or not (self.board.emulator is not None or self.board.cpu == "host")

    def locks(self) -> tuple[str, ...]:
        """Return the board's lock, if it is attached.

        Raises:
            BoardError: it is not there, or several match.
        """
        if not self.is_attached:
            return ()
        return (ports.require(self.board, ports.wanted(self.deployment.port, self.deployment.probe)).lock,)

    def make(
        self, shares: Sequence[Share], *, build: bool = True
    ) -> tuple[tuple[Names, ...], BuiltProject | CompiledModel]:
        """Return the operators of a trial of some candidates, and its project: built, or as C.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler refuses it, or is missing.
        """
        trial = trial_of(shares, target_of(self.board))
        said = []
        for share in (names.share for names in trial.tasks):
            said += [share.space.task.record.key, *(candidate.text for candidate in share.candidates)]
        said_hash = hashlib.sha256("\n".join(said).encode()).hexdigest()
        options = dataclasses.replace(self.options, edits="force")
        weights = weights_of(self.board, options)
        files, manifest = codegen.generate(trial.plan, NAME, said_hash, weights_as=weights)
        model = CompiledModel(Path(NAME), self.board, options, files, manifest)
        return trial.tasks, build_model(model, self.folder) if build else model

    def start(self, shares: Sequence[Share]) -> tuple[tuple[Names, ...], OpenBoard]:
        """Build the firmware of some candidates and bring it onto the board; return their operators, and the board.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler refuses it, or is missing.
            MtoolError: the board can't be flashed, or does not answer.
        """
        names, prepared = self.make(shares)
        assert isinstance(prepared, BuiltProject)
        return names, self.opened(prepared)

    @property
    def revival(self) -> Reconnection:
        """What brings an attached board back.

        Raises:
            UsageError: mtool.toml is malformed.
        """
        found = ports.wanted(self.deployment.port, self.deployment.probe)
        return Reconnection.of(self.board, self.deployment.power, found.port, found.probe)

    def open(self, prepared: BuiltProject) -> Device:
        """Flash the firmware, or start its emulator, and return a session with it; an attached board is brought back.

        Raises:
            BoardError: the board is not there, and does not come back.
            FlashError: it can't be flashed.
            CommunicationError: the firmware does not answer.
        """
        if not self.is_attached:
            return session.open(prepared.folder, port=ports.EMULATOR if self.board.emulator else "")
        runner = self.runner(prepared.manifest.in_project.template)
        return self.revival.until_back(lambda: flashing.open_flashed(prepared, runner, self.deployment))

    def runner(self, template: str) -> Runner:
        """Return what flashes an attached board with a project of a template.

        Raises:
            FlashError: there is none that can.
            UsageError: mtool.toml is malformed.
        """
        return flashing.runner_of(
            self.board, template=template, deployment=self.deployment, has_build_folder=self.has_build_folder
        )

    def opened(self, prepared: BuiltProject) -> "OpenedBoard":
        """Bring a firmware onto the board, and return the board; it raises what `open` does."""
        meter = BoardMeter(lambda: self.open(prepared), revive=lambda hangs: self.revive(prepared, hangs=hangs))
        return OpenedBoard(meter, prepared)

    def revive(self, prepared: BuiltProject, *, hangs: bool) -> Device | None:
        """Bring an attached board back, and return a session with the firmware that is in its flash; None: it can't be.

        A firmware that has reported a fault resets itself on some boards; one that hangs needs the power cycled.

        Raises:
            BoardError: the command that cycles the power failed.
        """
        if not self.is_attached:
            return None
        revival = self.revival
        revival.wait()
        found = None if hangs else self._reopened(prepared)
        if found is None and revival.power is not None:
            revival.bring_back()
            found = self._reopened(prepared)
        return found

    def _reopened(self, prepared: BuiltProject) -> Device | None:
        port, probe = self.deployment.port, self.deployment.probe
        try:
            return session.open(prepared.folder, port=port, probe=probe, timeout_s=_ANSWERS_S)
        except LOST:
            return None


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What the candidates of one firmware may take.

    Attributes:
        code_bytes: of machine code.
        constant_bytes: of weights and tables; None: they share the memory of the code.
        arena_bytes: of the arena.
        most: how many candidates there may be.
    """

    code_bytes: int
    constant_bytes: int | None
    arena_bytes: int
    most: int

    @classmethod
    def of(cls, board: Board, most: int, options: Mapping[str, str]) -> "TrialLimits":
        """Return the room of a board, less what the runtime takes with the options of its template."""
        code, weights, arena = (board.memory_for(role) for role in ("code", "weights", "arena"))
        if code is None or weights is None or arena is None:
            return cls(_HOST_BYTES, None, _HOST_BYTES, most)
        sizes = {name: int(value) for name, value in options.items() if name.endswith("_bytes")}
        data = _RUNTIME_DATA + _BUFFERS * sizes.get("rpc_buffer_bytes", 0) + sizes.get("stack_bytes", 0)
        ram = arena.size - (data if "stack" in arena.holds else 0)
        return cls(code.size - min(_RUNTIME_CODE, code.size // 2), None if weights == code else weights.size, ram, most)

    def takes(self, code_bytes: int, constant_bytes: int) -> bool:
        """Return whether so much fits."""
        if self.constant_bytes is None:
            return code_bytes + constant_bytes <= self.code_bytes
        return code_bytes <= self.code_bytes and constant_bytes <= self.constant_bytes

    def holds(self, space: Space, candidate: Candidate) -> bool:
        """Return whether a candidate may fit alone, beside its reference, whose code's size the build tells."""
        constants = sum({**candidate.constants, **space.reference.constants}.values())
        return self.takes(0, constants) and arena_bytes(space, candidate) <= self.arena_bytes


def shares_of(wanted: Sequence[tuple[Space, Candidate]], room: TrialLimits) -> tuple[tuple[Share, ...], int]:
    """Return as many candidates as fit a firmware, those of one task together, and how many of `wanted` these are."""
    taken: dict[str, list[Candidate]] = {}
    spaces: dict[str, Space] = {}
    constants: dict[bytes, int] = {}
    code = count = 0
    for space, candidate in wanted:
        key = space.task.record.key
        added = [candidate] if key in spaces else [candidate, space.reference]
        with_it = constants | {digest: size for one in added for digest, size in one.constants.items()}
        code += sum(map(_code_bytes, added))
        is_full = not room.takes(code, sum(with_it.values())) or (key not in spaces and len(spaces) >= _MOST_TASKS)
        if count >= room.most or (count and is_full):
            break
        constants = with_it
        spaces[key] = space
        taken.setdefault(key, []).append(candidate)
        count += 1
    return tuple(Share(spaces[key], tuple(candidates)) for key, candidates in taken.items()), count


def _code_bytes(candidate: Candidate) -> int:
    """Return a guess of the bytes of a candidate's machine code; one that is too small costs a build."""
    return max(int(candidate.code_bytes * _CODE_PER_CHARACTER), _LEAST_CODE)


# A board that runs a trial's firmware.


@dataclass(frozen=True, slots=True)
class OpenedBoard:
    """A board that runs a trial's firmware: what measures there, and the project that was built."""

    meter: BoardMeter
    prepared: BuiltProject

    def in_unit(self, operators: Sequence[str], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return outcomes with the cycles of one call each, estimated on the board's core, in place of instructions.

        Operators that share a function, where only the function's cycles are known, have an equal part.

        Args:
            operators: their names.
            outcomes: theirs, in the same order.

        Raises:
            UsageError: the board's core has no table, or it has no emulator.
            BuildError: a tool is missing.
        """
        self.close()
        described, cpu = self.prepared.manifest, self.prepared.board.cpu
        (sample,) = sampling.seeded(described.inputs, count=1, seed=0)
        functions = {one.name: one.function for one in described.operators}
        parts = cycles.estimate(self.prepared.folder, sample).operators
        estimated = {part.name: float(part.cycles[cpu]) for part in parts}
        users = Counter(functions.values())
        found = {
            name: estimated.get(name, estimated.get(function, 0.0) / users[function])
            for name, function in functions.items()
        }
        return [
            Outcome("ok", (found[name],)) if outcome.status == "ok" else outcome
            for name, outcome in zip(operators, outcomes, strict=True)
        ]

    def close(self) -> None:
        """End the session."""
        self.meter.close()
