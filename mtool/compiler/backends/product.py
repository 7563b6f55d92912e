"""Checks of what a backend returns, which is not mtool's own code."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

import numpy as np

from mtool.base import resources
from mtool.base.filetree import is_plain
from mtool.base.reserved import KEYWORDS, is_macro
from mtool.compiler.backends.buffers import lack_of_memory, problem_of_buffers
from mtool.compiler.backends.interface import BackendError, Product, Region
from mtool.compiler.ir import DType
from mtool.compiler.kernels.external import HOOKS

MOST_ALIGNMENT = 4096
"""Of a region's memory, in bytes."""
_RESERVED = re.compile(r"input\d+|output\d+|scratch|resource")


def checked(product: Product, backend: str, region: Region) -> Product:
    """Return what a backend made of a region, if it is well formed.

    Raises:
        BackendError: it is not.
    """
    try:
        problem = _problem(product) or problem_of_buffers(product, region, MOST_ALIGNMENT)
        problem = problem or _of_clashes(product, region)
    except Exception as failed:  # of a mapping that is not mtool's
        problem = f"{type(failed).__name__}: {failed}"
    if problem:
        names = ", ".join(origin for one in region.operations[:5] for origin in one.origins)
        raise BackendError(
            f"the backend {backend} returned something malformed",
            details=[problem, f"for {region.name}, of {names}"],
            hint="mtool.compiler.backends.Product says what it has to be",
        )
    lack = lack_of_memory(product, region)
    if lack:
        names = ", ".join(origin for one in region.operations[:5] for origin in one.origins)
        raise BackendError(
            f"the backend {backend} asks for memory that {region.context.board} does not have",
            details=[lack, f"for {region.name}, of {names}"],
        )
    return product


def _problem(product: Any) -> str:
    if not isinstance(product, Product):
        return f"it returned {type(product).__name__}; expected a Product"
    fields: Any = product  # of any types
    if not isinstance(fields.body, str) or not fields.body.strip():
        return "the body is empty or no text"
    if re.search(r"[\ud800-\udfff]", fields.body):
        return "the body has halves of characters, which no file can hold"
    for name in ("files", "constants", "layouts", "hooks"):
        value = getattr(fields, name)
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return f"{name} is {type(value).__name__}; expected a mapping from text"
    return (
        _of_files(product)
        or _of_constants(product)
        or _of_headers(product)
        or _of_failures(product)
        or _of_numbers(product)
        or _of_missing(product)
    )


def _of_files(product: Product) -> str:
    for name, data in product.files.items():
        path, own = PurePosixPath(name), cast("object", data)
        if path.is_absolute() or ".." in path.parts or not path.name or "\\" in name:
            return f"the file {name!r} lies outside of the model's folder"
        if not is_plain(name):
            return f"the file {name!r} has no plain path, as npu/npu.c is one"
        above = next((str(one) for one in path.parents if str(one) in product.files), None)
        if above is not None:
            return f"the file {above!r} is also the folder of {name!r}"
        if not re.fullmatch(r"[\w.+/-]+", name, re.ASCII):
            return f"the file {name!r} has other characters than letters, digits and _ . + - /"
        if len(path.parts) == 1 and path.name.startswith("mt_"):
            return f"the file {name!r} has a name as the runtime's have"
        if not isinstance(own, bytes):
            return f"the file {name} is {type(own).__name__}; expected bytes"
    return ""


def _of_constants(product: Product) -> str:
    for name, array in product.constants.items():
        if not _is_free(name) or is_macro(name):
            return f"the constant {name!r} is not a free name in C"
        if not isinstance(array, np.ndarray) or array.dtype.name not in {kind.label for kind in DType}:
            return f"the constant {name} is no array of a type that mtool knows"
        if not array.size:
            return f"the constant {name} is empty, which no array in C is"
    text = next((name for name, value in product.layouts.items() if not isinstance(cast("object", value), str)), None)
    return "" if text is None else f"the layout of {text} is no text"


def _of_headers(product: Product) -> str:
    headers: Any = product.headers
    if isinstance(headers, str) or not isinstance(headers, Sequence):
        return f"headers is {headers!r:.80}; expected a tuple of names"
    for header in headers:
        if not isinstance(header, str) or not re.fullmatch(r"[\w./-]+\.h", header, re.ASCII):
            return f"the header {header!r} is no name of one"
    return ""


def _of_clashes(product: Product, region: Region) -> str:
    """Return which C function of the product has a name as the model's own have."""
    names = (*product.hooks.values(), *product.caches.values())
    clash = next((name for name in names if name.startswith(f"{region.model}_")), None)
    return "" if clash is None else f"the function {clash} has a name as the model's own have: {region.model}_…"


def _of_missing(product: Product) -> str:
    """Return which header is neither the product's nor the runtime's."""
    runtime = resources.path("crt") / "include"
    there = (name for name in product.headers if name not in product.files and not (runtime / name).is_file())
    missing = next(there, None)
    return "" if missing is None else f"the header {missing} is not among its files, nor the runtime's"


def _of_failures(product: Product) -> str:
    fields: Any = product
    if not isinstance(fields.can_fail, bool):
        return f"can_fail is {fields.can_fail!r}; expected True or False"
    if not isinstance(fields.resource, bool):
        return f"resource is {fields.resource!r}; expected True or False"
    if fields.can_fail and not re.search(r"\breturn\b", fields.body):
        return "can_fail is True, and the body returns no status"
    for when, name in fields.hooks.items():
        if when not in HOOKS:
            return f"there is no hook {when!r}; there are {', '.join(HOOKS)}"
        if not isinstance(name, str) or not _is_free(name):
            return f"the hook {when} is {name!r}; expected the name of a C function"
    if fields.hooks and not fields.headers:
        return "it has hooks, and no header that declares them"
    return ""


def _is_free(name: str) -> bool:
    is_name = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) is not None
    return is_name and name not in KEYWORDS and not _RESERVED.fullmatch(name)


def _of_numbers(product: Any) -> str:
    alignments = {"alignment": product.alignment, "tensor_alignment": product.tensor_alignment}
    for name, value in {"scratch_bytes": product.scratch_bytes, **alignments}.items():
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value < 2**40:
            return f"{name} is {value!r}"
    for name, value in alignments.items():
        if not 1 <= value <= MOST_ALIGNMENT or value & (value - 1):
            return f"{name} is {value}; expected a power of two up to {MOST_ALIGNMENT}"
    for name, number in {"cost": product.cost, "cycles": product.cycles}.items():
        if not isinstance(number, int | float | np.number) or not 0 <= number < math.inf:
            return f"{name} is {number!r}"
    return ""
