"""What pydantic finds wrong with a file's entries, in mtool's words: the key, and what was expected."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "there is no such key",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected a text",
    "dict_type": "expected a mapping",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
}


def lines(invalid: ValidationError, most: int | None = None) -> list[str]:
    """Return what is wrong, a line each, at most so many."""
    return [": ".join(filter(None, (place(error), said(error)))) for error in invalid.errors()[:most]]


def place(error: ErrorDetails) -> str:
    """Return where it is: the keys that lead there."""
    return ".".join(map(str, error["loc"]))


def said(error: ErrorDetails) -> str:
    """Return what is wrong."""
    return _WORDS.get(error["type"]) or error["msg"].removeprefix("Value error, ").replace(
        "Input should be", "expected"
    )
