"""A deployment of a model: its project folder, and the device that runs it."""

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mtool import boards
from mtool.base import checked, command_line, files
from mtool.base.errors import BoardError, CommunicationError, FlashError, UsageError
from mtool.base.frozen import frozen
from mtool.base.option_table import OPTIONS
from mtool.boards import Board
from mtool.device import session
from mtool.device.flash import ports, power
from mtool.device.flash.power import Power
from mtool.device.session import Device
from mtool.device.session.opening import TIMEOUT_S
from mtool.manifest.link_key import LinkKey
from mtool.stages.building import HOST_DRIVEN, BuiltProject, build_project, write_project
from mtool.stages.compiling import CompiledModel, compile, compile_models
from mtool.stages.options import Options
from mtool.stages.samples import Sample
from mtool.stages.tuned import planned_project

HOST = "host"
"""The default board."""


@frozen
class Deployment:
    """A deployment of a model: its project folder, and the device that runs it.

    folder: the project folder; None: build/<model>-<board> below the working folder.
    port: the serial port of the board; empty: its emulator, MTOOL_PORT, mtool.toml, the single match; "emulator": its
        emulator even if a board is attached.
    probe: the USB serial number of the board or its probe, or its beginning; empty: likewise.
    flash: the command that flashes the board, in place of a runner; empty: the one in mtool.toml, or a runner.
    power: the command that cycles the board's power; empty: the one in mtool.toml or of the board, or none.
    timeout_s: the most seconds that an inference may take, at least 0.001; None: estimated generously from its
        instructions.
    models: the compiled models of a firmware with several; the name in the options selects one.
    """

    folder: Path | None = None
    port: str = ""
    probe: str = ""
    flash: str = ""
    power: str = ""
    timeout_s: checked.Timeout | None = None
    models: tuple[CompiledModel, ...] = ()

    def __post_init__(self) -> None:
        """Parse the commands, so that a missing quote is reported now, not when a board hangs.

        Raises:
            UsageError: a command is empty or malformed, or a value has the wrong type or is out of range.
        """
        checked.fields(self, {})
        if self.flash or self.power:
            from mtool.device.flash import by_command

            commands = ("flash", self.flash, by_command.FLASH), ("power", self.power, by_command.POWER)
            for what, text, places in commands:
                if text:
                    command_line.words_of(text, places, what=f"the {what} command")

    def refuse_port(self, board: Board) -> None:
        """Refuse a port or a probe for a board whose firmware is a program on this computer.

        Raises:
            UsageError: there is one.
        """
        if (self.port or self.probe) and board.emulator is not None and board.emulator.is_the_firmware:
            raise UsageError(f"{board.name} runs on this computer and has no port", hint="leave out --port and --probe")

    def check_device(self, board: Board, options: Options) -> None:
        """Check before compiling that the device is attached and can be reached.

        Raises:
            BoardError: no matching board is attached, or several are.
            UsageError: the port is a malformed address, or the firmware will not answer there.
        """
        self.refuse_port(board)
        if options.template or board.templates:
            planned = planned_project(board, options.template, options.of_template(board))
            session.attached(planned, self.port, self.probe)
        elif self.port == ports.EMULATOR:
            ports.check_emulator(board)

    def _check(self, board: Board, options: Options) -> None:
        self.check_device(board, options)
        if self.folder is None:
            files.check_folder(Path("build"))  # the project's parent folder

    def with_models(
        self, paths: Sequence[str | Path], *, board: str | Board, options: Sequence[Options]
    ) -> "Deployment":
        """Compile models for one firmware, and return the deployment that has them.

        Raises:
            BoardError: there is no such board, or the device is not attached.
            MtoolError: as `compile_models`.
        """
        target = boards.get(board or HOST) if isinstance(board, str) else board
        self._check(target, options[0])
        return replace(self, models=compile_models(paths, board=target, options=options, folder=self.folder))

    def compile(self, path: str | Path, *, board: str | Board, options: Options | None = None) -> CompiledModel:
        """Compile a model for this deployment; the folder and the device are checked first.

        Raises:
            BoardError: there is no such board, or the device is not attached.
            MtoolError: as `compile`.
        """
        if self.models:
            names = [model.manifest.model for model in self.models]
            return self.models[names.index(options.name if options else "")]
        target = boards.get(board) if isinstance(board, str) else board
        self._check(target, options or Options())
        return compile(path, board=target, options=options, folder=self.folder)

    def build(self, model: CompiledModel, *, kinds: Sequence[str] = (HOST_DRIVEN,)) -> BuiltProject:
        """Write a compiled model's project and build it; whether the board at the port runs another is checked first.

        Raises:
            BoardError: the device is not attached.
            CommunicationError: it does not answer, or runs another firmware.
            MtoolError: as `build_model`.
        """
        model.refuse_certain()
        folder = write_project(model, self.folder)
        return self.build_folder(model.board, folder, kinds=kinds, model=model.manifest.model)

    def build_folder(
        self,
        board: Board,
        folder: Path,
        *,
        kinds: Sequence[str] = (HOST_DRIVEN,),
        model: str = "",
        link_key: LinkKey | None = None,
    ) -> BuiltProject:
        """Build an existing project, as `build` does; `model` selects one of its models, empty: the first."""
        from mtool.device import build as building

        if not building.is_up_to_date(folder, kinds):
            session.check(folder, port=self.port, probe=self.probe, link_key=link_key)
        return replace(build_project(board, folder, kinds=kinds, model=model), link_key=link_key)

    def open(self, prepared: BuiltProject, *, timeout_s: float = TIMEOUT_S) -> Device:
        """Open a session with the device that runs a built project's firmware."""
        return session.open(
            prepared.folder,
            port=self.port,
            probe=self.probe,
            timeout_s=timeout_s,
            link_key=prepared.link_key,
            model=prepared.manifest.model,
            work_s=self.timeout_s,
        )


