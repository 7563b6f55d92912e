"""What the parser of the command line says of wrong options and values, in the form of every other error."""

import re
from typing import Any

from typer.exceptions import TyperException

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.base.escaping import argument

_MODELS = (".onnx", ".tflite")
_WORDS = {  # pydantic's, and ours
    "Input should be greater than or equal to": "expected at least",
    "Input should be less than or equal to": "expected at most",
    "Input should be a valid integer": "expected a whole number",
    "Input should be a valid": "expected a",
    "Input should be": "expected",
}


def usage_error(wrong: TyperException) -> UsageError:
    """Return the error: what is wrong, what was expected, and the name that was meant or where to read on."""
    context = getattr(wrong, "ctx", None)
    command = context.command_path if context is not None else "mtool"
    page = f"see: {command} --help"
    message = wrong.format_message().strip().removesuffix(".")
    meant = list(getattr(wrong, "possibilities", None) or ())
    if meant:
        message = message.partition(" (")[0]
        hint = f"did you mean {meant[0]}? {page}"
    elif found := re.search(r"(.*)\. Did you mean '(\S+)'\?", message):
        message, hint = found[1], f"did you mean {found[2]}? {page}"
    else:
        hint = _meant(message) or page
        if command == "mtool" and message.startswith("No such option"):
            hint = f"options of a command come behind it; {page}"
    what = message[:1].lower() + message[1:]
    if what.startswith("got unexpected extra argument"):
        hint = f"a board stands behind --board, and names with blanks in quotes; {page}"
    invalid = re.match(r"invalid value for ('\S+'|.*?): ", what)
    refused: list[Any] = getattr(wrong.__cause__, "errors", list)()
    if invalid is None or not refused:
        return UsageError(what, hint=hint)
    where, value, reason = invalid[0], str(refused[0]["input"]), refused[0]["msg"].removesuffix(".")
    allowed = re.findall(r"'([^']*)'", reason.partition(" is not one of ")[2])
    if allowed:
        return UsageError(
            f"{where}{value!r} is not one of {', '.join(allowed)}",
            hint=spelling.did_you_mean(value, allowed, otherwise=page),
        )
    expected = reason.removeprefix("Value error, ").partition(", unable")[0]
    for theirs, ours in _WORDS.items():
        expected = expected.replace(theirs, ours)
    return UsageError(f"{where}{expected}, found {value!r}", hint=page)


def _meant(message: str) -> str:
    """Return what to type instead of what begins with no command: a model's path, an option of commands, "help"."""
    if (name := re.fullmatch(r"No such command '(.*)'", message)) is not None:
        if name[1].endswith(_MODELS):
            return f"a command comes first: mtool run {argument(name[1])}"
        return "did you mean mtool --help?" if name[1] == "help" else ""
    return ""
