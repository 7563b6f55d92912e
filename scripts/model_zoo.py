#!/usr/bin/env python3
"""Compile, build and run every model of a folder on boards, and compare it with LiteRT or onnxruntime.

    make model-zoo ARGS=FOLDER
    make model-zoo ARGS="FOLDER --rounding tflite --table page.md"

Each file is tried in a process of its own, within limits of time and memory. What is known of a file is kept in a line
of JSON, by the hash of the file and of mtool's sources: a run goes on where the last one stopped. Ends with exit code 1
if a model that loads is not built for a board that has room for it, differs, or stops mtool; a refusal is none of
these.
"""

import os

for library in ("OPENBLAS", "OMP", "MKL"):  # threads would be counted as memory, and don't survive a fork
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import concurrent.futures  # noqa: E402
import dataclasses  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mtool import boards  # noqa: E402
from mtool.base.option_values import Rounding  # noqa: E402
from tests import compiler_cache  # noqa: E402
from tests.fuzzing import forks  # noqa: E402
from tests.zoo import names, page, results, trial  # noqa: E402

SUFFIXES = (".onnx", ".tflite")
STATE = "model-zoo.jsonl"
BOARDS = (
    trial.HOST, "mps2_an386", "mps2_an500", "mps3_an547", "mps2_an385", "mps2_an383", "qemu_riscv32",
)  # fmt: skip
"""The host, and a Cortex-M4, whose figures the page has, M7, M55, M3, M0+ and an RV32."""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A file to try in a rounding."""

    path: Path
    rounding: Rounding
    boards: tuple[str, ...]
    options: str
    limits: forks.Limits

    def key(self) -> str:
        """Return what its result is kept by."""
        data = self.path.read_bytes()
        return results.key(results.digest(data), self.rounding, self.boards, self.options)


def files(folder: Path) -> list[Path]:
    """Return the model files of a folder, at any depth, the smallest first."""
    found = [path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    return sorted(found, key=lambda path: (path.stat().st_size, path))


def roundings(path: Path, chosen: str) -> tuple[Rounding, ...]:
    """Return the roundings that a file is tried in: those of TFLite are not for ONNX."""
    if path.suffix == ".onnx":
        return ("onnx",) if chosen in ("onnx", "both") else ()
    return ("onnx", "tflite") if chosen == "both" else ("tflite",) if chosen == "tflite" else ("onnx",)


def run(job: Job) -> results.Row:
    """Try a file in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="mtool-zoo-", ignore_cleanup_errors=True) as folder:
        ended = forks.call(
            lambda: trial.tried(job.path, job.rounding, job.boards, Path(folder), job.options), job.limits
        )
    if isinstance(ended.value, results.Row):
        return dataclasses.replace(ended.value, cpu_s=round(ended.cpu_s, 2))
    last = ended.words.strip().splitlines()[-1:]
    return results.Row(stopped=ended.ending, details=tuple(last), options=job.options, cpu_s=round(ended.cpu_s, 2))


def run_all(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, results.Row]]:
    """Try many at a time, and yield each as it ends."""
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = {pool.submit(run, job): job for job in jobs}
        try:
            for done in concurrent.futures.as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def tried(
    folder: Path,
    state: results.State,
    *,
    chosen: Sequence[str] = BOARDS,
    rounding: str = "both",
    limits: forks.Limits = forks.Limits(900, 6 << 30),  # noqa: B008  frozen
    processes: int = 1,
    table: Sequence[names.Origin] = (),
    only: str = "",
    known: bool = False,
) -> list[page.Tried]:
    """Try every model of a folder, those whose result is known apart, and return all results.

    Args:
        folder: of the models, at any depth.
        state: what is known, and is added to.
        chosen: the boards, the host first.
        rounding: "onnx", "tflite" or "both", the second on the first board alone; an ONNX model has only the first.
        limits: of the process that tries a file.
        processes: how many at a time.
        table: where the files are from.
        only: part of the paths of the files to try.
        known: try nothing.
    """
    paths = [path for path in files(folder) if only in path.relative_to(folder).as_posix()]
    origins = {path: names.origin(path, folder, table) for path in paths}
    jobs = {
        (path, each): Job(path, each, tuple(chosen[:most]), origins[path].options, limits)
        for part, most in ((slice(0, 1), None), (slice(1, 2), 1))  # the boards first
        for path in paths
        for each in roundings(path, rounding)[part]
    }
    keys = {place: job.key() for place, job in jobs.items()}
    new: dict[str, Job] = {}  # by the key: a file may be there twice
    if not known:
        new = {keys[place]: job for place, job in jobs.items() if state.get(keys[place]) is None}
    for number, (job, row) in enumerate(run_all(list(new.values()), processes), 1):
        where = job.path.relative_to(folder).as_posix()
        state.add(job.key(), where, row)
        reported = "; ".join(
            [row.refused, *(f"{name} {found.outcome} {found.note}" for name, found in row.boards.items())]
        )
        sys.stderr.write(f"{number}/{len(new)} {where} {job.rounding}: {row.outcome}   {reported.strip('; ')}\n")
    rows: dict[Path, dict[str, results.Row]] = {}
    for (path, each), key in keys.items():
        row = state.get(key)
        if row is not None:
            rows.setdefault(path, {})[each] = row
    models = [page.Tried(origins[path], path.stat().st_size, found) for path, found in rows.items()]
    return sorted(models, key=lambda model: (model.origin.repository, model.origin.path))


def main() -> int:
    """Try a folder; 0 if all that load are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of model files, at any depth")
    parser.add_argument(
        "--board",
        nargs="+",
        choices=boards.load_all(),
        metavar="BOARD",
        default=BOARDS,
        help="the first decides what loads",
    )
    parser.add_argument("--rounding", choices=("onnx", "tflite", "both"), default="both", help="of TFLite models")
    parser.add_argument("--limit-s", type=int, default=900, help="CPU seconds of a file")
    parser.add_argument("--limit-gib", type=int, default=6, help="memory of a file")
    parser.add_argument("--jobs", type=int, default=1, help="files at a time")
    parser.add_argument("--only", default="", help="part of the paths of the files to try")
    parser.add_argument(
        "--names", type=Path, help="tab-separated: repository, path, bytes; options, as of mtool compile"
    )
    parser.add_argument("--state", type=Path, help=f"file of the results; default: {STATE} in the folder")
    parser.add_argument("--known", action="store_true", help="try nothing: print the stored results")
    parser.add_argument("--older", action="store_true", help="take results of other versions of mtool's sources too")
    parser.add_argument("--table", type=Path, help="write the results as a page of Markdown")
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"there is no folder {given.folder}")
    compiler_cache.use()  # most of a project is the same runtime
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    models = tried(
        given.folder,
        results.State(given.state or given.folder / STATE, results.sources_version(ROOT), older=given.older),
        chosen=given.board,
        rounding=given.rounding,
        limits=forks.Limits(given.limit_s, given.limit_gib << 30),
        processes=given.jobs,
        table=names.read(given.names) if given.names else (),
        only=given.only,
        known=given.known,
    )
    if given.table:
        given.table.write_text(page.page(models, given.board))
    print("\n".join(page.figures(models)))
    outcomes = {row.outcome for model in models for row in model.rows.values()}
    return int(bool(outcomes - {"equal", "within", "refused", "not compared", *results.NOT_RUN}))


if __name__ == "__main__":
    sys.exit(main())
