"""Checks of what a backend returns, which is not mtool's own code."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from mtool.backends.interface import BackendError, Product, Region
from mtool.ir import DType
from mtool.ops.external.node import HOOKS
from mtool.reserved import KEYWORDS

_RESERVED = re.compile(r"input\d+|output\d+|scratch")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "body": (str,), "headers": (tuple, list), "files": (Mapping,), "constants": (Mapping,), "layouts": (Mapping,),
    "scratch_bytes": (int,), "alignment": (int,), "cost": (int, float), "cycles": (int, float), "hooks": (Mapping,),
}  # fmt: skip


def checked(product: Product, backend: str, region: Region) -> Product:
    """Return what a backend made of a region, if it is well formed.

    Raises:
        BackendError: it is not.
    """
    problem = _problem(product)
    if problem:
        names = ", ".join(origin for one in region.operations[:5] for origin in one.origins)
        raise BackendError(
            f"the backend {backend} returned something malformed",
            details=[problem, f"for {region.name}, of {names}"],
            hint="mtool.backends.Product says what it has to be",
        )
    return product


def _problem(product: Any) -> str:
    if not isinstance(product, Product):
        return f"it returned {type(product).__name__}; expected a Product"
    fields: Any = product  # of any types
    for name, kinds in _TYPES.items():
        value = getattr(fields, name)
        if not isinstance(value, kinds) or isinstance(value, bool):
            return f"{name} is {type(value).__name__}; expected {' or '.join(kind.__name__ for kind in kinds)}"
    if not fields.body.strip() or not _is_unicode(fields.body):
        return "the body is empty or no text"
    for name, data in fields.files.items():
        path = PurePosixPath(str(name))
        if not isinstance(name, str) or path.is_absolute() or ".." in path.parts or not path.name or "\\" in name:
            return f"the file {name!r} lies outside of the model's folder"
        if not (_is_unicode(name) and name.isprintable()):
            return f"the file {name!r} has no name that a build takes"
        if not isinstance(data, bytes):
            return f"the file {name} is {type(data).__name__}; expected bytes"
    for name, array in fields.constants.items():
        if not isinstance(name, str) or not _is_free(name):
            return f"the constant {name!r} is not a free name in C"
        if not isinstance(array, np.ndarray) or array.dtype.name not in {kind.label for kind in DType}:
            return f"the constant {name} is no array of a type that mtool knows"
    for header in fields.headers:
        if not isinstance(header, str) or not re.fullmatch(r"[\w./-]+\.h", header):
            return f"the header {header!r} is no name of one"
    if not isinstance(fields.can_fail, bool):
        return f"can_fail is {fields.can_fail!r}; expected True or False"
    if fields.can_fail and not re.search(r"\breturn\b", fields.body):
        return "can_fail is True, and the body returns no status"
    for when, name in fields.hooks.items():
        if when not in HOOKS:
            return f"there is no hook {when!r}; there are {', '.join(HOOKS)}"
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            return f"the hook {when} is {name!r}; expected the name of a C function"
    if fields.hooks and not fields.headers:
        return "it has hooks, and no header that declares them"
    if not all(isinstance(one, str) and _is_unicode(one) for one in fields.layouts.values()):
        return "a layout is no text"
    numbers = {"scratch_bytes": product.scratch_bytes, "alignment": product.alignment, "cost": product.cost}
    wrong = next((name for name, value in numbers.items() if not 0 <= value < 2**40), None)
    if wrong is not None or product.alignment < 1 or product.alignment & (product.alignment - 1):
        return f"{wrong or 'alignment'} is {numbers[wrong or 'alignment']}"
    return ""


def _is_free(name: str) -> bool:
    """Whether C and C++ take a name that the call of a region does not have."""
    is_name = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) is not None
    return is_name and name not in KEYWORDS and not _RESERVED.fullmatch(name)


def _is_unicode(text: str) -> bool:
    """Whether a text has no halves of characters, which no file can hold."""
    return not re.search(r"[\ud800-\udfff]", text)
