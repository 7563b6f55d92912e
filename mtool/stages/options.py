"""A model's options: parsing, their meaning for a board, and checks that do not depend on the model."""

import functools
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from mtool.base import checked, filetree
from mtool.base.errors import UsageError
from mtool.base.filetree import Edits
from mtool.base.identifiers import model_name
from mtool.base.option_table import DEFAULTS, OF_DEPLOYMENT, OPTIONS
from mtool.base.option_values import LEVEL, Arenas, InterfaceApi, PoolUse, Weights
from mtool.base.tensors import Array
from mtool.boards import Board
from mtool.boards.protection import unit_of
from mtool.compiler.backends.spec import parse as parse_backend
from mtool.compiler.codegen import conventions
from mtool.compiler.frontend.options import slides_of
from mtool.compiler.plan import Choice
from mtool.compiler.plan.pool import LEAST_ALIGNMENT, Pool, section_fault
from mtool.compiler.request import Request
from mtool.compiler.tuned.results import TuningResults
from mtool.manifest import link_key
from mtool.stages.tuned import tuning_results_for

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mtool.project import Program

_DIGITS = 18  # of a size; more might not fit an int64


def _pairs(texts: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """Return values by name, from NAME=VALUE.

    Raises:
        UsageError: a text has another form, or a name appears twice.
    """
    values: dict[str, str] = {}
    for text in texts or ():
        name, value = _pair(text, option, example)
        if name in values:
            raise UsageError(f"{option} {name} is set twice", details=[f"to {values[name]!r} and to {value!r}"])
        values[name] = value
    return values


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} {text}: expected NAME=VALUE", hint=f"for instance: {option} {example}")
    return name, value


def _sizes(texts: Sequence[str] | None, option: str, example: str) -> dict[str, int]:
    """Return numbers of at least 1 by name, from NAME=N."""
    values = {}
    for name, value in _pairs(texts, option, example).items():
        values[name] = int(value) if value.isdecimal() and len(value) <= _DIGITS else 0
        if values[name] < 1:
            raise UsageError(
                f"{option} {name}={value}: expected a whole number of at least 1, found {value!r}",
                hint=f"for instance: {option} {example}",
            )
    return values


def _arrays(texts: Sequence[str] | None) -> dict[str, Array]:
    """Return the values of inputs that become constants, from NAME=VALUE."""
    option, example = "--const", "axes=[1]"
    pairs = _pairs(texts, option, example).items()
    return {name: _numbers(f"{name}={value}", value, option, example) for name, value in pairs}


def _numbers(text: str, value: str, option: str, example: str) -> Array:
    """Return an array from a number, a JSON list of numbers or a .npy file.

    Raises:
        UsageError: it is none of these, or the file is missing or malformed.
    """
    import numpy as np  # imported only for arrays

    from mtool.stages.arrays import read

    try:
        if value.endswith(".npy"):
            (array,) = read(Path(value)).values()
        else:
            array = np.asarray(json.loads(value))
    except (ValueError, MemoryError, RecursionError):
        array = np.asarray("")
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"{option} {text}: expected a number, a list of numbers or a .npy file, found {value!r}",
            hint=f"for instance: {option} {example}",
        )
    return array