DEFAULT = Deployment()


def parse(**values: Any) -> Deployment:
    """Return the deployment that the values of options describe; they are named as in the table."""
    return Deployment(**{OPTIONS[name].python_name: value for name, value in values.items()})


# Inferences on a built project's device; for many samples, on several devices where these are processes.


log = logging.getLogger(__name__)
LONG_S = 2.0
"""If the remaining samples are expected to take more seconds, further devices are started for them."""
TRIED_S = 0.2  # seconds after which a sample's time can be judged


def run_samples(prepared: BuiltProject, inputs: Sequence[Sample], deployment: Deployment = DEFAULT) -> list[Sample]:
    """Run a built project on each sample and return the outputs in the same order."""
    with deployment.open(prepared) as device:
        return infer_all(device, prepared, inputs, deployment)


def infer_all(
    device: Device,
    prepared: BuiltProject,
    samples: Sequence[Sample],
    deployment: Deployment,
    on_done: Callable[[int, Sample], None] = lambda number, outputs: None,
) -> list[Sample]:
    """Run samples and return the outputs in the same order.

    If that takes longer than `LONG_S`, the device is a process or an emulator, and the model has no states, one device
    is started for each processor that this process may use. Each serves samples until there are none left.

    Args:
        device: an open session.
        prepared: the project.
        samples: in order; a model's states carry over from each to the next.
        deployment: opens more devices of the project.
        on_done: called with the number and the outputs of each sample when it is done, one call at a time.

    Raises:
        MtoolError: a sample failed; if several did, the error of the first.
    """
    infer = executor_of(device, prepared.folder)
    can_part = device.is_process and device.manifest.executor != "graph-host" and not device.manifest.states
    start = time.monotonic()
    outputs: list[Sample] = []
    for sample in samples:
        outputs.append(infer(sample))
        on_done(len(outputs) - 1, outputs[-1])
        passed = time.monotonic() - start
        if can_part and passed > TRIED_S and passed / len(outputs) * (len(samples) - len(outputs)) > LONG_S:
            break
    rest = samples[len(outputs) :]
    if not rest:
        return outputs
    numbers, results, failed = itertools.count(), dict[int, Sample](), dict[int, BaseException]()
    is_over, one_at_a_time = threading.Event(), threading.Lock()

    def serve(infer: Callable[[Sample], Sample]) -> None:
        """Run samples until there are none left or one has failed; `next` is atomic across threads."""
        while not is_over.is_set() and (number := next(numbers)) < len(rest):
            try:
                results[number] = infer(rest[number])
                with one_at_a_time:
                    on_done(len(outputs) + number, results[number])
            except Exception as wrong:
                failed[number] = wrong
                is_over.set()

    def serve_with_another() -> None:
        """Open another device and serve; if it does not open, the others do its work."""
        try:
            another = deployment.open(prepared)
        except Exception as refused:
            log.info("another device could not be opened: %s", refused)
            return
        with another:
            serve(another.run)

    count = min(processors(), len(rest)) - 1
    log.info("  running the other %d samples on %d devices", len(rest), count + 1)
    with ThreadPoolExecutor(count or 1) as others:
        for _ in range(count):
            others.submit(serve_with_another)
        try:
            serve(infer)
        finally:
            is_over.set()
    if failed:
        raise failed[min(failed)]
    return [*outputs, *(results[number] for number in range(len(rest)))]


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def executor_of(device: Device, folder: Path) -> Callable[[Sample], Sample]:
    """Return the function that runs an inference: the device's own, or that of the graph executor on the host."""
    return device.graph_executor(folder).run if device.manifest.executor == "graph-host" else device.run


