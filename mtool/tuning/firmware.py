"""The firmware of a trial: as many candidates as fit the board's memories, in one project that is rebuilt each time."""

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
_RUNTIME_DATA = 600  # bytes of data without the buffers and the stack
_BUFFERS = 2  # of the RPC server
_CODE_PER_CHARACTER = 0.6  # most bytes of machine code per character of C
_LEAST_CODE = 700  # bytes of a candidate
_HOST_BYTES = 64 << 20  # of flash and of RAM, if the board does not list its memories
_ANSWERS_S = 2.0  # a board answers within this time after a reset
_MOST_TASKS = 200  # a session can number the inputs of this many


@dataclass(frozen=True, slots=True)
class TrialSite:
    """Where trials are built and run.

    Attributes:
        board: the board.
        options: the project's template and its options.
        folder: the project folder.
        deployment: the port and the probe of an attached board.
        has_build_folder: projects are built in the folder; else it receives firmware files from elsewhere.
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
            BoardError: it is not attached, or several match.
        """
        if not self.is_attached:
            return ()
        return (ports.require(self.board, ports.selector(self.deployment.port, self.deployment.probe)).lock,)

    def make(
        self, shares: Sequence[Share], *, build: bool = True
    ) -> tuple[tuple[Names, ...], BuiltProject | CompiledModel]:
        """Return the operators of a trial of some candidates, and its project: built, or as C.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler fails or is missing.
        """
        trial = trial_of(shares, target_of(self.board))
        texts = []
        for share in (names.share for names in trial.tasks):
            texts += [share.space.task.record.key, *(candidate.text for candidate in share.candidates)]
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        options = dataclasses.replace(self.options, edits="force")
        weights = weights_of(self.board, options)
        files, manifest = codegen.generate(trial.plan, NAME, digest, weights_as=weights)
        model = CompiledModel(Path(NAME), self.board, options, files, manifest)
        return trial.tasks, build_model(model, self.folder) if build else model

    def start(self, shares: Sequence[Share]) -> tuple[tuple[Names, ...], OpenBoard]:
        """Build the firmware of some candidates and flash it; return their operators, and the board.

        Raises:
            FitError: it does not fit.
            BuildError: the compiler fails or is missing.
            MtoolError: the board can't be flashed, or does not answer.
        """
        names, prepared = self.make(shares)
        assert isinstance(prepared, BuiltProject)
        return names, self.opened(prepared)

    @property
    def reconnection(self) -> Reconnection:
        """The reconnection to an attached board.

        Raises:
            UsageError: mtool.toml is malformed.
        """
        selector = ports.selector(self.deployment.port, self.deployment.probe)
        return Reconnection.of(self.board, self.deployment.power, selector.port, selector.probe)

    def open(self, prepared: BuiltProject) -> Device:
        """Flash the firmware, or start its emulator, and return a session with it; reconnect to a lost board.

        Raises:
            BoardError: the board is not attached, and does not come back.
            FlashError: it can't be flashed.
            CommunicationError: the firmware does not answer.
        """
        if not self.is_attached:
            return session.open(prepared.folder, port=ports.EMULATOR if self.board.emulator else "")
        runner = self.runner(prepared.manifest.in_project.template)
        return self.reconnection.until_back(lambda: flashing.open_flashed(prepared, runner, self.deployment))

    def runner(self, template: str) -> Runner:
        """Return the runner that flashes an attached board with a template's project.

        Raises:
            FlashError: there is none.
            UsageError: mtool.toml is malformed.
        """
        return flashing.runner_of(
            self.board, template=template, deployment=self.deployment, has_build_folder=self.has_build_folder
        )

    def opened(self, prepared: BuiltProject) -> "OpenedBoard":
        """Flash a firmware, and return the board; raises as `open`."""
        meter = BoardMeter(lambda: self.open(prepared), reconnect=lambda hangs: self.reconnect(prepared, hangs=hangs))
        return OpenedBoard(meter, prepared)

    def reconnect(self, prepared: BuiltProject, *, hangs: bool) -> Device | None:
        """Reconnect to an attached board, and return a session with the firmware in its flash; None: that failed.

        On some boards, firmware resets itself after a fault; firmware that hangs needs a power cycle.

        Raises:
            BoardError: the command that cycles the power failed.
        """
        if not self.is_attached:
            return None
        reconnection = self.reconnection
        reconnection.wait()
        device = None if hangs else self._reopened(prepared)
        if device is None and reconnection.power is not None:
            reconnection.bring_back()
            device = self._reopened(prepared)
        return device

    def _reopened(self, prepared: BuiltProject) -> Device | None:
        port, probe = self.deployment.port, self.deployment.probe
        try:
            return session.open(prepared.folder, port=port, probe=probe, timeout_s=_ANSWERS_S)
        except LOST:
            return None


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The limits on the candidates of one firmware.

    Attributes:
        code_bytes: bytes of machine code.
        constant_bytes: bytes of weights and tables; None: they share the code's memory.
        arena_bytes: bytes of the arena.
        most: the number of candidates.
    """

    code_bytes: int
    constant_bytes: int | None
    arena_bytes: int
    most: int

    @classmethod
    def of(cls, board: Board, most: int, options: Mapping[str, str]) -> "TrialLimits":
        """Return a board's memory, minus the runtime's use with the template's options."""
        code, weights, arena = (board.memory_for(role) for role in ("code", "weights", "arena"))
        if code is None or weights is None or arena is None:
            return cls(_HOST_BYTES, None, _HOST_BYTES, most)
        sizes = {name: int(value) for name, value in options.items() if name.endswith("_bytes")}
        data = _RUNTIME_DATA + _BUFFERS * sizes.get("rpc_buffer_bytes", 0) + sizes.get("stack_bytes", 0)
        ram = arena.size - (data if "stack" in arena.holds else 0)
        return cls(code.size - min(_RUNTIME_CODE, code.size // 2), None if weights == code else weights.size, ram, most)

    def takes(self, code_bytes: int, constant_bytes: int) -> bool:
        """Return whether this much code and constants fits."""
        if self.constant_bytes is None:
            return code_bytes + constant_bytes <= self.code_bytes
        return code_bytes <= self.code_bytes and constant_bytes <= self.constant_bytes

    def holds(self, space: Space, candidate: Candidate) -> bool:
        """Return whether a candidate may fit alone with its reference; the build decides about their code."""
        constants = sum({**candidate.constants, **space.reference.constants}.values())
        return self.takes(0, constants) and arena_bytes(space, candidate) <= self.arena_bytes


def shares_of(pending: Sequence[tuple[Space, Candidate]], room: TrialLimits) -> tuple[tuple[Share, ...], int]:
    """Return the first candidates that fit one firmware, grouped by task, and their number."""
    by_task: dict[str, list[Candidate]] = {}
    spaces: dict[str, Space] = {}
    constants: dict[bytes, int] = {}
    code = count = 0
    for space, candidate in pending:
        key = space.task.record.key
        added = [candidate] if key in spaces else [candidate, space.reference]
        with_it = constants | {digest: size for item in added for digest, size in item.constants.items()}
        code += sum(map(_code_bytes, added))
        is_full = not room.takes(code, sum(with_it.values())) or (key not in spaces and len(spaces) >= _MOST_TASKS)
        if count >= room.most or (count and is_full):
            break
        constants = with_it
        spaces[key] = space
        by_task.setdefault(key, []).append(candidate)
        count += 1
    return tuple(Share(spaces[key], tuple(candidates)) for key, candidates in by_task.items()), count


def _code_bytes(candidate: Candidate) -> int:
    """Return the estimated bytes of a candidate's machine code; an estimate that is too small costs a build."""
    return max(int(candidate.code_bytes * _CODE_PER_CHARACTER), _LEAST_CODE)


# A board that runs a trial's firmware.


@dataclass(frozen=True, slots=True)
class OpenedBoard:
    """A board that runs a trial's firmware: its meter, and the built project."""

    meter: BoardMeter
    prepared: BuiltProject

    def in_unit(self, operators: Sequence[str], outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Return outcomes with estimated cycles per call on the board's core in place of instructions.

        Operators that share a function get equal parts of its cycles if only those are known.

        Args:
            operators: the operators' names.
            outcomes: their outcomes, in the same order.

        Raises:
            UsageError: there is no table for the board's core, or the board has no emulator.
            BuildError: a tool is missing.
        """
        self.close()
        manifest, cpu = self.prepared.manifest, self.prepared.board.cpu
        (sample,) = sampling.seeded(manifest.inputs, count=1, seed=0)
        functions = {operator.name: operator.function for operator in manifest.operators}
        parts = cycles.estimate(self.prepared.folder, sample).operators
        estimated = {part.name: float(part.cycles[cpu]) for part in parts}
        users = Counter(functions.values())
        times = {
            name: estimated.get(name, estimated.get(function, 0.0) / users[function])
            for name, function in functions.items()
        }
        return [
            Outcome("ok", (times[name],)) if outcome.status == "ok" else outcome
            for name, outcome in zip(operators, outcomes, strict=True)
        ]

    def close(self) -> None:
        """End the session."""
        self.meter.close()
