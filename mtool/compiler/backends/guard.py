"""Questions to a backend, which is not mtool's own code: what it raises or returns amiss is an error with the nodes."""

import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

import numpy as np

from mtool.base import resources
from mtool.base.errors import MtoolError
from mtool.base.escaping import short_name
from mtool.base.filetree import is_plain
from mtool.base.identifiers import KEYWORDS, is_macro
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

_Answer = TypeVar("_Answer")
_MOST_NODES = 5


def refusal_of(backend: Backend, operation: Operation, context: Context) -> str:
    """Return why a backend can't compute an operation; "": it can.

    Raises:
        BackendError: it failed, or did not answer with text.
    """
    answer = _asked(backend, "refusal", [operation], lambda: backend.refusal(operation, context))
    return _text(answer, backend, "refusal", [operation])


def claims_of(backend: Backend, region: Region) -> str:
    """Return why a backend can't compute a region; "": it can.

    Raises:
        BackendError: it failed, or did not answer with text.
    """
    answer = _asked(backend, "claims", region.operations, lambda: backend.claims(region))
    return _text(answer, backend, "claims", region.operations)


def cost_of(backend: Backend, region: Region) -> float | None:
    """Return what a region costs; None: it is always worth it.

    Raises:
        BackendError: it failed, or did not answer with a number.
    """
    answer: Any = _asked(backend, "cost", region.operations, lambda: backend.cost(region))
    if answer is None:
        return None
    is_number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
    if not is_number or not math.isfinite(answer) or answer < 0:
        raise _malformed(backend, "cost", answer, "a number of instructions, or None", region.operations)
    return float(answer)


def compiled_by(backend: Backend, region: Region) -> Product:
    """Let a backend compile a region in a folder of its own, and check what it returns.

    Raises:
        BackendError: it failed, or returned something malformed.
    """
    with tempfile.TemporaryDirectory(prefix="mtool-") as folder:
        product = _asked(backend, "compile", region.operations, lambda: backend.compile(region, Path(folder)))
    return checked(product, backend.name, region)


def named(operations: Sequence[Operation]) -> list[str]:
    """Return operations by their kinds and the user's nodes, a line each."""
    names = [f"{one.kind} {', '.join(map(short_name, one.origins or (one.name,)))}" for one in operations[:_MOST_NODES]]
    return names + [f"and {len(operations) - _MOST_NODES} more"] * (len(operations) > _MOST_NODES)


def _asked(backend: Backend, method: str, operations: Sequence[Operation], question: Callable[[], _Answer]) -> _Answer:
    try:
        return question()
    except OperationsRefused:
        raise
    except BackendError as failed:
        if any(name in str(failed) for one in operations for name in (*one.origins, one.name)):
            raise
        raise BackendError(failed.what, details=[*failed.details, *named(operations)], hint=failed.hint) from failed
    except MtoolError as failed:  # of proc.run, for instance: a compiler that is not there, or does not end
        raise BackendError(
            f"the backend {backend.name} failed: {failed.what}",
            details=[*failed.details, *named(operations)],
            hint=failed.hint,
        ) from failed
    except (Exception, SystemExit) as failed:
        raise BackendError(
            f"the backend {backend.name} failed: {type(failed).__name__}: {failed}",
            details=[f"in {method} of", *named(operations)],
            hint="--backend-fallback leaves such regions to C" if method == "compile" else "",
        ) from failed


def _text(answer: Any, backend: Backend, method: str, operations: Sequence[Operation]) -> str:
    if not isinstance(answer, str):
        raise _malformed(backend, method, answer, 'text, "" for yes', operations)
    return answer


