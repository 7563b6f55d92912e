"""A project's model under test: built for a board, with its reference."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from mtool import boards
from mtool.base import configuration, files, locks, spelling
from mtool.base.errors import BoardError, MismatchError, MtoolError, UsageError, of_os_error
from mtool.commands.cost import ALL_KINDS, Cost, cost_of
from mtool.commands.flashing import find_device, open_flashed, runner_of, template_of
from mtool.commands.user_project import UserProject
from mtool.device import session
from mtool.device.session import Device, Readings
from mtool.manifest import Manifest
from mtool.plugins.testing import growth
from mtool.quantization.evaluation import Labelled, judged
from mtool.quantization.metrics import Scoring
from mtool.stages import samples as sampling
from mtool.stages.building import BuiltProject, build_model
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import Reconnection, executor_of
from mtool.stages.samples import Sample
from mtool.verification import reference
from mtool.verification.verification import judge


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """A project's model, compiled and built for a board.

    Attributes:
        project: the project.
        board: the board's name.
        compiled: the compiled model.
        prepared: its firmware.
    """

    project: UserProject
    board: str
    compiled: CompiledModel
    prepared: BuiltProject

    @property
    def manifest(self) -> Manifest:
        """The description of the model: inputs, outputs, operators."""
        return self.compiled.manifest

    def samples(self, count: int = 4, *, seed: int = 0) -> list[Sample]:
        """Return random inputs."""
        return sampling.seeded(self.manifest.inputs, count=count, seed=seed)

    def expected(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the reference's outputs: onnxruntime's, or LiteRT's for a TFLite model."""
        return list(reference.outputs(self.compiled.path, samples, options=self.compiled.options))

    def outputs(self, device: Device, samples: Sequence[Sample]) -> list[Sample]:
        """Return the device's outputs; a model with states starts a new sequence with the first sample."""
        if self.manifest.states:
            device.reset_state()
        infer = executor_of(device, self.prepared.folder)
        return [infer(sample) for sample in samples]

    def verify(self, device: Device, *, samples: int | Sequence[Sample] = 4, seed: int = 0) -> None:
        """Compare the device's outputs with the reference's, as `mtool verify` does.

        Raises:
            MismatchError: they differ by more than the tolerance.
        """
        inputs = self.samples(samples, seed=seed) if isinstance(samples, int) else list(samples)
        outputs = self.outputs(device, inputs)
        expected = self.expected(inputs)
        judge(self.compiled, inputs, expected, outputs, opened=lambda: contextlib.nullcontext(device)).check()

    def accuracy(self, device: Device, file: str) -> float:
        """Return the share of labelled samples whose largest output is at their label.

        Args:
            device: the device that runs the model.
            file: a .npz in the project's `tests`: an array of samples under each input's name (or x0..), and `labels`.

        Raises:
            UsageError: the file has no labels, or they are not a class for each sample.
        """
        path = self.project.folder / "tests" / file
        if not path.is_file():
            import pytest

            pytest.skip(f"{path} does not exist")
        scoring = Scoring(("top1",), output=self.manifest.outputs[0].name)
        data = Labelled(path, scoring=scoring).read(self.manifest)
        return float(judged(self.manifest, self.outputs(device, data.samples), data, scoring).by_name["top1"])

    def cost(self, device: Device) -> Cost:
        """Return the cost of an inference on the device, also by operator."""
        sample = self.samples(1)[0]
        cost = cost_of(self.prepared, device, sample, Readings())
        with contextlib.suppress(UsageError):  # some executors can't run operators one by one
            return replace(cost, operators=growth.parts_of(self.prepared, device, sample, cost))
        return cost


