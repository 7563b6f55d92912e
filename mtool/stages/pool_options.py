"""The pools of the command line: NAME=BYTES, and what else is said of one."""

import re
from collections.abc import Sequence
from typing import get_args

from mtool.base.errors import UsageError
from mtool.base.option_values import PoolUse
from mtool.compiler.plan.pool import Pool, section_fault

_EXAMPLE = "--pool dtcm=64KiB,for=tensors"
_SIZE = re.compile(r"(\d{1,10}) ?(|B|K|KB|KiB|M|MB|MiB)")
_FACTOR = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20}


def pools(texts: Sequence[str] | None) -> tuple[Pool, ...]:
    """Return pools from NAME, NAME=BYTES or NAME=BYTES,KEY=VALUE,...

    Raises:
        UsageError: one is not written so, or a value is none that its key has.
    """
    return tuple(_pool(text) for text in texts or ())


def _pool(text: str) -> Pool:
    first, *settings = text.split(",")
    name, equals, size = first.partition("=")
    if not name:
        raise _wrong(text, "that has no name")
    found = Pool(name, _size(text, size) if equals else 0)
    values: dict[str, str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in ("for", "waits", "align", "section") or not value:
            raise _wrong(text, f"{setting!r} is none of for=, waits=, align=, section=")
        if key in values:
            raise _wrong(text, f"{key}= stands twice")
        values[key] = value
    return Pool(
        found.name,
        found.bytes,
        _use(text, values.get("for", "all")),
        _waits(text, values["waits"]) if "waits" in values else None,
        _alignment(text, values["align"]) if "align" in values else found.alignment,
        _section(text, values.get("section", "")),
    )


def _size(text: str, size: str) -> int:
    match = _SIZE.fullmatch(size)
    count = int(match[1]) * _FACTOR[match[2][:1] if match[2] != "B" else "B"] if match else 0
    if not 0 < count < 1 << 32:
        raise _wrong(text, f"{size!r} is no size, such as 65536 or 64KiB")
    return count


def _use(text: str, use: str) -> PoolUse:
    for known in get_args(PoolUse):
        if use == known:
            return use  # type: ignore[return-value]
    raise _wrong(text, f"for={use} is none of {', '.join(get_args(PoolUse))}")


def _waits(text: str, waits: str) -> float:
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?", waits):
        raise _wrong(text, f"waits={waits} is no number of cycles")
    return float(waits)


def _alignment(text: str, alignment: str) -> int:
    count = int(alignment) if alignment.isascii() and alignment.isdecimal() and len(alignment) < 6 else 0
    if count < 1 or count & (count - 1) or count > 1 << 14:
        raise _wrong(text, f"align={alignment} is no power of two up to 16384")
    return count


def _section(text: str, section: str) -> str:
    if fault := section_fault(section):
        raise _wrong(text, f"section={section!r} is {fault}")
    return section


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"--pool {text}: {why}", hint=f"for instance: {_EXAMPLE}")
