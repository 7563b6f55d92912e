"""Count the instructions of each operator for many inputs, on emulated boards, and write docs/timing-table.md.

    scripts/timing_table.py [--inputs N]

Each operator is one of the random nodes that its record has for tests, all in one firmware. Its inputs are random, and
extreme: zeros, the least and the largest values, floats of all magnitudes.
"""

import argparse
import concurrent.futures
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from mtool import boards  # noqa: E402
from mtool.base.errors import MtoolError  # noqa: E402
from mtool.compiler.compilation import target_of  # noqa: E402
from mtool.plugins.onnx_backend import firmware  # noqa: E402
from tests.compiler.operators.test_cases import DRAWN, drawn  # noqa: E402
from tests.graphs import Array  # noqa: E402
from tests.onnx_suite.running import compiled  # noqa: E402

PAGE = ROOT / "docs" / "timing-table.md"
BOARDS = {"mps2_an386": "Cortex-M4 with FPU", "mps2_an383": "Cortex-M0+", "qemu_riscv32": "RV32IMC"}
FIXED = "fixed"
SEED = 100
_REPEAT = 10  # inferences for one reading of a timer that does not count single instructions
_FLOATS = (0.0, 1000.0, -1000.0, 1e-41, -1e-30, 3e38, -3e38)  # the first inputs; NaN and infinity are left out

Counts = tuple[float, float]
"""The least and the largest number of instructions, with about a hundred to take the inputs."""


def measure(board_name: str, inputs: int, seed: int = 0) -> dict[str, Counts]:
    """Return the instructions of each operator over a number of inputs; those without inputs are left out."""
    board = boards.get(board_name)
    cases = [drawn(op, SEED) for op in DRAWN.values()]
    made = [compiled(case, f"m{number}", target_of(board)) for number, case in enumerate(cases)]
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="mtool-timing-") as folder,
        firmware.build([one.model for one in made], Path(folder) / "project", board) as built,
    ):
        request = built.device.manifest.inputs[0]
        repeat = _REPEAT if built.device.time(1, 1).granularity > 1 else 1
        for number, (case, one) in enumerate(zip(cases, made, strict=True)):
            given = [np.asarray(case.data[0][0][index]) for index in one.model.fed]
            counts = []
            for arrays in varied(given, inputs, np.random.default_rng(seed)):
                data = number.to_bytes(4, "little") + b"".join(array.tobytes() for array in arrays)
                sent = np.frombuffer(data.ljust(request.bytes, b"\0"), np.uint8)
                counts.append(built.device.time(repeat, 1, inputs={request.name: sent}))
            medians = [timing.median for timing in counts]
            if given:
                least, most = min(medians), max(medians)
                exact = counts[0].granularity / counts[0].number
                found[case.name.removeprefix(".")] = (least, least if most - least <= exact else most)
    return found


def varied(given: Sequence[Array], count: int, random: np.random.Generator) -> Iterator[list[Array]]:
    """Yield inputs like the given ones: first extreme ones, then random ones."""
    for number in range(count):
        yield [_varied(array, number, random) for array in given]


def _varied(array: Array, number: int, random: np.random.Generator) -> Array:
    dtype, shape = array.dtype, array.shape
    if dtype.kind == "f":
        extreme = number < len(_FLOATS)
        scale = float(random.choice((0.1, 1.0, 10.0, 1000.0)))
        values = np.full(shape, _FLOATS[number]) if extreme else random.normal(0, scale, shape)
        return np.clip(values, np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool) if number else np.zeros(shape, bool)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = random.integers(limits.min, limits.max, shape, endpoint=True)
        return np.asarray(
            {0: 0 * values, 1: 0 * values + limits.min, 2: 0 * values + limits.max}.get(number, values), dtype
        )
    return array if number == 0 else random.permutation(array.ravel()).reshape(shape)  # they may be indices


def cell(counts: Counts | None) -> str:
    """Return a cell of the table."""
    if counts is None:
        return ""
    least, most = counts
    return FIXED if least == most else f"{least:,.0f} to {most:,.0f}"


def page(found: Mapping[str, Mapping[str, Counts]], inputs: int) -> str:
    """Return the page."""
    names = sorted({name for each in found.values() for name in each}, key=str.lower)
    rows = [f"| {name} | {' | '.join(cell(found[board].get(name)) for board in BOARDS)} |" for name in names]
    fixed = [sum(cell(found[board].get(name)) == FIXED for name in names) for board in BOARDS]
    counted = ", ".join(f"{count} on {core}" for count, core in zip(fixed, BOARDS.values(), strict=True))
    return "\n".join(
        [
            "# Instructions by input",
            "",
            "Which operators take the same number of instructions for every input. Read this page to plan for a",
            f"deadline. `make timing-table` writes it: one small node of each operator, {inputs:,} inputs, random and",
            "extreme: zeros, least and largest values, floats of all magnitudes but no NaN. `mtool bench` does the",
            "same with a few inputs of your model.",
            "",
            f"Of {len(names)} operators, these are *{FIXED}*: {counted}.",
            "Others show the least and the largest number. A Loop or an If with other bodies may differ more.",
            "",
            f"| operator | {' | '.join(BOARDS.values())} |",
            f"|---|{'--:|' * len(BOARDS)}",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1000)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with concurrent.futures.ProcessPoolExecutor(len(BOARDS)) as pool:
                counts = pool.map(measure, BOARDS, [options.inputs] * len(BOARDS))
                found = dict(zip(BOARDS, counts, strict=True))
        except MtoolError as failed:
            print(failed, file=sys.stderr)
            return failed.exit_code
    PAGE.write_text(page(found, options.inputs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