def _states(texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Return pairs of an output and an input, from OUT:IN or OUT:IN=VALUE.

    Where names have colons too, the middle one counts.
    """
    pairs = []
    for text in texts or ():
        parts = text.partition("=")[0].split(":")
        half = len(parts) // 2
        output, value = ":".join(parts[:half]), ":".join(parts[half:])
        if len(parts) % 2 or not output or not value:
            raise UsageError(
                f"--state {text}: expected OUT:IN or OUT:IN=VALUE",
                hint="name an output, the input that it feeds, and its initial value: --state hn:h0, --state hn:h0=1.5",
            )
        pairs.append((output, value))
    return tuple(pairs)


def _first_values(texts: Sequence[str] | None) -> dict[str, Array]:
    """Return the states' initial values by input, from the texts with OUT:IN=VALUE."""
    values = {}
    for text, (_, name) in zip(texts or (), _states(texts), strict=True):
        _, equals, value = text.partition("=")
        if equals:
            values[name] = _numbers(text, value, "--state", "hn:h0=[0.5,0.25]")
    return values


def schedule_choices(schedules: Sequence[str] | None) -> dict[str, Choice]:
    """Return the requested schedules by node, from NODE=SCHEDULE[:KNOB=VALUE,...].

    NODE=? and NODE=SCHEDULE:? are unknown names, whose errors list those there are.

    Raises:
        UsageError: a text has another form, or a node has two schedules.
    """
    example = "pw_2=dsp_pointwise:unroll=16"
    choices: dict[str, Choice] = {}
    for text in schedules or ():
        node, value = _pair(text, "--schedule", example)
        name, _, settings = value.partition(":")
        pairs = [setting.partition("=") for setting in settings.split(",")] if settings else []
        wrong = next(("".join(pair) for pair in pairs if not all(pair) and settings != "?"), None)
        problem = (
            "the schedule is missing" if not name
            else f"{node} already has a schedule" if node in choices
            else f"expected KNOB=VALUE, found {wrong!r}" if wrong is not None
            else ""
        )  # fmt: skip
        if problem:
            raise UsageError(f"--schedule {text}: {problem}", hint=f"for instance: --schedule {example}")
        choices[node] = Choice(name, {knob: setting for knob, _, setting in pairs})
    return choices


def _pool(text: str) -> Pool:
    """Return a pool from NAME, NAME=BYTES or NAME=BYTES,KEY=VALUE,..."""

    def wrong(why: str) -> UsageError:
        return UsageError(f"--pool {text}: {why}", hint="for instance: --pool dtcm=64KiB,for=tensors")

    first, *settings = text.split(",")
    name, equals, size = first.partition("=")
    if not name:
        raise wrong("the name is missing")
    match = re.fullmatch(r"(\d{1,10}) ?(?:([KM])(?:B|iB)?|B?)", size)
    count = int(match[1]) * {None: 1, "K": 1 << 10, "M": 1 << 20}[match[2]] if match else 0
    if equals and not 0 < count < 1 << 32:
        raise wrong(f"expected a size such as 65536 or 64KiB, found {size!r}")
    values: dict[str, str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in ("for", "waits", "align", "section") or not value:
            raise wrong(f"expected for=, waits=, align= or section=, found {setting!r}")
        if key in values:
            raise wrong(f"{key}= is set twice")
        values[key] = value
    use, waits, section = values.get("for", "all"), values.get("waits"), values.get("section", "")
    if use not in get_args(PoolUse):
        raise wrong(f"for={use}: expected one of {', '.join(get_args(PoolUse))}")
    if waits is not None and not re.fullmatch(r"\d{1,3}(\.\d{1,3})?", waits):
        raise wrong(f"waits={waits}: expected a number of cycles")
    align = values.get("align", str(LEAST_ALIGNMENT))
    alignment = int(align) if align.isascii() and align.isdecimal() and len(align) < 6 else 0
    if alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 14:
        raise wrong(f"align={align}: expected a power of two up to 16384")
    if fault := section_fault(section):
        raise wrong(f"section={section!r} is {fault}")
    return Pool(name, count, cast(PoolUse, use), None if waits is None else float(waits), alignment, section)


def _logs(paths: Sequence[str] | None) -> tuple[Path, ...]:
    """Return the paths of tuning logs."""
    if paths and not all(paths):
        raise UsageError("--tuned is empty", hint="give a tuning log or a folder of them: --tuned tuning.jsonl")
    return tuple(map(Path, paths or ()))


READERS: Mapping[str, checked.Reader] = {
    "dims": functools.partial(_sizes, option="--dim", example="batch=1"),
    "constants": _arrays,
    "maxima": functools.partial(_sizes, option="--max", example="selected=100"),
    "limits": functools.partial(_sizes, option="--limit", example="nodes=50000"),
    "states": _states,
    "state_values": _arrays,
    "slides": slides_of,
    "schedules": schedule_choices,
    "pools": lambda texts: tuple(map(_pool, texts or ())),
    "backends": lambda texts: tuple(map(parse_backend, texts or ())),
    "conventions": lambda texts: conventions(
        checked.value_of("conventions", texts[0] if len(texts) == 1 else texts, InterfaceApi)
    ),
    "template_options": functools.partial(_pairs, option="--option", example="opt=-O3"),
    "tuned": _logs,
}
"""The parsers of the fields of `Options` that may be text; each raises a UsageError."""
_MOST_STEPS = 255


@dataclass(frozen=True, slots=True)
class Options(Request):
    """The options of a model, its compilation and its project.

    Fields may be text as on the command line, one or a sequence: dims="batch=1", states="hn:h0=0.5", slides="x=1",
    schedules={"pw_2": "dsp_pointwise:unroll=16"}, pools=["dtcm=48KiB"], backends="cmsis_nn:path=DIR",
    conventions="packed" (the interface).

    template: a template's name or folder; empty: the board's first.
    template_options: values of the template's options, as text.
    edits: what to do about files in the project folder that were edited: "stop" with an error, "force" overwrites them,
        "keep" leaves them.
    trust_template: allow a template given by its path to load Python code (`_extensions`).
    tuned: tuning logs, or folders of them, to take schedules from; none: those in mtool.toml.
    link_key: the file of a link key, which becomes a template option.
    program: a user's own program, built as the standalone firmware; None: the template's.
    arenas: how the models of a firmware with several share their arenas.
    portable: on this computer, generate plain C loops without vectors, as for other cores: to read, or to compile
        elsewhere.
    single_file: write the model's C as one source and one header.
    """

    template: str = DEFAULTS["template"]
    template_options: Mapping[str, str] = field(default_factory=dict)
    edits: Edits = "stop"
    trust_template: bool = DEFAULTS["trust_template"]
    tuned: tuple[Path, ...] = ()
    link_key: Path | None = None
    program: "Program | None" = None
    arenas: Arenas = DEFAULTS["arena"]
    portable: bool = DEFAULTS["portable"]
    single_file: bool = DEFAULTS["single_file"]

    def __post_init__(self) -> None:
        """Check the values, and parse those that are text.

        Raises:
            UsageError: one has the wrong type, or is not one of the choices.
        """
        states = checked.texts_of(self.states)
        checked.fields(self, READERS)
        if states:
            values = _first_values(states)
            object.__setattr__(self, "state_values", {**values, **self.state_values})
        if self.link_key is not None:
            key = {link_key.OPTION: link_key.read(self.link_key).digits}
            object.__setattr__(self, "template_options", {**self.template_options, **key})
            object.__setattr__(self, "link_key", None)
        if self.program is not None:
            from mtool.project import Program

            checked.value_of("Options.program", self.program, Program)
        if self.name and model_name(self.name) != self.name:
            raise UsageError(f"name {self.name!r}: not a valid C name", hint=f"for instance: {model_name(self.name)}")
        if fault := section_fault(self.arena_section):
            raise UsageError(f"arena_section {self.arena_section!r}: {fault}", hint="for instance: .bss.dtcm")
        if not 0 <= self.tolerance <= _MOST_STEPS:
            raise UsageError(f"tolerance is out of range: {self.tolerance}", details=[f"expected 0 to {_MOST_STEPS}"])
        Request.__post_init__(self)

    def core_of(self, board: Board) -> Board:
        """Return the board to compile for: without vectors, if the C has to be portable."""
        return board.model_copy(update={"features": board.features - {"simd"}}) if self.portable else board

    def of_template(self, board: Board) -> Mapping[str, str]:
        """Return the values of the template's options; to optimize for size, the compiler's level is -Os by default."""
        from mtool import project

        name = self.template or next(iter(board.templates), "")
        if self.optimize != "size" or LEVEL in self.template_options or not name:
            return self.template_options
        level = project.load(name).options.get(LEVEL)
        return {**self.template_options, **({LEVEL: "-Os"} if level and "-Os" in level.choices else {})}


def protects(board: Board, options: Options) -> bool:
    """Return whether to protect memory: as the options say; else if firmware takes modules, and it is possible."""
    from mtool import project
    from mtool.project import loaded_modules

    modules = options.template_options.get(loaded_modules.MODULES, loaded_modules.NONE)
    if options.protect is not None or modules == loaded_modules.NONE:
        return bool(options.protect)
    unit, calls = unit_of(board.cpu), options.conventions
    reasons = {
        f"{board.cpu} has none that mtool knows": unit is None,
        "the template does not support it": unit is not None
        and not project.choose(board, options.template, options.template_options)[0].supports_protection(unit.label),
        "it can't be combined with --guard, --pool, --backend, --arena-section or --arena interleaved": bool(
            options.guard
            or options.pools
            or options.backends
            or options.arena_section
            or options.arenas == "interleaved"
        ),
        "it needs functions that are called directly": calls.has_functions
        or bool(calls.forms)
        or calls.executor != "aot",
    }
    for reason, is_there in reasons.items():
        if is_there:
            log.warning("modules run without memory protection: %s", reason)
            return False
    return True


def check_options(board: Board, options: Options, folder: Path | None = None) -> None:
    """Check options that do not depend on the model: the project's template and its options, the folder.

    Raises:
        UsageError: the template, or one of its options, is unknown, or the folder holds something else or can't be
            written to.
    """
    from mtool import project

    if options.template or board.templates:
        template, _ = project.choose(board, options.template, options.template_options)
        if options.protect:
            project.check_protection(template, board)
    if options.protect and options.arena_section:
        raise UsageError(
            "--arena-section and --protect can't be combined",
            details=["--arena-section needs a linker script of your own, --protect uses that of mtool's templates"],
            hint="leave out one of them",
        )
    if folder is not None:
        filetree.check_folder(folder, edits=options.edits)


def tuning_results_of(board: Board, options: Options, *, warns: bool = True) -> TuningResults:
    """Return the results of tuning: those in the options, else from the options' logs, else from those in mtool.toml.

    `warns`: whether to warn if the logs have nothing for the board.

    Raises:
        UsageError: a log is missing or malformed.
        BuildError: there are logs, and the compiler whose results are needed is not installed.
    """
    if options.tuning_results != TuningResults():
        return options.tuning_results
    return tuning_results_for(board, options.tuned, options.template, options.of_template(board), warns=warns)


def weights_of(board: Board, options: Options) -> Weights:
    """Return the form of constants: text if the project's builder compiles only C and C++, as Arduino's does."""
    from mtool import project

    template = options.template or next(iter(board.templates), "")
    return "text" if template and project.load(template).builder == "arduino" else options.weights


# Options from the command line's values, by their names in the table.


def parse(**values: Any) -> Options:
    """Return the options from the command line's values, by their names in the table.

    A missing value has its default.

    Raises:
        UsageError: a pair is not NAME=VALUE or OUT:IN, a size is not a positive number, a schedule is malformed, or the
            conventions can't be combined.
    """
    texts = {**{name: value for name, value in DEFAULTS.items() if name not in OF_DEPLOYMENT}, **values}
    names, arena, key = texts.pop("name"), texts["arena"], texts.pop("module_key")
    force, keep = texts.pop("force"), texts.pop("keep")
    if force and keep:
        raise UsageError("--force and --keep can't be combined")
    if names and len(names) > 1:
        raise UsageError(f"--name is set {len(names)} times for one model", hint="give it once for each model")
    if names and model_name(names[0]) != names[0]:
        raise UsageError(f"--name {names[0]}: not a valid C name", hint=f"for instance: --name {model_name(names[0])}")
    section, stream = texts["arena_section"], texts["stream"]
    if fault := section_fault(section):
        raise UsageError(f"--arena-section {section!r}: {fault}", hint="for instance: --arena-section .bss.dtcm")
    if section and arena == "caller":
        raise UsageError(
            "--arena-section and --arena caller can't be combined: there, the caller places the arena",
            hint="leave out one of them",
        )
    interface: InterfaceApi | None = texts.pop("interface_api")
    operators, executor = texts.pop("operators_api"), texts.pop("executor")
    if stream and interface not in (None, "feed"):
        raise UsageError(
            f"--stream {stream} needs <model>_feed, which --interface-api {interface} does not have",
            hint="leave out --interface-api",
        )
    first = _first_values(texts["state"])
    modules = module_options(texts.pop("modules"), key, unsigned=texts.pop("unsigned_modules"))
    fields = {OPTIONS[name].python_name: value for name, value in texts.items()}
    fields |= {name: READERS[name](value) for name, value in fields.items() if name in READERS}
    fields["template_options"] |= modules
    return Options(
        **fields,
        name=names[0] if names else "",
        state_values=first,
        conventions=conventions(
            interface or ("feed" if stream else "c"), operators, executor, context=arena == "caller"
        ),
        edits="force" if force else "keep" if keep else "stop",
    )


def module_options(modules: bool, key: Path | None, *, unsigned: bool = False) -> dict[str, str]:
    """Return the template options of firmware that takes modules.

    Raises:
        UsageError: the key can't be read, or an option needs `modules`.
    """
    if not modules:
        if key is not None or unsigned:
            raise UsageError(
                f"{'--module-key' if key is not None else '--unsigned-modules'} is for firmware that takes modules",
                hint="add --modules",
            )
        return {}
    from mtool.manifest.modules.keys import read_public
    from mtool.project import loaded_modules

    result = {loaded_modules.MODULES: loaded_modules.UNSIGNED if unsigned else loaded_modules.SIGNED}
    if key is not None:
        result[loaded_modules.KEY] = read_public(key).raw.hex()
    return result


def parse_changed(**values: Any) -> dict[str, Any]:
    """Return the values that differ from their defaults, after parsing them to report errors.

    Raises:
        UsageError: as `parse`.
    """
    parse(**values)
    return {name: value for name, value in values.items() if value and value != DEFAULTS[name]}
