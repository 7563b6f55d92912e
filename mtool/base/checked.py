"""Check values from Python code against their annotations. Errors name the value; text is read as on a command line.

`fields` is for dataclasses of options, `arguments` for functions. Readers turn text into values.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import numbers
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from mtool.base import spelling
from mtool.base.errors import MtoolError, UsageError
from mtool.base.option_table import LEAST_TIMEOUT_S, OF_DEPLOYMENT, OPTIONS

# The names that options of commands have in Python. Messages name an option as a command does (`--dim batch=1`).
#
# `in_python` writes it as code would (`dims="batch=1"`) in an error that the Python interface raises.


_OF_PYTHON = {  # options of single commands, and rows of the table with several fields
    "input": "inputs",
    "tls-ca": "Tls.ca",
    "tls-cert": "Tls.certificate",
    "tls-key": "Tls.key",
    "scheduler": "FarmAddress.scheduler",
    "metrics": "Scoring.metrics",
    "scores": "Scoring.output",
    **{name: name for name in ("board", "seed", "samples", "repeat", "number", "fill", "golden", "atol", "rtol")},
    **{name: name for name in ("key", "counter", "since", "labels", "evaluate", "runner", "insecure", "host")},
}
_ARGUMENTS = {
    **{
        option.flags[0].removeprefix("--"): f"Deployment.{option.python_name}"
        if option.name in OF_DEPLOYMENT and option.name not in ("output_dir", "timeout")
        else option.python_name
        for option in OPTIONS.values()
        if option.name != "timeout"
    },
    **_OF_PYTHON,
}
_WHOLE = {
    "force": 'edits="force"',
    "keep": 'edits="keep"',
    "modules": 'template_options={"modules": "signed"}',
    "module-key": 'template_options={"module_key": ...}',
    "unsigned-modules": 'template_options={"modules": "unsigned"}',
}
_SWITCHES = {option.flags[0].removeprefix("--") for option in OPTIONS.values() if option.kind is bool} | {"insecure"}

_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])\b(?: ('[^']*'|(?:[^\s,;)']|,(?=[a-z]+=))*[\w\"}\]]))?")
_COMMAND = re.compile(r"(?<![\w.])(mtool|pip|dask|west) [a-z-]+[^;]*")
_NAMES_OF_SEVERAL = re.compile(r"--name \S+(?: --name \S+)+")  # several models, each with its own options
_WORDS = (
    r"arena|external|never|always|caller|own|shared|interleaved|aot|graph|graph-host|c|pointers|packed|step|feed|typed|"
    r"values|onnx|tflite|speed|size|balanced|text|written"
)
_VALUE = re.compile(rf".*[=:\d./].*|[A-Z]+|{_WORDS}")


def in_python(error: MtoolError, parameters: Collection[str] = ()) -> None:
    """Name the options in an error as Python does; suggested commands stay as they are.

    Args:
        error: the error to change.
        parameters: the names of the function's own arguments, for options with the same names.
    """
    error.what = _written(error.what, parameters)
    error.details = tuple(_written(line, parameters) for line in error.details)
    error.hint = _written(error.hint, parameters)


def _written(text: str, parameters: Collection[str]) -> str:
    def argument(match: re.Match[str]) -> str:
        option, value = match[1], match[2]
        rest = f" {value}" if value else ""
        if option in _WHOLE:
            return _WHOLE[option] + rest
        argument_name = option.replace("-", "_")
        name = argument_name if argument_name in parameters else _ARGUMENTS.get(option)
        if name is None:
            return match[0]
        if option in _SWITCHES:
            return f"{name}=True{rest}"
        if value and _VALUE.fullmatch(value):
            colon = ":" if value.endswith(":") else ""
            return f'{name}="{value.removesuffix(":").strip(chr(39))}"{colon}'
        return name + rest

    def sentence(text: str) -> str:
        return _OPTION.sub(argument, _NAMES_OF_SEVERAL.sub(_of_each_model, text))

    parts, end = [], 0
    for command in _COMMAND.finditer(text):
        parts += [sentence(text[end : command.start()]), command[0]]
        end = command.end()
    return "".join([*parts, sentence(text[end:])])


def _of_each_model(match: re.Match[str]) -> str:
    options = [f'Options(name="{name}")' for name in match[0].split()[1::2]]
    return f"options=[{', '.join(options)}]"


Reader = Callable[[Sequence[str]], Any]
"""Reads texts, each as given to an option of a command."""
P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The values that a number may have: finite, from `least` to `most`."""

    least: float
    most: float = math.inf

    def holds(self, value: Any) -> bool:
        """Return whether a number is in the range."""
        return bool(self.least <= value <= self.most and value < math.inf)

    def __str__(self) -> str:
        return f"at least {self.least:g}" if self.most == math.inf else f"{self.least:,} to {self.most:,}"


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """The words that a text may be, where the annotation is `str` for its callers."""

    words: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """Return whether a text is one of them."""
        return value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


