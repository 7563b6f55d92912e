"""Running a model on a sequence of samples with a library; states carry over from each sample to the next."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mtool.base.errors import BuildError, ModelError, MtoolError
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.process import HINT

Run = Callable[[Mapping[str, Array]], Sample]
"""Runs a model on its inputs by name; its outputs by name."""


def over_samples(name: str, opened: Callable[..., Run], install: str = "") -> Callable[..., list[Sample]]:
    """Return a function that runs a model on each sample with a library; the outputs are in the same order.

    Args:
        name: the library's name.
        opened: opens a model, given as a file's absolute path or its bytes, with the library's own options.
        install: the command that installs the library.
    """

    def outputs(
        model: str | bytes,
        samples: Sequence[Sample],
        *,
        title: str,
        constants: Mapping[str, Array] | None = None,
        states: Sequence[tuple[str, str]] = (),
        initial: Mapping[str, Array] | None = None,
        **how: Any,
    ) -> list[Sample]:
        """Run a model on each sample; return the outputs by name, in the same order.

        Args:
            model: the file's absolute path, or its bytes.
            samples: inputs by name.
            title: the file's name in messages.
            constants: inputs that are the same for every sample.
            states: pairs of an output and the input of the next sample that it feeds.
            initial: the initial values of the states.
            how: the library's options.

        Raises:
            BuildError: the library is not installed.
            ModelError: it refuses the model or an input.
        """
        results: list[Sample] = []
        with as_model_error(f"{name} can't run {title}", HINT):
            try:
                run = opened(model, **how)
            except ImportError:
                raise BuildError(
                    f"{name} is not installed",
                    details=["it is the reference for the outputs"],
                    hint=f"{install}, or {HINT}",
                ) from None
            state_values: dict[str, Any] = {put: (initial or {}).get(put) for _, put in states}
            for sample in samples:
                results.append(run({**sample, **(constants or {}), **state_values}))
                state_values = {put: results[-1][output] for output, put in states}
        return results

    return outputs


@contextlib.contextmanager
def as_model_error(what: str, hint: str = "") -> Iterator[None]:
    """Raise a ModelError for whatever a library raises."""
    try:
        yield
    except MtoolError:
        raise
    except Exception as refused:  # the libraries' error classes share no other base
        details = str(refused).strip().splitlines()[:3] or [type(refused).__name__]
        raise ModelError(what, details=details, hint=hint) from None
