"""Base class of records that are read from files, and pydantic's errors in mtool's words."""

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


class Strict(BaseModel):
    """A record that refuses unknown keys and can't be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "there is no such key",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected a string",
    "dict_type": "expected a mapping",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
}


def said(error: ErrorDetails) -> str:
    """Return the error's message, without its location."""
    words = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return _WORDS.get(error["type"]) or words


def lines(invalid: ValidationError, most: int | None = None, said: Callable[[ErrorDetails], str] = said) -> list[str]:
    """Return a line for each error, at most `most`: its location and the message."""
    errors = invalid.errors()[:most]
    return [": ".join(filter(None, (".".join(map(str, error["loc"])), said(error)))) for error in errors]
