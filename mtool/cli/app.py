"""The application: its commands, the options that all have, and how a command ends."""

import contextlib
import functools
import importlib
import inspect
import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.exceptions import TyperException

from mtool.base import locks, option_table, spelling
from mtool.base.errors import MtoolError, UsageError, of_os_error
from mtool.base.escaping import argument
from mtool.base.plural import count
from mtool.cli import several
from mtool.cli.ending import INTERRUPTED, ReaderGone
from mtool.cli.output import Output, written
from mtool.cli.parameters import FirmwareOptions, OptionGroup, ProjectOptions, annotation_of
from mtool.version import __version__

# A command whose help lists its options in groups: its own first, then those of each panel.


LIST = "--options"
"""The option of commands that lists the options of a template."""
ALL = "--help-all"
"""The option of commands that shows every option, --help those that are not rare."""
_OWN = "Options"
OF_EVERY_COMMAND = "Every command"
"""The heading of the options that every command has."""


class GroupedCommand(TyperCommand):
    """A command that lists options by group. With --options (list a template's options), nothing else is required.

    Attributes:
        rare: the names of the parameters that only --help-all shows.
    """

    rare: frozenset[str] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        if any(LIST in parameter.opts for parameter in self.params) and LIST in args:
            for parameter in self.params:
                parameter.required = False
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name."""
        pieces = ["[OPTIONS]"]
        for param in self.params:
            if isinstance(param, TyperArgument):
                written = str(param.metavar)
                pieces.append(written if param.required or written.startswith("[") else f"[{written}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for the arguments and one for each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], _OWN: []}
        rare = frozenset[str]() if ctx.meta.get(ALL) else self.rare
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or parameter.name in rare:
                continue
            name = str(getattr(parameter, "rich_help_panel", None) or _OWN)
            if isinstance(parameter, TyperArgument):
                name = "Arguments"
            elif "--help" in parameter.opts:
                name = OF_EVERY_COMMAND
            groups.setdefault(name, []).append((re.sub(r" <(str|[pP]ath|list\[\w+\])>$", "", record[0]), record[1]))
        groups[OF_EVERY_COMMAND] = groups.pop(OF_EVERY_COMMAND, [])
        for name, rows in groups.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
        if rare:
            formatter.write_paragraph()
            formatter.write(f"{count(len(rare), 'more option')}: {ctx.command_path} {ALL}\n")


# The command-line parser's errors about options and values, in the form of every other error.


_MODELS = (".onnx", ".tflite")


def usage_error(wrong: TyperException) -> UsageError:
    """Return the error: what is wrong, what was expected, and the likely name or the help page to read."""
    context = getattr(wrong, "ctx", None)
    command = context.command_path if context is not None else "mtool"
    page = f"see: {command} --help"
    message = wrong.format_message().strip().removesuffix(".")
    meant = list(getattr(wrong, "possibilities", None) or ())
    if meant:
        message = message.partition(" (")[0]
        hint = f"did you mean {meant[0]}? {page}"
    elif match := re.search(r"(.*)\. Did you mean '(\S+)'\?", message):
        message, hint = match[1], f"did you mean {match[2]}? {page}"
    else:
        hint = _correction(message) or page
        if command == "mtool" and message.startswith("No such option"):
            hint = f"put a command's options after the command; {page}"
    what = message[:1].lower() + message[1:]
    if what.startswith("got unexpected extra argument"):
        hint = f"give the board with --board, and put names with spaces in quotes; {page}"
    invalid = re.match(r"invalid value for ('\S+'|.*?): ", what)
    errors: list[Any] = getattr(wrong.__cause__, "errors", list)()
    if invalid is None or not errors:
        return UsageError(what, hint=hint)
    where, value, reason = invalid[0], str(errors[0]["input"]), errors[0]["msg"].removesuffix(".")
    allowed = re.findall(r"'([^']*)'", reason.partition(" is not one of ")[2])
    if allowed:
        return UsageError(
            f"{where}{value!r} is not one of {', '.join(allowed)}",
            hint=spelling.did_you_mean(value, allowed, otherwise=page),
        )
    from mtool.base import records

    return UsageError(f"{where}{records.message(errors[0])}", hint=page)


def _correction(message: str) -> str:
    """Return a hint for a word that is not a command: a model's path, or "help"."""
    if (name := re.fullmatch(r"No such command '(.*)'", message)) is not None:
        if name[1].endswith(_MODELS):
            return f"a command comes first: mtool run {argument(name[1])}"
        return "did you mean mtool --help?" if name[1] == "help" else ""
    return ""


COMMANDS: Mapping[str, str] = option_table.COMMANDS
"""Each command with the first line of its docstring: `--help` shows these, without loading the commands.

The command is the function of that name in the module of that name, or of `_MODULES`.
"""

