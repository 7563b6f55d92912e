"""The Project API: six verbs on any template folder, mtool's own or a user's.

    api = ProjectApi("./my_template")
    api.info(), api.options()
    folder = api.generate_project(mtool.compile("model.onnx", board="mps2_an386"), Path("project"))
    api.build(folder)
    api.flash(folder)
    with api.open_transport(folder) as transport: ...

`build`, `flash` and `open_transport` need only the project folder: its mtool.json says what made it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mtool import boards, manifest, project
from mtool.base.errors import UsageError
from mtool.commands.flashing import flash_job
from mtool.device import build as building
from mtool.device import flash, session
from mtool.device.build import Built
from mtool.device.flash import FlashResult, ports
from mtool.device.transport import Transport
from mtool.project.template import Option
from mtool.stages.building import write_project
from mtool.stages.compiling import CompiledModel


@dataclass(frozen=True, slots=True)
class Info:
    """A template's name, summary, builder, transport, firmware kinds and boards."""

    name: str
    description: str
    builder: str
    transport: str
    kinds: tuple[str, ...]
    boards: tuple[str, ...]


class ProjectApi:
    """The verbs of a template.

    Args:
        template: a template's name, or the path of your own.

    Raises:
        UsageError: the template does not exist, or its template.yaml does not match the schema.
    """

    def __init__(self, template: str | Path) -> None:
        self._named = str(template)
        self._template = project.load(self._named)

    def info(self) -> Info:
        """Return the template's description. Your own template may suit any board; `boards` has those that name it."""
        chosen = self._template
        named = tuple(board.name for board in boards.load_all().values() if chosen.name in board.templates)
        kinds = tuple(chosen.firmware)
        return Info(chosen.name, chosen.description, chosen.builder, chosen.transport, kinds, named)

    def options(self) -> Mapping[str, Option]:
        """Return the template's options: type, default, choices and help of each."""
        return dict(self._template.options)

    def generate_project(self, model: CompiledModel, folder: Path, options: Mapping[str, str] | None = None) -> Path:
        """Write a project for a compiled model.

        Args:
            model: the result of `mtool.compile`.
            folder: the project folder: new, empty or an mtool project.
            options: values of the template's options, as text.

        Raises:
            UsageError: an option is unknown, or the folder has other contents.
        """
        chosen = dataclasses.replace(model.options, template=self._named, template_options=dict(options or {}))
        return write_project(dataclasses.replace(model, options=chosen), folder)

    def build(self, folder: Path, *, kind: str = "host_driven") -> Built:
        """Build a firmware kind of a project.

        Raises:
            BuildError: a toolchain is missing, or the build failed.
            FitError: the firmware does not fit the board.
        """
        self._check(folder)
        return building.build(folder, kinds=(kind,))

    def flash(
        self, folder: Path, *, runner: str = "", port: str = "", probe: str = "", kind: str = "host_driven"
    ) -> FlashResult:
        """Flash a built project.

        Raises:
            FlashError: the tool failed.
            BoardError: no board is attached, or several match.
        """
        described = self._check(folder)
        chosen = flash.choose(described.board, runner, template=described.template)
        device = ports.resolve(described.board, ports.selector(port, probe))
        return flash.flash(chosen, flash_job(folder, described, chosen, device, kind=kind))

    def open_transport(self, folder: Path, *, port: str = "", probe: str = "") -> Transport:
        """Return the byte channel to the firmware of a built project; use it in a `with` statement.

        Raises:
            CommunicationError: it can't be opened.
        """
        self._check(folder)
        return session.open_transport(folder, port=port, probe=probe)

    def _check(self, folder: Path) -> manifest.Project:
        described = manifest.load(folder).project
        if described is None or described.template != self._template.name:
            kind = "a compiled model" if described is None else f"a project of the template {described.template}"
            raise UsageError(
                f"{folder} is not a project of the template {self._template.name}", details=[f"it is {kind}"]
            )
        return described