def build(project: UserProject, board: str, *, port: str = "", probe: str = "") -> ModelUnderTest:
    """Compile a project's model and build it for a board.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    project.check_model()
    target = boards.get(board)
    options = project.options_for(board, keep=True)
    deployment = project.deployment_for(board, port=port, probe=probe)
    compiled = deployment.compile(project.model, board=target, options=options)
    kinds = ALL_KINDS if options.program is None or board == project.board else ALL_KINDS[:1]
    return ModelUnderTest(project, board, compiled, build_model(compiled, deployment.folder, kinds=kinds))


def open_device(model: ModelUnderTest, *, port: str = "", probe: str = "", record: IO[str] | None = None) -> Device:
    """Open a session with a model's process, its emulator, or its board, which is flashed first.

    Args:
        model: the model.
        port: the board's port, as for `mtool flash`.
        probe: the board's probe, likewise.
        record: the file in which all data on the channel is recorded.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    board = model.prepared.board
    if session.attached(model.prepared.manifest.in_project, port, probe) is None:
        return session.open(model.prepared.folder, port=port, probe=probe, record=record)
    deployment = model.project.deployment_for(model.board, port=port, probe=probe)
    runner = runner_of(board, template=template_of(board, model.compiled.options), deployment=deployment)
    device = find_device(board, deployment)
    names = (device.probe, device.port) if device else ()

    def attempt() -> Device:
        with locks.locked(*names):
            return open_flashed(model.prepared, runner, deployment, record=record)

    reconnection = Reconnection.of(board, "", device.port if device else "", device.probe if device else "")
    return reconnection.until_back(attempt) if reconnection.power is not None else attempt()


# Limits on the cost and accuracy of an inference: limits.toml, and the recorded figures.


LIMITS = "limits.toml"
FIGURES = "figures.json"
_SCHEMA = 1
_MOST = (
    "instructions", "time_us", "flash_bytes", "ram_bytes", "stack_bytes", "missed_hops", "duty_percent", "worst_hop_us",
)  # fmt: skip
_LEAST = ("accuracy",)
_WORSE = "worse_percent"
_DIFFERS = ("time_us", "duty_percent", "worst_hop_us")  # varies between runs by more than one percent


