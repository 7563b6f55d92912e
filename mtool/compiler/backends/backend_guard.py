"""Questions to a backend, which is not mtool's own code: what it raises or returns amiss is an error with the nodes."""

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mtool.base.errors import MtoolError
from mtool.base.escaping import short_name
from mtool.compiler.backends.interface import Backend, BackendError, Context, OperationsRefused, Product, Region
from mtool.compiler.backends.operation import Operation
from mtool.compiler.backends.product import checked

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