def _malformed(
    backend: Backend, method: str, answer: Any, expected: str, operations: Sequence[Operation]
) -> BackendError:
    return BackendError(
        f"the backend {backend.name} answered {method} with {answer!r:.80}; expected {expected}",
        details=["asked about", *named(operations)],
    )


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
    operations = region.operations[:5]
    of = f"for {region.name}, of {', '.join(origin for one in operations for origin in one.origins)}"
    if problem:
        raise BackendError(
            f"the backend {backend} returned something malformed",
            details=[problem, of],
            hint="mtool.compiler.backends.Product says what it has to be",
        )
    lack = lack_of_memory(product, region)
    if lack:
        raise BackendError(
            f"the backend {backend} asks for memory that {region.context.board} does not have",
            details=[lack, of],
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


_USES = ("reads", "writes", "both")
_FLASH = frozenset({"code", "weights"})


def problem_of_buffers(product: Product, region: Region, most_alignment: int) -> str:
    """Return what is wrong with the buffers, texts and caches of a product; "": nothing."""
    fields: Any = product  # of any types
    for name in ("prepare", "finish"):
        if not isinstance(getattr(fields, name), str):
            return f"{name} is no text"
    for name in ("buffers", "device", "caches"):
        value = getattr(fields, name)
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return f"{name} is {type(value).__name__}; expected a mapping from text"
    problems = (_of_buffer(name, one, product, region, most_alignment) for name, one in product.buffers.items())
    return next(filter(None, problems), "") or _of_caches(product, region)


def lack_of_memory(product: Product, region: Region) -> str:
    """Return what the buffers want that the board has not; "": nothing."""
    memories = region.context.memories
    if not memories:
        return ""
    problems = (_of_board_memory(name, one, region) for name, one in product.buffers.items())
    return next(filter(None, problems), "") or _of_room(product, region)


def _of_buffer(name: str, buffer: Any, product: Product, region: Region, most_alignment: int) -> str:
    if not isinstance(buffer, Buffer):
        return f"the buffer {name} is {type(buffer).__name__}; expected a Buffer"
    fields: Any = buffer
    for key in ("bytes", "alignment"):
        value = getattr(fields, key)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value < 2**40:
            return f"{key} of the buffer {name} is {value!r}"
    if not 1 <= buffer.alignment <= most_alignment or buffer.alignment & (buffer.alignment - 1):
        return f"alignment of the buffer {name} is {buffer.alignment}; expected a power of two up to {most_alignment}"
    if not isinstance(fields.memory, str) or not re.fullmatch(r"[A-Za-z_]\w*", buffer.memory, re.ASCII):
        return f"the buffer {name} has the memory {fields.memory!r:.80}; expected a board's name of one"
    needed = bytes_named(name, product, region)
    if needed is None and (TENSOR.fullmatch(name) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)):
        return f"the buffer {name} is no tensor of the region, and no name in C"
    if needed is None and (name in KEYWORDS or name in product.constants or not buffer.bytes):
        return f"the buffer {name} has {'no bytes' if not buffer.bytes else 'a name that is taken'}"
    if needed is not None and buffer.bytes and buffer.bytes < needed:
        return f"the buffer {name} has {buffer.bytes} bytes; {needed} are to lie there"
    return ""


def _of_board_memory(name: str, buffer: Buffer, region: Region) -> str:
    memories, board = region.context.memories, region.context.board
    found = memories.get(buffer.memory)
    if found is not None and not (found.holds and {*found.holds} <= _FLASH):
        return ""
    there = ", ".join(_told(one, memory.bytes, memory.holds) for one, memory in memories.items())
    what = "is no memory" if found is None else f"is for {' and '.join(found.holds)}"
    return f"{name} is to lie in {buffer.memory}, which {what} of {board}; it has {there}"


def _of_room(product: Product, region: Region) -> str:
    memories = region.context.memories
    ends = {one.memory: one.offset + one.bytes for one in placed(product, region)}  # of each the last
    return next(
        (
            f"the buffers in {memory} take {end:,} B; {region.context.board} has {memories[memory].bytes:,} there"
            for memory, end in ends.items()
            if end > memories[memory].bytes
        ),
        "",
    )


def _of_caches(product: Product, region: Region) -> str:
    for when, function in product.caches.items():
        if when not in ("clean", "invalidate"):
            return f"caches has {when!r}; expected clean and invalidate"
        if not isinstance(function, str) or not re.fullmatch(r"[A-Za-z_]\w*", function, re.ASCII):
            return f"caches: {when} is {function!r}; expected the name of a C function"
    if product.caches and ({*product.caches} != {"clean", "invalidate"} or not product.headers):
        return "caches has to name both clean and invalidate, and a header has to declare them"
    for name, use in product.device.items():
        if use not in _USES:
            return f"the device {use!r} {name}; expected {', '.join(_USES)}"
        known = name in product.buffers or name in product.constants or bytes_named(name, product, region) is not None
        if not known:
            return f"the device {use} {name}, which is no tensor, buffer or constant of the region"
        if name in product.constants and use != "reads":
            return f"the device {use} the constant {name}, which lies in flash"
    return ""


def _told(name: str, size: int, holds: Sequence[str]) -> str:
    return f"{name} ({size // 1024:,} KB{''.join(f', {one}' for one in holds)})"