_MODULES = {
    **dict.fromkeys(("new", "update", "generate", "build", "compile", "partition"), "project"),
    **dict.fromkeys(("key", "load"), "module"),
    "record": "replay",
}
HELP = """Put an ONNX or TFLite model on a microcontroller.

Results go to stdout, progress to stderr.

Exit codes: 0 ok, 1 internal error, 2 usage, 3 model unsupported, 4 does not fit, 5 toolchain or build,
6 no or ambiguous board, 7 flash, 8 communication, 9 numeric mismatch, 10 device fault, 129 SIGHUP, 130 Ctrl-C,
143 SIGTERM.
"""
_VERSION = "--version"
_BOARDS = "MTOOL_BOARDS"  # mtool.boards reads it, but loading that takes too long for --help
_common_option = functools.partial(typer.Option, rich_help_panel=OF_EVERY_COMMAND)
BoardFiles = Annotated[
    list[str] | None,
    _common_option(
        "--boards", metavar="FILE|DIR", help="Also use the boards in this file (docs/add-a-board.md); may be repeated."
    ),
]
AsJson = Annotated[bool, _common_option("--json", help="Print the result as JSON.")]
Verbose = Annotated[
    int, _common_option("--verbose", "-v", count=True, show_default=False, help="Print more; -vv shows tracebacks.")
]
Quiet = Annotated[bool, _common_option("--quiet", "-q", help="Print only results and errors.")]


def _print_all_options(context: typer.Context, is_requested: bool) -> None:
    if is_requested:
        context.meta[ALL] = True
        sys.stdout.write(context.get_help() + "\n")
        raise typer.Exit


