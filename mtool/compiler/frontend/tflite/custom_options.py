"""The options of a custom operator that writes them as flexbuffers do: numbers by name."""

from collections.abc import Mapping
from dataclasses import dataclass

from flatbuffers import flexbuffers

from mtool.base.errors import ModelError
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.description import Operator

MOST_BYTES = 64 * 1024
MOST_NUMBERS = 64

_BROKEN = (Exception, RecursionError)
"""What reading damaged bytes may raise: the library checks nothing, and asserts here and there."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Options by name."""

    by_name: Mapping[str, int | float | bool]

    def whole(self, name: str, default: int | None = None) -> int:
        """Return an integer of 32 bits.

        Raises:
            Unsupported: it is not given and has no default, or is another number.
        """
        found = self.by_name.get(name, default)
        if found is None:
            raise Unsupported(f"its option {name!r} is not given")
        if not float(found).is_integer() or not -(2**31) <= found < 2**32:
            raise Unsupported(f"its option {name!r} is {found}; expected an integer of 32 bits")
        return int(found)

    def real(self, name: str) -> float:
        """Return a number.

        Raises:
            Unsupported: it is not given.
        """
        if name not in self.by_name:
            raise Unsupported(f"its option {name!r} is not given")
        return float(self.by_name[name])


def numbers_of(operator: Operator) -> Numbers:
    """Return the options of a custom operator that are numbers; those of other kinds are left out.

    Raises:
        ModelError: they are no map of flexbuffers, or damaged.
    """
    if not operator.custom:
        return Numbers({})
    try:
        return Numbers(_read(operator.custom))
    except _BROKEN as found:
        raise ModelError(
            f"the options of {operator.name} are damaged",
            details=[f"{type(found).__name__}: {found}", f"{len(operator.custom):,} bytes"],
            hint="export the model again, or compare its size with the original's",
        ) from None


def _read(data: bytes) -> dict[str, int | float | bool]:
    if len(data) > MOST_BYTES:
        raise ValueError(f"they have more than {MOST_BYTES:,} bytes")
    root = flexbuffers.GetRoot(data)
    if not root.IsMap:
        raise ValueError("they are no map")
    entries = root.AsMap
    if len(entries) > MOST_NUMBERS:
        raise ValueError(f"they have {len(entries):,} entries")
    found: dict[str, int | float | bool] = {}
    keys, values = entries.Keys, entries.Values
    for index in range(len(entries)):
        value = values[index]
        if value.IsBool:
            found[keys[index].AsKey] = value.AsBool
        elif value.IsInt:
            found[keys[index].AsKey] = value.AsInt
        elif value.IsFloat:
            found[keys[index].AsKey] = value.AsFloat
    return found
