"""Commands with several models, which share one firmware."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from mtool.base import plural
from mtool.base.errors import MismatchError, UsageError
from mtool.base.identifiers import model_name
from mtool.cli.output import Output

if TYPE_CHECKING:
    import typer

    from mtool.commands import Deployment, Options
    from mtool.commands.user_project import UserProject

_OF = "@"  # NAME@ before an option's value restricts it to that model
_BY_NAMES = {key: key for key in ("dim", "const", "limit", "state", "slide", "schedule")} | {"maxima": "max"}
_MARKS = frozenset("=:/")  # if one of these comes first, the @ is part of a value or a path
_ONE_MODEL = ("debug",)
OF_ONE_MODEL = ("input", "golden", "function")
"""Options whose value is for one model: with several models, NAME@VALUE gives the value for each."""
_ONE_VALUE = {"arena_section": "arena-section", "stream": "stream"}
"""Options that take one value for each model: with several models, NAME@VALUE gives the value for each."""
_WRITTEN = ("output", "dump")  # files written for each model


def options(values: Mapping[str, Any], paths: Sequence[Path]) -> "tuple[Options, ...]":
    """Return each model's options, from those on the command line.

    Args:
        values: the values of the options. In a list, a value that begins with a model's name and @ is for that
            model only.
        paths: the models; empty: no model was given, and the options are for one all the same.

    Raises:
        UsageError: a model does not exist, or only some models have a --name; or as `parse`.
    """
    from mtool.stages.options import parse

    names = list(values.get("name") or ())
    if len(paths) < 2:
        return (parse(**_with_one_value(values, "one model")),)
    for path in paths:
        if not path.is_file():
            raise UsageError(
                f"there is no file {path}", hint="give a board with --board, and put names with spaces in quotes"
            )
    if names and len(names) != len(paths):
        raise UsageError(
            f"--name is given {_times(len(names))} for {plural.count(len(paths), 'model')}",
            hint="give it once for each, in order: " + " ".join(f"--name {model_name(path.stem)}" for path in paths),
        )
    names = names or [model_name(path.stem) for path in paths]
    for key, option in _BY_NAMES.items():
        _check_models(option, values.get(key) or (), names)
    raws = [{key: _value_for(value, name, names) for key, value in values.items()} for name in names]
    return tuple(parse(**{**_with_one_value(raw, name), "name": [name]}) for raw, name in zip(raws, names, strict=True))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _check_models(option: str, values: Sequence[str], names: Sequence[str]) -> None:
    """Refuse values for an unknown model: those that begin with another name and @, before any other mark.

    Raises:
        UsageError: there is such a value.
    """
    for value in values:
        of, mark, rest = value.partition(_OF)
        if mark and of not in names and not set(of) & _MARKS:
            raise UsageError(
                f"--{option} {value}: unknown model {of}",
                details=[f"models: {', '.join(names)}"],
                hint=f"name a model: --{option} {names[0]}{_OF}{rest}; or, if the value contains an @,"
                f" --{option} {names[0]}{_OF}{value}",
            )


def _value_for(value: Any, name: str, names: Sequence[str]) -> Any:
    """Return an option's value for the model with this name."""
    if isinstance(value, str):  # from a project's mtool.toml, where it is given once
        of, mark, rest = value.partition(_OF)
        return value if not mark or of not in names else rest if of == name else ""
    if not isinstance(value, list):
        return value
    pairs = [text.partition(_OF) if isinstance(text, str) else ("", "", text) for text in value]
    result = []
    for text, (of, mark, rest) in zip(value, pairs, strict=True):
        if not mark or of not in names:
            result.append(text)
        elif of == name:
            result.append(rest)
    return result


