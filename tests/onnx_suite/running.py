"""Compile many cases, build them in batches, run them, compare at the suite's own tolerances."""

import concurrent.futures
import contextlib
import multiprocessing
import signal
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.backend.test.runner import Runner

from mtool.errors import MtoolError, NeedsValues
from mtool.kernels.target import Target
from mtool.onnx_backend.batch import HOST, Batch, CModel, build, to_c
from tests import sanitized

from .cases import Case

BATCH = 80
LIMIT_S = 20  # seconds that one model may take to compile


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case: an empty reason is a pass; `fixed` are inputs that had to be constants."""

    reason: str
    fixed: tuple[str, ...] = ()


def compiled(case: Case, name: str, target: Target = HOST) -> tuple[CModel, tuple[str, ...]]:
    """Compile a case; inputs whose values mtool asks for are taken from its data."""
    model, dims = stated(case)
    try:
        return to_c(model, name, None, dims, target), ()
    except NeedsValues as needs:
        given = [value.name for value in case.model.graph.input]
        initialised = {tensor.name for tensor in case.model.graph.initializer}
        fed = [value for value in given if value not in initialised]
        fixed: tuple[str, ...] = ()
        while True:  # what is asked for next may depend on what is known now
            fixed = (*fixed, *needs.inputs)
            constants = {value: case.data[0][0][fed.index(value)] for value in fixed}
            try:
                return to_c(model, name, constants, dims, target), fixed
            except NeedsValues as more:
                needs = more


def stated(case: Case) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Return the model with its outputs' shapes declared, where they are open, and its inputs' symbolic dimensions."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value, data in zip(model.graph.output, case.data[0][1], strict=True):
        shape = value.type.tensor_type.shape.dim
        if len(shape) == data.ndim:
            for dim, size in zip(shape, data.shape, strict=True):
                if not dim.HasField("dim_value"):
                    dim.dim_value = size
    initialised = {tensor.name for tensor in model.graph.initializer}
    dims: dict[str, int] = {}
    fed = [value for value in model.graph.input if value.name not in initialised]
    for value, data in zip(fed, case.data[0][0], strict=False):
        for dim, size in zip(value.type.tensor_type.shape.dim, data.shape, strict=False):
            if not dim.HasField("dim_value") and dim.dim_param:
                dims[dim.dim_param] = size
    return model, dims


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes longer."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def built(models: Sequence[CModel], folder: Path) -> Batch:
    """Build models under the sanitizers; a warning of either compiler refuses the model."""
    refused = build(models, folder, compiler="gcc", flags=("-fsyntax-only",)).refused
    batch = build(models, folder, compiler=sanitized.COMPILER, flags=sanitized.FLAGS)
    batch.refused.update(refused)
    return batch


def run_batch(cases: Sequence[Case]) -> list[Outcome]:
    """Run cases in one program."""
    outcomes: list[Outcome | None] = [None] * len(cases)
    models, places, fixed = [], [], []
    for place, case in enumerate(cases):
        try:
            with _time_limit(LIMIT_S):
                model, frozen = compiled(case, f"m{place}")
        except MtoolError as error:
            outcomes[place] = Outcome("; ".join([error.what, *error.details]))
        except Exception:
            outcomes[place] = Outcome("crash: " + " | ".join(traceback.format_exc().strip().splitlines()[-7:]))
        else:
            models.append(model)
            places.append(place)
            fixed.append(frozen)
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as folder, built(models, Path(folder)) as batch:
        for number, place in enumerate(places):
            try:
                for inputs, wanted in cases[place].data:
                    got = batch.run(number, inputs)
                    Runner.assert_similar_outputs(wanted, got, cases[place].rtol, cases[place].atol)
                outcomes[place] = Outcome("", fixed[number])
            except AssertionError as differs:
                lines = [line for line in str(differs).splitlines() if line.strip()]
                outcomes[place] = Outcome("differs: " + "; ".join(lines[:6]), fixed[number])
            except MtoolError as error:
                outcomes[place] = Outcome("; ".join([error.what, *error.details[:3]]), fixed[number])
    return [outcome or Outcome("not run") for outcome in outcomes]


def run_all(cases: Sequence[Case], workers: int = 2) -> list[Outcome]:
    """Run all cases, in batches, on several processes."""
    # Neighbours are alike, so that each batch takes about as long as the others: deal them out.
    count = max(1, -(-len(cases) // BATCH))
    hands = [list(range(start, len(cases), count)) for start in range(count)]
    outcomes: list[Outcome] = [Outcome("not run")] * len(cases)
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        for hand, results in zip(hands, pool.map(run_batch, [[cases[n] for n in hand] for hand in hands]), strict=True):
            for number, outcome in zip(hand, results, strict=True):
                outcomes[number] = outcome
    return outcomes
