"""The firmware of a trial: as many candidates as the board's memories take, in one project that is built again."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mtool.boards import Board
from mtool.commands import flashing
from mtool.compiler import codegen
from mtool.compiler.planning import target_of
from mtool.compiler.tuned.record import Unit
from mtool.device import cycles, session
from mtool.device.cycles import Estimate
from mtool.device.flash import Runner, ports
from mtool.device.session import Device
from mtool.stages import samples as sampling
from mtool.stages.building import BuiltProject, build_model
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import LOST, Deployment, Reconnection
from mtool.stages.options import Options, weights_of
from mtool.tuning.candidates import Candidate, Space
from mtool.tuning.measuring import BoardMeter, Measuring, Outcome
from mtool.tuning.trial import NAME, Names, Share, Trial, arena_bytes, trial_of

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

    def build(self, trial: Trial) -> BuiltProject:
        """Build the firmware of a trial.

        Raises:
            FitError: it does not fit the board.
            BuildError: the compiler is missing, or refuses a candidate.
        """
        return self.built(self.written(trial))

    def built(self, model: CompiledModel) -> BuiltProject:
        """Build what `written` returned; it raises what `build` does."""
        return build_model(model, self.folder)

    def written(self, trial: Trial) -> CompiledModel:
        """Return a trial as C."""
        said = [text for names in trial.tasks for text in (names.share.space.task.record.key, *_texts(names.share))]
        said_hash = hashlib.sha256("\n".join(said).encode()).hexdigest()
        options = dataclasses.replace(self.options, edits="force")
        weights = weights_of(self.board, options)
        files, manifest = codegen.generate(trial.plan, NAME, said_hash, weights_as=weights)
        return CompiledModel(Path(NAME), self.board, options, files, manifest)

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
        runner = self.runner(_template(prepared))
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

    def meter(self, prepared: BuiltProject, seed: int) -> BoardMeter:
        """Bring a firmware onto the board, and return what measures there; it raises what `open` does."""
        return BoardMeter(lambda: self.open(prepared), seed, revive=lambda hangs: self.revive(prepared, hangs=hangs))

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


def _template(prepared: BuiltProject) -> str:
    assert prepared.manifest.project is not None
    return prepared.manifest.project.template


def _texts(share: Share) -> Iterator[str]:
    return (candidate.text for candidate in share.candidates)


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


def made(place: TrialSite, shares: Sequence[Share]) -> Trial:
    """Return the trial of some candidates on a board."""
    return trial_of(shares, target_of(place.board))


def _code_bytes(candidate: Candidate) -> int:
    """Return a guess of the bytes of a candidate's machine code; one that is too small costs a build."""
    return max(int(candidate.code_bytes * _CODE_PER_CHARACTER), _LEAST_CODE)


# The bench: builds trials for a board and runs them there.


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
    prepared: BuiltProject
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

    place: TrialSite
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


def estimated(prepared: BuiltProject) -> dict[str, float]:
    """Return the cycles of one call of each operator of a built project, by its name, estimated on the board's core.

    Raises:
        UsageError: the board's core has no table, or it has no emulator.
        BuildError: a tool is missing.
    """
    described = prepared.manifest
    (sample,) = sampling.seeded(described.inputs, count=1, seed=0)
    found = cycles.estimate(prepared.folder, sample)
    return _by_operator(prepared, found)


def _by_operator(prepared: BuiltProject, found: Estimate) -> dict[str, float]:
    """Return cycles by operator; those that share a function, where only the function is told, have an equal part."""
    operators, cpu = prepared.manifest.operators, prepared.board.cpu
    told = {part.name: float(part.cycles[cpu]) for part in found.operators}
    users = Counter(operator.function for operator in operators)
    return {
        operator.name: told.get(operator.name, told.get(operator.function, 0.0) / users[operator.function])
        for operator in operators
    }
