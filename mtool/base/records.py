"""Base class of records that are read from files, and pydantic's errors in mtool's words."""

from collections.abc import Collection
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from mtool.base import spelling
from mtool.base.errors import UsageError


class Strict(BaseModel):
    """A record that refuses unknown keys and can't be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_EXPECTED = {
    "int_type int_parsing int_from_float": "a whole number",
    "float_type float_parsing": "a number",
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "bool_type bool_parsing": "true or false",
    "string_type": "a string",
    "string_pattern_mismatch": "text of the form {pattern}",
    "string_too_short too_short": "a length of at least {min_length}",
    "string_too_long too_long": "a length of at most {max_length}",
    "literal_error enum": "{expected}",
    "dict_type model_type": "a mapping",
    "list_type tuple_type set_type frozen_set_type": "a list",
}
_OF_TYPE = {kind: words for types, words in _EXPECTED.items() for kind in types.split()}
_LONGEST = 60  # characters of a value


def message(error: ErrorDetails, keys: Collection[str] = ()) -> str:
    """Return an error's message without its location: what was expected and found; `keys`: the keys that exist."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        hint = spelling.did_you_mean(str(error["loc"][-1]), keys, otherwise=f"available: {', '.join(keys)}")
        return "there is no such key" + (f"; {hint}" if keys else "")
    if kind not in _OF_TYPE:
        return error["msg"].removeprefix("Value error, ")
    limits = {
        key: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for key, limit in error.get("ctx", {}).items()
    }
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
    return f"expected {_OF_TYPE[kind].format(**limits)}, found {shown}"


def lines(invalid: ValidationError, most: int | None = None, record: type[BaseModel] | None = None) -> list[str]:
    """Return a line for each error, at most `most`: its location in the record's entry and the message."""
    result = []
    for error in invalid.errors()[:most]:
        place = [str(key) for key in error["loc"] if key != "[key]"]  # a key that is wrong itself
        inner = _record_at(error["loc"][:-1], record)
        keys = [name for name in inner.model_fields if name != "name"] if inner else ()
        result.append(": ".join(filter(None, (".".join(place), message(error, keys)))))
    return result


def _record_at(path: tuple[int | str, ...], record: type[BaseModel] | None) -> type[BaseModel] | None:
    """Return the record at a path of keys in an entry."""
    for key in path:
        if record is not None and isinstance(key, str):
            record = _record_in(record.model_fields[key].annotation) if key in record.model_fields else record
    return record


def _record_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((record for part in get_args(annotation) if (record := _record_in(part)) is not None), None)


R = TypeVar("R", bound=BaseModel)


def read(record: type[R], data: object, what: str, *, hint: str = "", most: int | None = None) -> R:
    """Return the record that a file holds.

    Raises:
        UsageError: it is not valid, as `what` says; the details are the wrong keys.
    """
    try:
        return record.model_validate(data)
    except ValidationError as invalid:
        raise UsageError(what, details=lines(invalid, most, record), hint=hint) from None
