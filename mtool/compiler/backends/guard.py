"""Calls of a backend, which is not mtool's own code: exceptions and malformed results become errors with the nodes."""

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any, get_args, get_origin

import numpy as np

from mtool.base import resources
from mtool.base.checked import value_of
from mtool.base.errors import MtoolError, UsageError
from mtool.base.escaping import short_name
from mtool.base.filetree import is_plain
from mtool.base.identifiers import is_keyword, is_macro
from mtool.compiler.backends.call import TENSOR, bytes_named, placed
from mtool.compiler.backends.interface import (
    Backend,
    BackendError,
    Buffer,
    Context,
    Operation,
    OperationsRefused,
    Product,
    Region,
)
from mtool.compiler.ir import DType
from mtool.compiler.kernels.external import HOOKS

_MOST_NODES = 5


def refusal_of(backend: Backend, operation: Operation, context: Context) -> str:
    """Return why a backend can't compute an operation; "": it can.

    Raises:
        BackendError: it failed, or did not return a string.
    """
    return _text(backend, "refusal", [operation], operation, context)


def claims_of(backend: Backend, region: Region) -> str:
    """Return why a backend can't compute a region; "": it can.

    Raises:
        BackendError: it failed, or did not return a string.
    """
    return _text(backend, "claims", region.operations, region)


def cost_of(backend: Backend, region: Region) -> float | None:
    """Return a region's cost; None: it is always worth it.

    Raises:
        BackendError: it failed, or did not return a number.
    """
    answer = _called(backend, "cost", region.operations, region)
    if answer is None:
        return None
    is_number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
    if not is_number or not math.isfinite(answer) or answer < 0:
        raise _malformed(backend, "cost", answer, "a number of instructions, or None", region.operations)
    return float(answer)


def compiled_by(backend: Backend, region: Region) -> Product:
    """Let a backend compile a region in a folder of its own, and check what it returns.

    Raises:
        BackendError: it failed, or returned a malformed product.
    """
    with tempfile.TemporaryDirectory(prefix="mtool-") as folder:
        product = _called(backend, "compile", region.operations, region, Path(folder))
    return checked(product, backend.name, region)


def named(operations: Sequence[Operation]) -> list[str]:
    """Return a line for each operation: its kind and the user's nodes."""
    names = [f"{one.kind} {', '.join(map(short_name, one.origins or (one.name,)))}" for one in operations[:_MOST_NODES]]
    return names + [f"and {len(operations) - _MOST_NODES} more"] * (len(operations) > _MOST_NODES)


def _called(backend: Backend, method: str, operations: Sequence[Operation], *arguments: Any) -> Any:
    try:
        return getattr(backend, method)(*arguments)
    except OperationsRefused:
        raise
    except BackendError as failed:
        if any(name in str(failed) for one in operations for name in (*one.origins, one.name)):
            raise
        raise BackendError(failed.what, details=[*failed.details, *named(operations)], hint=failed.hint) from failed
    except MtoolError as failed:  # of proc.run, for instance: a compiler that is missing, or does not end
        what = f"the backend {backend.name} failed: {failed.what}"
        raise BackendError(what, details=[*failed.details, *named(operations)], hint=failed.hint) from failed
    except (Exception, SystemExit) as failed:
        what = f"the backend {backend.name} failed: {type(failed).__name__}: {failed}"
        hint = "--backend-fallback leaves such regions to C" if method == "compile" else ""
        raise BackendError(what, details=[f"in {method} for", *named(operations)], hint=hint) from failed


def _text(backend: Backend, method: str, operations: Sequence[Operation], *arguments: Any) -> str:
    answer = _called(backend, method, operations, *arguments)
    if not isinstance(answer, str):
        raise _malformed(backend, method, answer, 'a string ("" means yes)', operations)
    return answer


def _malformed(
    backend: Backend, method: str, answer: Any, expected: str, operations: Sequence[Operation]
) -> BackendError:
    what = f"the backend {backend.name} returned {answer!r:.80} from {method}; expected {expected}"
    return BackendError(what, details=["called for", *named(operations)])