def _with_one_value(values: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return the values of a model's options, one value instead of a list for options that take one.

    Raises:
        UsageError: such an option is given several times.
    """
    result = dict(values)
    for key in _ONE_VALUE.keys() & values.keys():
        if not isinstance(values[key], str):
            result[key] = of_the_only(_ONE_VALUE[key], values[key] or [""], model)
    return result


def once_for_each(parameters: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return the annotations and defaults of options for a command that takes several models."""
    return {
        name: (repeated(annotation), None) if name in _ONE_VALUE else (annotation, default)
        for name, (annotation, default) in parameters.items()
    }


def repeated(annotation: Any) -> Any:
    """Return the annotation of an option that may be repeated, from that of one that may not."""
    value, *of_option = get_args(annotation)
    (single,) = [kind for kind in get_args(value) or (value,) if kind is not type(None)]
    return Annotated[(list[single] | None, *of_option)]  # type: ignore[valid-type]


def of_the_only(option: str, values: Sequence[Any], model: str = "one model") -> Any:
    """Return the value for one model of an option that may be repeated.

    Raises:
        UsageError: it is given several times.
    """
    if len(values) > 1:
        raise UsageError(f"--{option} is given {_times(len(values))} for {model}", hint="give it once")
    return values[0]


def _of_model(arguments: Mapping[str, Any], model: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the values, for the model with this name, of options that are for one model."""
    result: dict[str, Any] = {}
    for option in OF_ONE_MODEL:
        values = arguments.get(option) or []
        parts = [str(value).partition(_OF) for value in values]
        for value, (name, mark, _) in zip(values, parts, strict=True):
            if not mark or name not in names:
                raise UsageError(
                    f"--{option} {value} is for one model, and there are {len(names)}",
                    hint=f"name the model: --{option} {names[0]}{_OF}{value}",
                )
        matching = [type(value)(rest) for value, (name, _, rest) in zip(values, parts, strict=True) if name == model]
        if len(matching) > 1:
            raise UsageError(f"--{option} {model}{_OF} is given {_times(len(matching))}", hint="give it once")
        if matching:
            result[option] = matching[0]
    for option in _WRITTEN:
        path = arguments.get(option)
        if path is not None:
            result[option] = path.with_name(f"{path.stem}-{model}{path.suffix}")
    return result


def for_each(command: Callable[..., None], output: Output, arguments: Mapping[str, Any]) -> None:
    """Compile the models for one firmware, unless a device has one already; run a command for each of them on it.

    Raises:
        UsageError: an option that is for one model is given.
        MismatchError: the outputs of some models differ; all models were compared.
        MtoolError: as the command.
    """
    from mtool.stages.job import own_firmware

    names = [options.name for options in arguments["options"]]
    if command.__name__ in _ONE_MODEL:
        raise UsageError(
            f"mtool {command.__name__} takes one model, and there are {len(names)}",
            hint=f"build the firmware, and name one of its models: mtool {command.__name__} PROJECT --name {names[0]}",
        )
    of_each = [_of_model(arguments, name, names) for name in names]
    deployment = arguments["deployment"]
    on = arguments.get("on") or ("on" in arguments and own_firmware(arguments["model"][0], deployment)) or None
    if on is None:
        deployment = deployment.with_models(arguments["model"], board=arguments["board"], options=arguments["options"])
    firmware = {"deployment": deployment} | ({"on": on} if "on" in arguments else {})
    results, differing = [], dict[str, MismatchError]()
    of_all = {name: value for name, value in arguments.items() if name not in OF_ONE_MODEL}
    for name, path, options, values in zip(names, arguments["model"], arguments["options"], of_each, strict=True):
        part = output.part()
        output.text("", f"{name}:")
        try:
            command(part, **{**of_all, **firmware, "model": path, "options": options, **values})
        except MismatchError as differs:
            differing[name] = differs
        results.append({"name": name, **part.values})
    more = _urgent(output, deployment) if command.__name__ == "bench" and on is None else {}
    output.result({"models": results, **more})
    if differing:
        details = [line for name, error in differing.items() for line in (f"{name}: {error.what}", *error.details)]
        hint = next((error.hint for error in differing.values() if error.hint), "")
        of_all_models = f"{len(differing)} of {plural.count(len(names), 'model')}"
        raise MismatchError(f"{of_all_models} differ: {', '.join(differing)}", details=details, hint=hint)


def _urgent(output: Output, deployment: "Deployment") -> dict[str, Any]:
    """Print the worst latency of the first model, where the others run operator by operator."""
    from mtool.commands.cost import kinds_to_measure, worst_latency

    model = deployment.models[0]
    if any(model.options.conventions.interface != "step" for model in deployment.models):
        return {}
    latency = worst_latency(deployment.build(model, kinds=kinds_to_measure(model)), deployment)
    output.text("", latency.describe())
    return {"urgent": latency.as_json()}


# Commands in a user's own project: its `mtool.toml` supplies what the command line leaves out.


def filled(
    values: Mapping[str, Any], context: "typer.Context", key: str, *, needs_board: bool
) -> "tuple[dict[str, Any], UserProject | None]":
    """Return a command's values completed by the project that it is run in, and the project.

    If a model is given on the command line, the project is ignored and None is returned for it.

    Args:
        values: the parameters of the command by name.
        context: the command's; it has which of them were given on the command line.
        key: the name of the parameter for the models.
        needs_board: the command has no default board.

    Raises:
        UsageError: no model is given and the working folder is not in a project, or a board is missing.
    """
    result, command = dict(values), context.info_name
    if result.get("list_options"):  # a template's options do not depend on the model
        return result, None
    if result[key]:
        if needs_board and not result["board"]:
            raise UsageError("missing option '--board' / '-b'", hint=f"see: mtool {command} --help")
        return result, None
    from mtool.commands import user_project

    project = user_project.find()
    if project is None:
        argument = next(getattr(param, "metavar", "MODEL") for param in context.command.params if param.name == key)
        raise UsageError(
            f"missing argument '{argument}'", hint=f"see: mtool {command} --help; or cd into a project (mtool new)"
        )
    project.check_model()
    typed = {name for name in values if (source := context.get_parameter_source(name)) and source.name != "DEFAULT"}
    board = result["board"] if "board" in typed else project.board
    defaults = {name: value for name, value in project.values_for(board).items() if name in result}
    if "output_dir" in result:  # relative to the working folder
        folder, here = project.folder_for(board), Path.cwd()
        defaults["output_dir"] = folder.relative_to(here) if folder.is_relative_to(here) else folder
    result |= {name: value for name, value in defaults.items() if name not in typed}
    return result | {key: [project.model], "board": board}, project