Count = Annotated[int, Range(1)]
"""A whole number of at least 1."""
Natural = Annotated[int, Range(0)]
"""A whole number that is not negative."""
NotNegative = Annotated[float, Range(0)]
"""A number that is not negative."""
Timeout = Annotated[float, Range(LEAST_TIMEOUT_S)]
"""The time limit of an inference in seconds."""


class _Wrong(Exception):
    pass


def fields(instance: Any, readers: Mapping[str, Reader]) -> None:
    """Check the fields of a dataclass, and convert those that were given as text.

    Raises:
        UsageError: a value has another type than its field, or is not one of the field's values.
    """
    owner = type(instance).__name__
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if value is field.default:
            continue
        converted = value_of(f"{owner}.{field.name}", value, field.type, readers.get(field.name))
        if converted is not value:
            object.__setattr__(instance, field.name, converted)


def arguments(function: Callable[P, R], readers: Mapping[str, Reader], names: dict[str, Any]) -> Callable[P, R]:
    """Return the function with checked arguments, and with errors in Python's terms.

    Args:
        function: the function to call.
        readers: the readers of arguments that may be text.
        names: names that annotations use besides those that the function's module imports.

    Raises:
        UsageError: an argument has another type than its parameter, or is not one of its values.
    """
    called = method(function, readers, names)
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def in_terms_of_python(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return called(*args, **kwargs)
        except MtoolError as error:
            in_python(error, parameters)
            raise

    return in_terms_of_python


def method(
    function: Callable[P, R], readers: Mapping[str, Reader] | None = None, names: dict[str, Any] | None = None
) -> Callable[P, R]:
    """Return a method with checked arguments; arrays are not checked, and errors are not reworded.

    Raises:
        UsageError: an argument has another type than its parameter, or is out of range.
    """
    signature = inspect.signature(function)
    hints = {name: param.annotation for name, param in signature.parameters.items()}
    for name, hint in hints.items():
        if isinstance(hint, str):
            hints[name] = eval(hint, inspect.unwrap(function).__globals__, names)  # text from our own source

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as wrong:
            unknown = [name for name in kwargs if name not in signature.parameters]
            takes = [name for name in signature.parameters if name != "self"]
            raise UsageError(
                f"{function.__name__}: {wrong}" if not unknown else f"{function.__name__} has no argument {unknown[0]}",
                details=[f"it takes {', '.join(takes)}"],
                hint=spelling.did_you_mean(unknown[0], takes) if unknown else "",
            ) from None
        for name, value in bound.arguments.items():
            param = signature.parameters[name]
            if name == "self" or value is param.default or param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
                continue
            bound.arguments[name] = value_of(name, value, hints.get(name, Any), (readers or {}).get(name))
        return function(*bound.args, **bound.kwargs)

    return checked


def value_of(name: str, value: Any, kind: Any, reader: Reader | None = None) -> Any:
    """Return a value converted to its annotation's type.

    Raises:
        UsageError: it has another type, or is not one of the allowed values.
    """
    try:
        return _converted(value, kind)
    except _Wrong:
        texts = None if reader is None else texts_of(value)
        if reader is not None and texts is not None and not any("\0" in text for text in texts):
            try:
                return reader(texts)
            except MtoolError as error:
                in_python(error)
                raise
    choices = [option for option in _options(kind) if isinstance(option, str)]
    hint = spelling.did_you_mean(value, choices) if choices and isinstance(value, str) else ""
    raise UsageError(f"{name} is {_shown(value)}", details=[f"expected {_named(kind)}"], hint=hint)


def _converted(value: Any, kind: Any) -> Any:
    if kind is Any or kind is object or isinstance(kind, (str, TypeVar)) or kind is inspect.Parameter.empty:
        return value
    kind = NoneType if kind is None else kind
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        converted = _converted(value, inner[0])
        return _require(all(check.holds(converted) for check in _checks(kind)), converted)
    if origin in (Union, UnionType):
        return value if _is_array_like(inner) else _first_of(value, inner)
    if origin is Literal:
        return _require(isinstance(value, str | int) and value in inner, value)
    if isinstance(kind, type) and kind in _PLAIN:
        _, is_right, convert = _PLAIN[kind]
        return convert(_require(is_right(value), value))
    if _is_array(kind):
        return _array(value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _require(isinstance(value, Mapping), value)
        return _same(value, {_converted(key, inner[0]): _converted(item, inner[1]) for key, item in value.items()})
    if isinstance(origin, type) and issubclass(origin, Sequence):
        _require(isinstance(value, Sequence) and not isinstance(value, str | bytes), value)
        if origin is tuple and inner[-1] is not ...:
            _require(len(value) == len(inner), value)
            return _same(value, tuple(_converted(item, of) for item, of in zip(value, inner, strict=True)))
        converted = [_converted(item, inner[0]) for item in value]
        return _same(value, tuple(converted) if origin is tuple or isinstance(value, tuple) else converted)
    if origin is not None:
        return _require(callable(value), value) if "Callable" in str(origin) else value
    return _require(isinstance(value, kind), value) if isinstance(kind, type) else value


def _checks(kind: Any) -> list[Range | OneOf]:
    return [check for check in get_args(kind)[1:] if isinstance(check, Range | OneOf)]


def _is_array_like(kinds: Sequence[Any]) -> bool:
    """Return whether a union is NumPy's `ArrayLike`, which the function converts itself."""
    return any(getattr(get_origin(kind) or kind, "__module__", "").startswith("numpy._typing") for kind in kinds)


def _first_of(value: Any, kinds: Sequence[Any]) -> Any:
    for kind in kinds:
        with contextlib.suppress(_Wrong):
            return _converted(value, kind)
    raise _Wrong


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_real(value: Any) -> bool:
    kind: Any = type(value)
    return kind is not bool and isinstance(value, numbers.Real) and not math.isnan(value)


_PLAIN: Mapping[Any, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    bool: ("True or False", lambda value: type(value).__name__ in ("bool", "bool_"), bool),  # NumPy's too
    int: ("a whole number", lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool), int),
    float: ("a number", _is_real, lambda value: value),
    str: ("a string", _is_text, lambda value: value),
    Path: (
        "a path",
        lambda value: isinstance(value, Path) or _is_text(value),
        lambda value: Path(value) if _is_text(value) else value,
    ),
    NoneType: ("None", lambda value: value is None, lambda value: value),
}
"""The plain types: what messages call a value, how one is recognized, and how it is converted."""


def _array(value: Any) -> Any:
    import numpy as np  # imported only by commands that need arrays

    if isinstance(value, np.ndarray):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        raise _Wrong from None
    _require(array.dtype.kind in "biuf", value)
    return array


def _is_array(kind: Any) -> bool:
    return getattr(get_origin(kind) or kind, "__name__", "") == "ndarray"


def _require(is_right: bool, value: Any) -> Any:
    if not is_right:
        raise _Wrong
    return value


def _same(value: Any, converted: Any) -> Any:
    """Return the original container if nothing in it has changed."""
    old, new = (list(items.values()) if isinstance(items, Mapping) else list(items) for items in (value, converted))
    is_same = isinstance(value, type(converted)) and all(a is b for a, b in zip(old, new, strict=True))
    return value if is_same else converted


def texts_of(value: Any) -> list[str] | None:
    """Return the texts that a value was given as; None: it was not given as text."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping) and value and all(isinstance(item, str) for pair in value.items() for item in pair):
        return [f"{name}={item}" for name, item in value.items()]
    if isinstance(value, Sequence) and value and all(isinstance(item, str) for item in value):
        return list(value)
    return None


def _options(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if isinstance(kind, OneOf):
        return list(kind.words)
    return [option for inner in get_args(kind) for option in _options(inner)]


def _named(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return ", ".join([_named(inner[0]), *map(str, _checks(kind))])
    if _is_array(kind) or (origin in (Union, UnionType) and _is_array_like(inner)):
        return "an array of numbers"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_named(kind) for kind in inner))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of {_named(inner[0])} to {_named(inner[1])}"
    if origin is tuple and inner[-1] is not ...:
        return f"a tuple of {', '.join(map(_named, inner))}"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"a sequence, each {_named(inner[0])}"
    if origin is not None:
        return "a function"
    if isinstance(kind, type) and kind in _PLAIN:
        return _PLAIN[kind][0]
    return "anything" if kind is Any else str(getattr(kind, "__name__", kind))


def _shown(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:  # the caller's class may raise anything
        shown = ""
    return shown if 0 < len(shown) <= 60 and "\n" not in shown else f"of type {type(value).__name__}"
