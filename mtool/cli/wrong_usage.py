"""What the parser of the command line says of wrong options and values, in the form of every other error."""

import re
from typing import Any

from typer.exceptions import TyperException

from mtool import spelling
from mtool.errors import UsageError

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
    page = f"see: {context.command_path if context is not None else 'mtool'} --help"
    message = wrong.format_message().strip().removesuffix(".")
    meant = list(getattr(wrong, "possibilities", None) or ())
    if meant:
        message = message.partition(" (")[0]
        hint = f"did you mean {meant[0]}? {page}"
    elif found := re.search(r"(.*)\. Did you mean '(\S+)'\?", message):
        message, hint = found[1], f"did you mean {found[2]}? {page}"
    else:
        hint = page
    what = message[:1].lower() + message[1:]
    invalid = re.match(r"invalid value for ('\S+'|.*?): ", what)
    refused: list[Any] = getattr(wrong.__cause__, "errors", list)()
    if invalid is None or not refused:
        return UsageError(what, hint=hint)
    where, given, reason = invalid[0], str(refused[0]["input"]), refused[0]["msg"].removesuffix(".")
    allowed = re.findall(r"'([^']*)'", reason.partition(" is not one of ")[2])
    if allowed:
        return UsageError(
            f"{where}{given!r} is not one of {', '.join(allowed)}",
            hint=spelling.did_you_mean(given, allowed, otherwise=page),
        )
    expected = reason.removeprefix("Value error, ").partition(", unable")[0]
    for theirs, ours in _WORDS.items():
        expected = expected.replace(theirs, ours)
    return UsageError(f"{where}{expected}, found {given!r}", hint=page)