MOST_ALIGNMENT = 4096
"""Of a region's memory, in bytes."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RESERVED = re.compile(r"input\d+|output\d+|scratch|resource|_\w*")
_USES = ("reads", "writes", "both")
_FLASH = frozenset({"code", "weights"})


def checked(product: Product, backend: str, region: Region) -> Product:
    """Return a backend's product for a region if it is well formed.

    Raises:
        BackendError: it is not.
    """
    try:
        problem = next(_problems(product, region), "")
    except Exception as failed:  # of a mapping that is not mtool's
        problem = f"{type(failed).__name__}: {failed}"
    operations = region.operations[:5]
    of = f"for {region.name}, of {', '.join(origin for one in operations for origin in one.origins)}"
    if problem:
        what = f"the backend {backend} returned a malformed product"
        raise BackendError(what, details=[problem, of], hint="mtool.compiler.backends.Product describes its fields")
    lack = next(_lacks(product, region), "")
    if lack:
        raise BackendError(
            f"the backend {backend} requests memory that {region.context.board} does not have", details=[lack, of]
        )
    return product


def _problems(product: Any, region: Region) -> Iterator[str]:
    """Yield the problems of a product; only the first is meaningful, because later checks rely on earlier ones."""
    if not isinstance(product, Product):
        yield f"it returned {type(product).__name__}; expected a Product"
    yield from _of_types(product, "")
    if not product.body.strip():
        yield "the body is empty"
    if re.search(r"[\ud800-\udfff]", product.body):
        yield "the body has unpaired surrogates, which can't be written to a file"
    yield from _of_files(product)
    yield from _of_constants(product)
    yield from _of_functions(product, region)
    yield from _of_alignment("alignment", product.alignment)
    yield from _of_alignment("tensor_alignment", product.tensor_alignment)
    for name, buffer in product.buffers.items():
        yield from _of_buffer(name, buffer, product, region)
    for name, use in product.device.items():
        if use not in _USES:
            yield f"the device {use!r} {name}; expected {', '.join(_USES)}"
        known = name in product.buffers or name in product.constants or bytes_named(name, product, region) is not None
        if not known:
            yield f"the device {use} {name}, which is not a tensor, buffer or constant of the region"
        if name in product.constants and use != "reads":
            yield f"the device {use} the constant {name}, which lies in flash"


def _of_types(instance: Product | Buffer, of: str) -> Iterator[str]:
    """Yield the fields, or entries of fields, that do not have the annotated type."""
    for one in fields(instance):
        value, kind = getattr(instance, one.name), one.type
        values = {one.name: value}
        if get_origin(kind) is Mapping and isinstance(value, Mapping):
            values, kind = {f"{one.name}[{key!r}]": entry for key, entry in value.items()}, get_args(kind)[1]
            if not all(isinstance(key, str) for key in value):
                yield f"{one.name} is {value!r:.80}; expected a mapping from strings"
        for name, entry in values.items():
            try:
                value_of(f"{name}{of}", entry, kind)
            except UsageError as wrong:
                yield "; ".join([wrong.what, *wrong.details])


def _of_alignment(name: str, alignment: int) -> Iterator[str]:
    if not 1 <= alignment <= MOST_ALIGNMENT or alignment & (alignment - 1):
        yield f"{name} is {alignment}; expected a power of two up to {MOST_ALIGNMENT}"


def _of_files(product: Product) -> Iterator[str]:
    for name in product.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\\" in name:
            yield f"the file {name!r} lies outside of the model's folder"
        if not is_plain(name):
            yield f"the file {name!r} is not a plain relative path such as npu/npu.c"
        for above in path.parents:
            if str(above) in product.files:
                yield f"the file {str(above)!r} is also the folder of {name!r}"
        if not re.fullmatch(r"[\w.+/-]+", name, re.ASCII):
            yield f"the file {name!r} has characters other than letters, digits and _ . + - /"
        if len(path.parts) == 1 and path.name.startswith("mt_"):
            yield f"the file {name!r} has a name that is reserved for the runtime"
    for header in product.headers:
        if not re.fullmatch(r"[\w./-]+\.h", header, re.ASCII):
            yield f"{header!r} is not a valid name of a header"
        if header not in product.files and not (resources.path("crt") / "include" / header).is_file():
            yield f"the header {header} is neither among its files nor the runtime's"


def _of_constants(product: Product) -> Iterator[str]:
    for name, array in product.constants.items():
        if not _is_free(name) or is_macro(name):
            yield f"the constant's name {name!r} is not valid in C, or taken"
        if not isinstance(array, np.ndarray) or array.dtype.name not in {kind.label for kind in DType}:
            yield f"the constant {name} is not an array of a supported type"
        if not array.size:
            yield f"the constant {name} is empty; C has no empty arrays"


def _of_functions(product: Product, region: Region) -> Iterator[str]:
    if product.can_fail and not re.search(r"\breturn\b", product.body):
        yield "can_fail is True, but the body returns no status"
    for when, name in product.hooks.items():
        if when not in HOOKS:
            yield f"unknown hook {when!r}; expected one of {', '.join(HOOKS)}"
        if not _is_free(name):
            yield f"the hook {when} is {name!r}; expected the name of a C function"
    if product.hooks and not product.headers:
        yield "it has hooks, but no header that declares them"
    for when, name in product.caches.items():
        if when not in ("clean", "invalidate"):
            yield f"caches has {when!r}; expected clean and invalidate"
        if not _NAME.fullmatch(name):
            yield f"caches: {when} is {name!r}; expected the name of a C function"
    if product.caches and (len(product.caches) < 2 or not product.headers):
        yield "caches must name both clean and invalidate, and a header must declare them"
    for name in (*product.hooks.values(), *product.caches.values()):
        if name.startswith(f"{region.model}_"):
            yield f"the function {name} has a name that is reserved for the model: {region.model}_…"


def _is_free(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not is_keyword(name) and not _RESERVED.fullmatch(name)


def _of_buffer(name: str, buffer: Buffer, product: Product, region: Region) -> Iterator[str]:
    yield from _of_types(buffer, f" of the buffer {name}")
    yield from _of_alignment(f"alignment of the buffer {name}", buffer.alignment)
    if not _NAME.fullmatch(buffer.memory):
        yield f"the buffer {name} is in {buffer.memory!r:.80}; expected the name of one of the board's memories"
    needed = bytes_named(name, product, region)
    if needed is not None and buffer.bytes and buffer.bytes < needed:
        yield f"the buffer {name} has {buffer.bytes} bytes; it needs {needed}"
    if needed is None and (TENSOR.fullmatch(name) or not _NAME.fullmatch(name)):
        yield f"the buffer {name} is neither a tensor of the region nor a valid name in C"
    if needed is None and (is_keyword(name) or name in product.constants or not buffer.bytes):
        yield f"the buffer {name} has {'no bytes' if not buffer.bytes else 'a name that is taken'}"


def _lacks(product: Product, region: Region) -> Iterator[str]:
    """Yield requests of the buffers that the board can't meet."""
    memories, board = region.context.memories, region.context.board
    if not memories:
        return
    for name, buffer in product.buffers.items():
        found = memories.get(buffer.memory)
        if found is None or (found.holds and {*found.holds} <= _FLASH):
            sizes = {one: f"{memory.bytes // 1024:,} KB" for one, memory in memories.items()}
            there = ", ".join(f"{one} ({', '.join([size, *memories[one].holds])})" for one, size in sizes.items())
            what = "is not a memory of" if found is None else f"is for {' and '.join(found.holds)} on"
            yield f"{name} is placed in {buffer.memory}, which {what} {board}; available: {there}"
    ends = {one.memory: one.offset + one.bytes for one in placed(product, region)}  # of each the last
    for memory, end in ends.items():
        if end > memories[memory].bytes:
            yield f"the buffers in {memory} take {end:,} B; {board} has {memories[memory].bytes:,} there"
