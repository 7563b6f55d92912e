"""The options of a model, what they mean for a board, and what is wrong with them whatever the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool.base import checked, filetree
from mtool.base.errors import UsageError
from mtool.base.filetree import Edits
from mtool.base.identifiers import model_name
from mtool.base.option_values import Arenas, Weights
from mtool.boards import Board
from mtool.compiler.plan.plan import section_fault
from mtool.compiler.request import Request
from mtool.compiler.tuned.known import Known
from mtool.stages.tuned import known_for

if TYPE_CHECKING:
    from mtool.project import Program


def _by(function: str) -> checked.Reader:
    """Return a reader of the command line's, whose module is loaded when there is text to read."""

    def read(texts: Sequence[str]) -> Any:
        from mtool.stages import option_texts

        return getattr(option_texts, function)(texts)

    return read


_READERS = {
    "dims": _by("dimensions"),
    "constants": _by("constant_values"),
    "maxima": _by("largest_sizes"),
    "limits": _by("limits"),
    "states": _by("state_pairs"),
    "state_values": _by("constant_values"),
    "schedules": _by("schedule_choices"),
    "pools": _by("pools"),
    "backends": _by("backends"),
    "conventions": _by("conventions_of"),
    "template_options": _by("template_options"),
    "tuned": _by("logs"),
}
_MOST_STEPS = 255


@dataclass(frozen=True, slots=True)
class Options(Request):
    """The options of a model, of its compilation and of its project.

    What a command takes as text may be text here too, one or a sequence: dims="batch=1", states="hn:h0=0.5",
    schedules={"pw_2": "dsp_pointwise:unroll=16"}, pools=["dtcm=48KiB"], backends="cmsis_nn:path=DIR",
    conventions="packed" (the interface).

    template: a template's name or folder; empty: the board's first.
    template_options: values of the template's options, as text.
    edits: what to do about files in the project folder that are not as mtool wrote them: "stop", "force" overwrites
        them, "keep" leaves them.
    trust_template: a template that is named by its path may load Python code (`_extensions`).
    tuned: tuning logs, or folders of them, to take schedules from; none: those of mtool.toml.
    program: a user's own program, which is built as the standalone firmware; None: the template's.
    arenas: of the models of a firmware, if there are several.
    portable: on this computer, loops of plain C as other cores get them, and no vectors: to be read, or compiled
        elsewhere.
    single_file: the model's C is one source and one header.
    """

    template: str = ""
    template_options: Mapping[str, str] = field(default_factory=dict)
    edits: Edits = "stop"
    trust_template: bool = False
    tuned: tuple[Path, ...] = ()
    program: "Program | None" = None
    arenas: Arenas = "shared"
    portable: bool = False
    single_file: bool = False

    def __post_init__(self) -> None:
        """Check the values, and read those that are text.

        Raises:
            UsageError: one is of another type, or none of those that there are.
        """
        states = checked.texts_of(self.states)
        checked.fields(self, _READERS)
        if states:
            own = _by("first_values")(states)
            object.__setattr__(self, "state_values", {**own, **self.state_values})
        if self.program is not None:
            from mtool.project import Program

            checked.value_of("Options.program", self.program, Program)
        if self.name and model_name(self.name) != self.name:
            raise UsageError(f"name {self.name!r}: no name in C", hint=f"for instance: {model_name(self.name)}")
        if fault := section_fault(self.arena_section):
            raise UsageError(f"arena_section {self.arena_section!r}: {fault}", hint="for instance: .bss.dtcm")
        if not 0 <= self.tolerance <= _MOST_STEPS:
            raise UsageError(f"tolerance is {self.tolerance}", details=[f"expected 0 to {_MOST_STEPS}"])
        Request.__post_init__(self)

    def core_of(self, board: Board) -> Board:
        """Return the board as the compile half is to see it: without vectors, if the C has to be portable."""
        return board.model_copy(update={"features": board.features - {"simd"}}) if self.portable else board


def check_options(board: Board, options: Options, folder: Path | None = None) -> None:
    """Say now what is wrong whatever the model: a project's template, the options of that, its folder, schedules.

    Raises:
        UsageError: the template, an option of it or a schedule is unknown, or the folder holds something else or can't
            be written to.
    """
    from mtool import project
    from mtool.compiler.plan.choice import check_schedules

    if options.template or board.templates:
        template, _ = project.choose(board, options.template, options.template_options)
        if options.protect:
            project.check_fence(template, board)
    if options.protect and options.arena_section:
        raise UsageError(
            "--arena-section is for a linker script of yours, and --protect for that of mtool's templates",
            hint="leave one of them out",
        )
    if options.schedules:
        check_schedules(options.schedules)
    if folder is not None:
        filetree.check_folder(folder, edits=options.edits)


def known_of(board: Board, options: Options, *, tells: bool = True) -> Known:
    """Return what tuning has found: what the options know already, else what their logs do, or those of mtool.toml.

    `tells`: that the logs know nothing for the board is told.

    Raises:
        UsageError: a log is missing or malformed.
        BuildError: there are logs, and the compiler that they are looked up for is not installed.
    """
    if options.known != Known():
        return options.known
    return known_for(board, options.tuned, options.template, options.template_options, tells=tells)


def weights_of(board: Board, options: Options) -> Weights:
    """Return how constants are written: as text where the project's builder compiles C and C++ alone, as Arduino's."""
    from mtool import project

    template = options.template or next(iter(board.templates), "")
    return "text" if template and project.load(template).builder == "arduino" else options.weights