HelpAll = Annotated[
    bool,
    _common_option(ALL, callback=_print_all_options, is_eager=True, help="Show every option and exit."),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `mtool` with the arguments (default: the process's) and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no "█" gets "?"
    sys.exit(invoke(sys.argv[1:] if arguments is None else arguments))


def invoke(arguments: Sequence[str]) -> int:
    """Run `mtool` with the arguments and return its exit code."""
    before = Output("mtool", as_json="--json" in arguments)  # used until the command has parsed its own options
    if sys.stdout is None:
        before.error(UsageError("standard output is closed", hint="send it to /dev/null instead: >/dev/null"))
        return UsageError.exit_code
    try:
        with written():
            code = _application()(list(arguments), prog_name="mtool", standalone_mode=False)
            sys.stdout.flush()  # the help
        return code if isinstance(code, int) else 0
    except TyperException as wrong:
        before.error(usage_error(wrong))
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except ReaderGone:
        return 0
    except SystemExit as ended:  # typer's, with code 1, if the reader of the help has closed standard output
        if isinstance(ended.__context__, BrokenPipeError):
            return 0
        raise
    except MtoolError as error:
        before.error(error)
        return error.exit_code


def load(name: str) -> Callable[..., None]:
    """Import a command's module and return the command."""
    command: Callable[..., None] = getattr(importlib.import_module(module_of(name)), name)
    return command


def module_of(name: str) -> str:
    """Return the name of the module that a command is in."""
    return f"mtool.cli.{_MODULES.get(name, name)}"


class _Commands(TyperGroup):
    """The commands by name and summary; a command's module is imported when it is run or its options are needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in COMMANDS.items():
            self.add_command(TyperCommand(name, help=summary))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command; --version is not an option of a command."""
        options = list(itertools.takewhile(lambda text: text.startswith("-"), args))
        if _VERSION in options and len(options) < len(args):
            follows = args[len(options)]
            raise UsageError(f"{_VERSION} can't be combined with {follows!r}", hint="leave one of them out")
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, TyperCommand | None, list[str]]:
        """Return the command that the arguments name, loaded, and the remaining arguments."""
        name, named, rest = super().resolve_command(ctx, args)
        return name, None if named is None or name is None else command_of(name), rest


def _application() -> Callable[..., Any]:
    app = _typer(cls=_Commands, help=HELP, add_completion=True)
    app.callback(invoke_without_command=True, help=HELP)(_global_options)
    return app


def command_of(name: str) -> TyperCommand:
    """Import a command's module and return the command with its options."""
    app = _typer(add_completion=False)
    command_class = getattr(importlib.import_module(module_of(name)), "COMMAND_CLASS", GroupedCommand)
    function, rare = _with_output(load(name))
    app.command(cls=command_class)(function)
    command = typer.main.get_command(app)
    assert isinstance(command, GroupedCommand)
    command.rare = rare
    return command


def _typer(**settings: Any) -> typer.Typer:
    return typer.Typer(
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


def _print_version(is_requested: bool) -> None:
    if is_requested:
        Output("mtool").line(f"mtool {__version__}")
        raise typer.Exit


def _global_options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option(_VERSION, callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    context.obj = (as_json, verbose, quiet)  # these may be given before the command or after it
    if context.invoked_subcommand is None:
        sys.stderr.write(context.get_help() + "\n")
        raise typer.Exit(UsageError.exit_code)


def _with_output(command: Callable[..., None]) -> tuple[Callable[..., None], frozenset[str]]:
    """Give a command the options --json, -v and -q in place of its first parameter, an Output.

    A parameter that is an `OptionGroup` stands for several options. Also return the names of those that are rare.
    """
    first, *parameters = inspect.signature(command).parameters.values()
    assert first.annotation is Output, f"{command.__name__} must take an Output first"
    of_a_project = any(parameter.annotation in (ProjectOptions, FirmwareOptions) for parameter in parameters)
    key = "models" if any(parameter.name == "models" for parameter in parameters) else "model"
    is_repeated = of_a_project and any(parameter.name == "deployment" for parameter in parameters)
    needs_board = any(parameter.name == "board" and parameter.default is parameter.empty for parameter in parameters)
    common: dict[str, tuple[Any, Any]] = {
        "context": (typer.Context, inspect.Parameter.empty),
        "as_json": (AsJson, False),
        "verbose": (Verbose, 0),
        "quiet": (Quiet, False),
        "board_files": (BoardFiles, None),
        "help_all": (HelpAll, False),
    }

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        context, as_json, verbose, quiet, board_files, _ = (values.pop(name) for name in common)
        json_before, verbose_before, quiet_before = context.obj
        verbosity = -1 if quiet or quiet_before else verbose + verbose_before
        output = Output(command.__name__, as_json=as_json or json_before, verbosity=verbosity)

        @locks.keep_locks()
        def act() -> None:
            args, project = values, None
            if of_a_project:
                args, project = several.filled(values, context, key, needs_board=needs_board)
            folder = args.get("output_dir")
            paths = args.get(key) or []
            paths = paths if isinstance(paths, list) else [paths]
            for name, group in groups.items():
                raw = {option: args.pop(option) for option in group.parameters}
                args[name] = several.options(raw, paths) if group.of_models else group.read(raw)
            if project is not None:
                folder = folder or project.folder_for(args["board"])
                args["options"] = tuple(project.with_program(part, args["board"], folder) for part in args["options"])
            if key == "models":
                command(output, **{**args, key: paths})
            elif len(paths) > 1:
                several.for_each(command, output, args)
            else:
                one_of = {name: args[name][0] for name, group in groups.items() if group.of_models}
                one_of |= {name: several.of_the_only(name, args[name] or [default]) for name, default in of_one.items()}
                command(output, **{**args, **({key: paths[0]} if paths else {}), **one_of})

        with _boards_known(board_files or ()):
            raise typer.Exit(_end(output, act))

    groups: dict[str, OptionGroup] = {}
    of_one = {param.name: param.default for param in parameters if is_repeated and param.name in several.OF_ONE_MODEL}
    declared: dict[str, tuple[Any, Any]] = {}
    rare: set[str] = set()
    for parameter in parameters:
        metadata = getattr(parameter.annotation, "__metadata__", ())
        group = next((item for item in metadata if isinstance(item, OptionGroup)), None)
        if group is not None:
            groups[parameter.name] = group
            rare |= group.rare
            declared |= several.once_for_each(group.parameters) if group.of_models else group.parameters
        else:
            may_lack = of_a_project and parameter.name in (key, "board") and parameter.default is parameter.empty
            default = None if may_lack else parameter.default
            is_model = is_repeated and parameter.name == "model"
            row = option_table.of_command(command.__name__, "models" if is_model else parameter.name)
            annotation = annotation_of(row, list[Path] if is_model else parameter.annotation)
            if parameter.name in of_one:
                annotation, default = several.repeated(annotation), None
            declared[parameter.name] = annotation, default
            rare |= {parameter.name} if row.is_rare_in(command.__name__) else set()
    declared |= common
    # typer reads a command's options from its signature.
    wrapped.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, (annotation, default) in declared.items()
        ]
    )
    wrapped.__annotations__ = {name: annotation for name, (annotation, _) in declared.items()}
    return wrapped, frozenset(rare)


@contextlib.contextmanager
def _boards_known(paths: Sequence[str]) -> Iterator[None]:
    """Add board files to MTOOL_BOARDS while the block runs, so that child processes find them too."""
    before = os.environ.get(_BOARDS)
    if paths:
        os.environ[_BOARDS] = os.pathsep.join([*filter(None, [before]), *(os.path.abspath(path) for path in paths)])  # noqa: PTH100
    try:
        yield
    finally:
        if paths and before is None:
            del os.environ[_BOARDS]
        elif before is not None:
            os.environ[_BOARDS] = before


def _end(output: Output, action: Callable[[], None]) -> int:
    """Run a command's action and return its exit code; all errors are reported in the same form."""
    with output.logging():
        try:
            action()
            return 0
        except (KeyboardInterrupt, ReaderGone, typer.Exit):
            raise
        except Exception as failed:
            output.trace()
            error = _error_of(failed, verbosity=output.verbosity)
            output.error(error)
            return error.exit_code


def _error_of(failed: Exception, *, verbosity: int) -> MtoolError:
    """Return the error to report; an unexpected exception becomes an internal error."""
    match failed:
        case MtoolError():
            return failed
        case OSError():
            return of_os_error(failed)
        case MemoryError():
            return UsageError("out of memory", hint="free some, or raise ulimit -v")
    hint = "" if verbosity >= 2 else "run it again with -vv for the traceback, and please report it"
    return MtoolError(f"internal error: {type(failed).__name__}: {failed}", hint=hint)
