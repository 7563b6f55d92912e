"""A deployment of a model: its project folder, and the device that runs it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtool import boards
from mtool.base import checked, files
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device import session
from mtool.device.session import Device
from mtool.stages.building import HOST_DRIVEN, Prepared, build_project
from mtool.stages.compiling import Model, compile, compile_models
from mtool.stages.options import Options
from mtool.stages.writing import write_project

HOST = "host"
"""The board of a model, for who names none."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of a model: its project folder, and the device that runs it.

    folder: the project folder; None: build/<model>-<board> below the working folder.
    port: the serial port of the board; empty: its emulator, MTOOL_PORT, mtool.toml, the single match; "emulator": its
        emulator whatever is attached.
    probe: the USB serial number of the board or its probe, or the beginning of it; empty: likewise.
    flash: the command that flashes the board, in place of a runner; empty: that of mtool.toml, or a runner.
    power: the command that cycles the board's power; empty: that of mtool.toml or of the board, or none.
    timeout_s: seconds that an inference may take; None: generously by its estimated instructions.
    models: those of a firmware of several, which are compiled; the name in the options says which one is meant.
    """

    folder: Path | None = None
    port: str = ""
    probe: str = ""
    flash: str = ""
    power: str = ""
    timeout_s: float | None = None
    models: tuple[Model, ...] = ()

    def __post_init__(self) -> None:
        """Read the commands, so that one with a quote too few is told before the work, not when a board hangs.

        Raises:
            UsageError: a command names no program, or can't be read.
        """
        checked.fields(self, {})
        if self.flash or self.power:
            from mtool.device.flash import command_line

            for what, text in (("flash", self.flash), ("power", self.power)):
                if text:
                    command_line.words_of(text, what=f"the {what} command")

    def refuse_port(self, board: Board) -> None:
        """Refuse a port or a probe for a board that is a program of this computer.

        Raises:
            UsageError: one was given.
        """
        if (self.port or self.probe) and board.emulator is not None and board.emulator.is_the_firmware:
            raise UsageError(
                f"{board.name} is a program of this computer, and has no port", hint="leave out --port and --probe"
            )

    def check_device(self, board: Board, options: Options) -> None:
        """Say now that the device is not attached, or is not reached so, before anything is compiled.

        Raises:
            BoardError: nothing of the board is attached, or not what was asked for, or several match.
            UsageError: the port is a malformed address, or one that the firmware will not answer at.
        """
        from mtool import project
        from mtool.device.flash import ports

        self.refuse_port(board)
        if self.port == ports.EMULATOR:
            ports.check_emulator(board)
            return
        if not (options.template or board.templates):
            return
        template, values = project.choose(board, options.template, options.template_options)
        is_cabled = template.transport == "serial" and board.emulator is None
        if not (self.port or self.probe or is_cabled):
            return
        want = ports.wanted(self.port, self.probe)
        channel = values.get(session.CHANNEL)
        if want.port.startswith("rtt:") and channel not in (None, session.RTT):
            ports.require(board, want)
            raise UsageError(
                f"--port {want.port}: the firmware has no RTT", hint=f"build it with --option {session.CHANNEL}=rtt"
            )
        if channel == session.RTT and not want.port:
            raise session.nobody_reads_rtt(board)
        ports.require(board, want)

    def with_models(
        self, paths: Sequence[str | Path], *, board: str | Board, options: Sequence[Options]
    ) -> "Deployment":
        """Compile models for one firmware, and return the deployment that has them.

        Raises:
            BoardError: there is no such board, or the device that is asked for is not attached.
            MtoolError: as `compile_models`.
        """
        target = boards.get(board or HOST) if isinstance(board, str) else board
        self.check_device(target, options[0])
        if self.folder is None:
            files.check_folder(Path("build"))
        return replace(self, models=compile_models(paths, board=target, options=options, folder=self.folder))

    def compile(self, path: str | Path, *, board: str | Board, options: Options | None = None) -> Model:
        """Compile a model for this deployment; what is wrong with the folder or the device is told before the work.

        Raises:
            BoardError: there is no such board, or the device that is asked for is not attached.
            MtoolError: as `compile`.
        """
        if self.models:
            names = [one.manifest.model for one in self.models]
            return self.models[names.index(options.name if options else "")]
        target = boards.get(board) if isinstance(board, str) else board
        self.check_device(target, options or Options())
        if self.folder is None:
            files.check_folder(Path("build"))  # where the project goes
        return compile(path, board=target, options=options, folder=self.folder)

    def build(self, model: Model, *, kinds: Sequence[str] = (HOST_DRIVEN,)) -> Prepared:
        """Write a compiled model's project and build it; a board at a port that runs another is told before the build.

        Raises:
            BoardError: the device that is asked for is not attached.
            CommunicationError: it does not answer, or runs another firmware.
            MtoolError: as `build_model`.
        """
        model.refuse_certain()
        folder = write_project(model, self.folder)
        return self.build_folder(model.board, folder, kinds=kinds, model=model.manifest.model)

    def build_folder(
        self, board: Board, folder: Path, *, kinds: Sequence[str] = (HOST_DRIVEN,), model: str = ""
    ) -> Prepared:
        """Build a project that is written, as `build` does; `model` is the one that is meant, empty: the first."""
        from mtool.device import build as building

        if not building.is_up_to_date(folder, kinds):
            session.check(folder, port=self.port, probe=self.probe)
        return build_project(board, folder, kinds=kinds, model=model)

    def open(self, prepared: Prepared) -> Device:
        """Open a session with the device, which runs the firmware of a built project: as it runs its model."""
        name, timeout_s = prepared.manifest.model, self.timeout_s
        return session.open(prepared.folder, port=self.port, probe=self.probe, model=name, work_s=timeout_s)


DEFAULT = Deployment()
