"""Compile many cases, build them in batches, run them, compare with the suite's own tolerances."""

import concurrent.futures
import contextlib
import multiprocessing
import signal
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx.backend.test.runner import Runner

from mtool.base.errors import MtoolError
from mtool.boards import Board
from mtool.compiler.compilation import target_of
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.plugins.onnx_backend import Specialisation, firmware, specialise
from mtool.plugins.onnx_backend.batch import HOST, Batch, CModel, build
from tests import sanitized
from tests.onnx_suite.cases import Case

BATCH = 80
CLANG_WARNINGS = sanitized.TAUTOLOGIES if sanitized.COMPILER == "clang" else ()
LIMIT_S = 20  # seconds that one model may take to compile


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case: an empty reason is a pass; `fixed` are inputs whose values are in its C."""

    reason: str
    fixed: tuple[str, ...] = ()


def compiled(case: Case, name: str, target: Target = HOST) -> Specialisation:
    """Compile a case as `onnx_backend` does for a run with its first inputs."""
    return specialise(case.model, case.data[0][0], ModelOptions(), name, target)


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
    batch = build(models, folder, compiler=sanitized.COMPILER, flags=(*sanitized.FLAGS, *CLANG_WARNINGS))
    batch.refused.update(refused)
    return batch


def run_batch(cases: Sequence[Case]) -> list[Outcome]:
    """Run cases in one program."""
    outcomes: list[Outcome | None] = [None] * len(cases)
    made: list[Specialisation] = []
    places = []
    for place, case in enumerate(cases):
        try:
            with _time_limit(LIMIT_S):
                one = compiled(case, f"m{place}")
        except MtoolError as error:
            outcomes[place] = Outcome("; ".join([error.what, *error.details]))
        except Exception:
            outcomes[place] = Outcome("crash: " + " | ".join(traceback.format_exc().strip().splitlines()[-7:]))
        else:
            made.append(one)
            places.append(place)
    models = [one.model for one in made]
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as folder, built(models, Path(folder)) as batch:
        for number, place in enumerate(places):
            fixed = tuple(made[number].fixed)
            try:
                for inputs, wanted in cases[place].data:
                    assert made[number].fits(inputs), "its inputs differ in what shapes the C"
                    got = [*made[number].outputs(batch.run(number, inputs)).values()]
                    Runner.assert_similar_outputs(wanted, got, cases[place].rtol, cases[place].atol)
                outcomes[place] = Outcome("", fixed)
            except AssertionError as differs:
                lines = [line for line in str(differs).splitlines() if line.strip()]
                outcomes[place] = Outcome("differs: " + "; ".join(lines[:6]), fixed)
            except MtoolError as error:
                outcomes[place] = Outcome("; ".join([error.what, *error.details[:3]]), fixed)
    return [outcome or Outcome("not run") for outcome in outcomes]


def run_on_board(cases: Sequence[Case], board: Board) -> list[str]:
    """Run cases in one firmware; return what went wrong, a line a case."""
    made = [compiled(case, f"m{number}", target_of(board)) for number, case in enumerate(cases)]
    wrong = []
    with (
        tempfile.TemporaryDirectory(prefix="onnx-suite-") as folder,
        firmware.build([one.model for one in made], Path(folder) / "project", board) as device,
    ):
        for number, (case, one) in enumerate(zip(cases, made, strict=True)):
            try:
                for inputs, wanted in case.data:
                    found = [*one.outputs(device.run(number, inputs)).values()]
                    Runner.assert_similar_outputs(wanted, found, case.rtol, case.atol)
            except AssertionError as differs:
                wrong.append(f"{case.name}: {' '.join(str(differs).split())[:300]}")
    return wrong


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