def figures_of(cost: Cost) -> dict[str, float]:
    """Return the figures that can have limits, by their names there; those that were not measured are left out."""
    figures: dict[str, float | None] = {
        "instructions": cost.instructions,
        "time_us": None if cost.time_ns is None else cost.time_ns / 1e3,
        "flash_bytes": cost.flash_code_bytes + cost.flash_const_bytes,
        "ram_bytes": cost.arena_bytes + cost.ram_static_bytes + (cost.stack_bytes or 0),
        "stack_bytes": cost.stack_bound_bytes,
    }
    return {name: value for name, value in figures.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a project on a board.

    Attributes:
        folder: the project.
        board: the board's name.
        limits: the limits of the board, by their names in limits.toml.
        last: the recorded figures, likewise.
        records: record the figures instead of comparing them with the last ones.
        seen: the figures of this run.
        last_operators, operators: what each operator took when it was recorded, and takes in this run.
        others: the other boards with limits in limits.toml.
    """

    folder: Path
    board: str
    limits: Mapping[str, float]
    last: Mapping[str, float]
    records: bool = False
    seen: dict[str, float] = field(default_factory=dict)
    last_operators: growth.Parts = field(default_factory=dict)
    operators: dict[str, Mapping[str, float]] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def check(self, cost: Cost) -> None:
        """Check the cost of an inference against the limits.

        Raises:
            MismatchError: a figure exceeds its limit, or is worse than the last one by more than is allowed.
        """
        figures = figures_of(cost)
        self.operators.update(cost.operators)
        if "stack_bytes" in self.limits and "stack_bytes" not in figures:
            why = cost.stack_bound_unknown or f"the code of {self.board}'s core can't be read"
            what = f"stack_bytes has a limit on {self.board}, but is not known"
            raise MismatchError(what, details=[why], hint=f"remove the limit from {LIMITS}")
        self.check_figures(figures)

    def check_accuracy(self, accuracy: float) -> None:
        """Check the share of correct samples, 0 to 1, against the limits.

        Raises:
            MismatchError: it is below its limit, or worse than the last one by more than is allowed.
        """
        self.check_figures({"accuracy": accuracy})

    def unlimited(self) -> str | None:
        """Return a note if limits.toml has limits only for other boards."""
        if self.limits or not self.others:
            return None
        return f"{LIMITS} has no limits for {self.board}; it has them for {', '.join(self.others)}"

    def check_figures(self, figures: Mapping[str, float]) -> None:
        """Check figures against the limits, by name.

        Raises:
            MismatchError: a figure exceeds its limit.
        """
        self.seen.update(figures)
        lines_of = {name: self._beyond(name, value) for name, value in figures.items()}
        beyond = [line for lines in lines_of.values() for line in lines]
        if beyond:
            raise MismatchError(
                f"limits exceeded on {self.board}",
                details=[*beyond, *self._grown([name for name, lines in lines_of.items() if lines])],
                hint=f"change the model or {LIMITS}; to accept the new figures: mtool test --record",
            )

    def _grown(self, names: Sequence[str]) -> list[str]:
        """Return lines with what has grown since the figures were recorded."""
        if not self.operators:
            return []
        if not self.last_operators:
            return [f"what has grown is not known: {FIGURES} has no operators for {self.board}"]
        lines = [line for name in names for line in growth.grown(name, self.last_operators, self.operators)]
        lines = [*dict.fromkeys(lines)]
        return [f"grown since {FIGURES} was recorded:", *(lines or ["  nothing"])]

    def _beyond(self, name: str, value: float) -> list[str]:
        lines = []
        limit = self.limits.get(name)
        if limit is not None and (value < limit if name in _LEAST else value > limit):
            what = "at least" if name in _LEAST else "at most"
            lines.append(f"{name}   {_number(value)}, expected {what} {_number(limit)} ({LIMITS})")
        last, percent = self.last.get(name), self.limits.get(_WORSE)
        if last and percent is not None and not self.records and name not in _DIFFERS:
            worse = 100 * ((last - value) if name in _LEAST else (value - last)) / last
            if worse > percent:
                lines.append(
                    f"{name}   {_number(value)}, {worse:.2f}% worse than {_number(last)} ({FIGURES}), "
                    f"expected at most {percent:g}%"
                )
        return lines


def load(folder: Path, board: str, *, records: bool = False) -> Limits:
    """Read a project's limits and figures for a board.

    Raises:
        UsageError: a file can't be read, or is malformed.
    """
    limits, (last, operators) = _limits(folder / LIMITS, board), _figures(folder / FIGURES)
    others = tuple(name for name in limits if name != board)
    before = operators.get(board, {})
    return Limits(
        folder, board, limits.get(board, {}), last.get(board, {}), records, last_operators=before, others=others
    )


def record(limits: Limits) -> Path:
    """Record the figures of this run, beside those of other boards, and return the file.

    Raises:
        UsageError: it can't be read or written.
    """
    path = limits.folder / FIGURES
    recorded, operators = _figures(path)
    boards = {**recorded, limits.board: dict(sorted(limits.seen.items()))}
    operators = {**operators, **({limits.board: limits.operators} if limits.operators else {})}
    document = {
        "schema_version": _SCHEMA,
        "boards": dict(sorted(boards.items())),
        "operators": dict(sorted(operators.items())),
    }
    files.write(path, (json.dumps(document, indent=2) + "\n").encode())
    return path


def _limits(path: Path, board: str) -> dict[str, dict[str, float]]:
    if not path.is_file():
        return {}
    read, _ = configuration.read_toml(path)
    keys = (*_MOST, *_LEAST, _WORSE)
    for name, table in read.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: {name} is not in a table", hint=f"put it below the board's name: [{board}]")
        if name != board:
            _check_board(path, name, board)
        for key, value in table.items():
            if key not in keys:
                raise UsageError(
                    f"{path}: unknown key {key!r} in [{name}]",
                    details=[f"expected one of: {', '.join(keys)}"],
                    hint=spelling.did_you_mean(key, keys),
                )
            if not _is_limit(value):
                raise UsageError(f"{path}: {key} in [{name}] must be 0 or more", details=[f"found {value!r}"])
    return read


def _check_board(path: Path, name: str, board: str) -> None:
    """Check that a section is a board's; `board` is the tested one."""
    try:
        boards.get(name)
    except BoardError:
        what = f"{path}: unknown board {name!r}"
        hint = spelling.did_you_mean(name, boards.load_all(), "list boards: mtool boards")
        hint = spelling.did_you_mean(name, [board], hint)  # the tested one may be less similar
        raise UsageError(what, hint=hint) from None
    except MtoolError:
        pass  # its entry or its Zephyr tree is incomplete here: an error only where it is tested


def _figures(path: Path) -> tuple[dict[str, dict[str, float]], dict[str, growth.Parts]]:
    """Return the recorded figures by board, and what each operator took."""
    if not path.is_file():
        return {}, {}
    try:
        document = json.loads(path.read_bytes())
        boards, operators = document["boards"], document.get("operators", {})
        if document["schema_version"] != _SCHEMA or not all(
            _is_limit(value) for figures in boards.values() for value in figures.values()
        ):
            raise ValueError
        if not all(growth.is_parts(parts) for parts in operators.values()):
            raise ValueError
        return {name: dict(figures) for name, figures in boards.items()}, operators
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{path} has no figures", hint="record them: mtool test --record") from None


def _is_limit(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) > 1 else f"{value:,.4g}"
