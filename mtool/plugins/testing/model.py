"""The model of a project, under test: built for a board, with its reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from mtool import boards
from mtool.base import locks
from mtool.base.errors import MismatchError, UsageError
from mtool.boards import Board
from mtool.commands.cost import ALL_KINDS, Cost, cost_of
from mtool.commands.flashing import find_device, open_flashed, runner_of, template_of
from mtool.commands.user_project import OwnProject
from mtool.device import session
from mtool.device.flash import ports
from mtool.device.session import Device, Readings
from mtool.manifest import Manifest
from mtool.stages import arrays
from mtool.stages import samples as sampling
from mtool.stages.building import Prepared, build_model
from mtool.stages.compiling import Model
from mtool.stages.deployment import Revival, executor_of
from mtool.stages.samples import Array, Sample
from mtool.verification import reference
from mtool.verification.layers import compare_layers
from mtool.verification.verification import judge

_LABELS = "labels"


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """A project's model that is compiled and built for a board.

    Attributes:
        project: the project.
        board: the board's name.
        compiled: the model as it was compiled.
        prepared: its firmware.
    """

    project: OwnProject
    board: str
    compiled: Model
    prepared: Prepared

    @property
    def manifest(self) -> Manifest:
        """What is known of the model: inputs, outputs, operators."""
        return self.compiled.manifest

    def samples(self, count: int = 4, *, seed: int = 0) -> list[Sample]:
        """Return inputs that are drawn."""
        return sampling.seeded(self.manifest.inputs, count=count, seed=seed)

    def expected(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the reference's outputs: onnxruntime's, LiteRT's of a TFLite model."""
        return list(reference.outputs(self.compiled.path, samples, options=self.compiled.options))

    def outputs(self, device: Device, samples: Sequence[Sample]) -> list[Sample]:
        """Return the device's outputs; a model with states begins a sequence with the first sample."""
        if self.manifest.states:
            device.reset_state()
        infer = executor_of(device, self.prepared.folder)
        return [infer(sample) for sample in samples]

    def verify(self, device: Device, *, samples: int | Sequence[Sample] = 4, seed: int = 0) -> None:
        """Hold the device's outputs against the reference's, as `mtool verify` does.

        Raises:
            MismatchError: they differ by more than is allowed.
        """
        inputs = self.samples(samples, seed=seed) if isinstance(samples, int) else list(samples)
        found = self.outputs(device, inputs)
        judge(
            self.compiled,
            inputs,
            self.expected(inputs),
            found,
            layers=lambda allowed, some: compare_layers(device, self.compiled, some, allowed),
        ).check()

    def accuracy(self, device: Device, file: str) -> float:
        """Return the share of labelled samples whose largest output is at their label.

        Args:
            device: what runs the model.
            file: a .npz in the project's `tests`: an array of samples by each input's name (x0.. do too), and `labels`.

        Raises:
            UsageError: the file has no labels, or not one a sample.
        """
        path = self.project.folder / "tests" / file
        if not path.is_file():
            import pytest

            pytest.skip(f"there is no {path}")
        labels = arrays.read(path).get(_LABELS)
        labels = None if labels is None else labels.reshape(-1)
        inputs = sampling.inputs_of(path, self.manifest.inputs)
        if labels is None or len(labels) != len(inputs):
            raise UsageError(
                f"{path} has not a label for each sample",
                details=[f"{len(inputs)} samples, {'no' if labels is None else len(labels)} labels"],
                hint=f"np.savez(.., {_LABELS}=[3, 0, ..])",
            )
        found = self.outputs(device, inputs)
        right = [int(np.argmax(_first(sample))) == int(label) for sample, label in zip(found, labels, strict=True)]
        return float(np.mean(right))

    def cost(self, device: Device) -> Cost:
        """Return what an inference costs on the device."""
        return cost_of(self.prepared, device, self.samples(1)[0], Readings())


def build(project: OwnProject, board: str, *, port: str = "", probe: str = "") -> ModelUnderTest:
    """Compile a project's model and build it for a board.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    project.check_model()
    target = boards.get(board)
    options = project.options_for(board, keep=True)
    deployment = project.deployment_for(board, port=port, probe=probe)
    compiled = deployment.compile(project.model, board=target, options=options)
    kinds = ALL_KINDS if options.program is None or board == project.board else ALL_KINDS[:1]
    return ModelUnderTest(project, board, compiled, build_model(compiled, deployment.folder, kinds=kinds))


def open_device(model: ModelUnderTest, *, port: str = "", probe: str = "", record: IO[str] | None = None) -> Device:
    """Open a session with what runs a model: a process, an emulator, or a board, which is flashed first.

    Args:
        model: the model.
        port: of a board; as of `mtool flash`.
        probe: likewise.
        record: where each piece that goes over the channel is written down.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    described = model.prepared.manifest.project
    assert described is not None
    board = model.prepared.board
    if not (port or probe or (described.transport == "serial" and _is_attached(board))):
        return session.open(model.prepared.folder, record=record)
    deployment = model.project.deployment_for(model.board, port=port, probe=probe)
    runner = runner_of(board, template=template_of(board, model.compiled.options), deployment=deployment)
    found = find_device(board, deployment)
    names = (found.probe, found.port) if found else ()

    def attempt() -> Device:
        with locks.locked(*names):
            return open_flashed(model.prepared, runner, deployment, record=record)

    revival = Revival.of(board, "", found.port if found else "", found.probe if found else "")
    return revival.until_back(attempt) if revival.power is not None else attempt()


def _is_attached(board: Board) -> bool:
    """Return whether a board is driven itself: one that is sold and has an emulator, if one is attached."""
    return board.emulator is None or (board.usb is not None and ports.resolve(board, ports.wanted()) is not None)


def _first(sample: Mapping[str, Any]) -> Array:
    first: Array = next(iter(sample.values()))
    if first.size == 0:
        raise MismatchError("the model's first output is empty")
    return first
