"""What the fields of mtool.json are made of: records that refuse what they don't know, and text that is checked."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer, SerializationInfo

from mtool.base import formulas
from mtool.base.escaping import plain

BYTE_WIDE = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
"""What an element of 2 or 4 bits is stored as."""

TEMPLATES: dict[str, Any] = {"for": "the texts of a template"}
"""The context of a dump whose texts a template takes."""


def _written(text: str, info: SerializationInfo) -> str:
    return plain(text) if info.context is TEMPLATES else text


OfModel = Annotated[str, PlainSerializer(_written)]
"""Text that the model brought: exact in mtool.json, see mtool.base.escaping."""


def _inside(path: str) -> str:
    if path.startswith("/") or "\0" in path or {"", ".", ".."} & {*path.split("/")}:
        raise ValueError(f"{path!r} is no path inside the project folder")
    return path


Inside = Annotated[str, AfterValidator(_inside)]
"""A path below the project folder."""


class Strict(BaseModel):
    """A record that refuses unknown keys and can't be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _formula(text: str) -> str:
    formulas.parsed(text)
    return text


FormulaText = Annotated[str, AfterValidator(_formula)]
"""A formula of run-time sizes, by their symbols: 64 * n."""