# Reconnection to an attached board that does not answer, can't be flashed, or whose port has disappeared.


T = TypeVar("T")
LOST = (CommunicationError, BoardError, FlashError)
"""The errors that opening a temporarily lost board may raise."""
_TRIES = 3
_RETURNS_S = 30.0  # the longest wait for an unplugged board
POLL_S = 0.1


@frozen
class Reconnection:
    """Reconnects to a board.

    Attributes:
        port: its serial port; empty: unknown.
        probe: the serial number of the board or its probe, or its beginning; empty: unknown.
        power: the command that cycles its power; None: there is none.
        returns_s: how long to wait for its port.
    """

    port: str = ""
    probe: str = ""
    power: Power | None = None
    returns_s: float = _RETURNS_S

    @classmethod
    def of(cls, board: Board, command: str, port: str, probe: str) -> "Reconnection":
        """Return the reconnection to a board; `command` cycles its power, if not empty.

        Raises:
            UsageError: mtool.toml is malformed.
        """
        return cls(port, probe, power.of(board, command, port=port, probe=probe))

    def bring_back(self) -> None:
        """Cycle the power, if there is a command for it, and wait for the port, up to the timeout.

        Raises:
            BoardError: the command failed.
        """
        if self.power is not None:
            self.power.cycle()
        self.wait()

    def wait(self) -> None:
        """Wait until the board is plugged in, up to the timeout."""
        if self._is_there():
            return
        log.warning("%s has disappeared: waiting up to %.0f s for it", self.port or self.probe, self.returns_s)
        deadline = time.monotonic() + self.returns_s
        while not self._is_there() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def _is_there(self) -> bool:
        """Return whether the board is plugged in, as far as is known."""
        if self.port:
            return not self.port.startswith("/") or Path(self.port).exists()
        probe = self.probe.upper()
        return not probe or any(device.probe.upper().startswith(probe) for device in ports.attached())

    def until_back(self, attempt: Callable[[], T]) -> T:
        """Return the attempt's result; after a failed attempt, reconnect and try again.

        Raises:
            MtoolError: the last attempt failed, or the power can't be cycled.
        """
        for _ in range(_TRIES - 1):
            try:
                return attempt()
            except LOST as failed:
                log.info("the board is not available: %s", failed.what)
            self.bring_back()
        return attempt()
