#!/usr/bin/env python3
"""Compare each schedule of a core with portable C at every tail up to two tiles: the table of docs/fuzzing.md.

    scripts/schedule_table.py [--core NAME ...]

Layers have 1 to 34 inputs, 1 to 17 outputs and rows of 1 to 9 pixels, their kernels tails in each direction; every pair
of inputs and outputs occurs. Weights and inputs are at their extremes (all least, all largest, in turns) or random.
Integers are equal to the bit, floats to 2e-5. Ends with exit code 1 if one differs. Takes hours for all cores.
"""

import argparse
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from graphs import Array, lowered  # noqa: E402
from one_firmware import Case, failures  # noqa: E402
from onnx import helper  # noqa: E402
from schedules import DSP, M0, M3, MVE, RV32, RVV, Made, Preferred, planned, quantized, real, sixteen  # noqa: E402

from mtool.compiler.kernels import registry  # noqa: E402
from mtool.compiler.kernels.target import Target  # noqa: E402

PAGE = ROOT / "docs" / "fuzzing.md"
HEAD = "| Schedule | Core | Layers | Inputs | Outputs | Pixels |\n|---|---|---|---|---|---|\n"
CORES: dict[str, tuple[Target, str, tuple[tuple[str, Callable[..., Made]], ...]]] = {
    "m4": (DSP, "mps2_an386", (("dsp", quantized), ("dsp16", sixteen), ("f32", real))),
    "m55": (MVE, "mps3_an547", (("mve", quantized), ("mve16", sixteen), ("mve_f32", real))),
    "m3": (M3, "mps2_an385", (("int", quantized),)),
    "m0plus": (M0, "mps2_an383", (("int", quantized),)),
    "riscv32": (RV32, "qemu_riscv32", (("int", quantized),)),
    "riscv32_v": (RVV, "qemu_riscv32_v", (("rvv", quantized),)),
}
INPUTS, OUTPUTS, PIXELS = 34, 17, 9
KERNELS = ((3, 3), (1, 3), (2, 2), (3, 1), (5, 5), (1, 9))
RANGES = ((-127, 127), (-1, 1), (-2, 1), (-8, 7))  # of weights
AT_ONCE = 100  # cases of a firmware


def layers(make: Callable[..., Made]) -> Iterator[tuple[str, tuple[int, int, int], Made]]:
    """Yield kernel, inputs, outputs and pixels of each layer, and its model."""
    rng = np.random.default_rng(35)
    for number in range(INPUTS * OUTPUTS):
        inputs, outputs, pixels = 1 + number % INPUTS, 1 + number // INPUTS, 1 + number % PIXELS
        sizes = inputs, outputs, pixels
        weights = extremes(rng, RANGES[number // 4 % 4], number % 4)
        nodes = [helper.make_node("MatMul", ["xf", "wf"], ["m"]), helper.make_node("Add", ["m", "bf"], ["c"])]
        rows = 1 + pixels % 3
        yield (
            "dense",
            (inputs, outputs, rows),
            make(rng, (rows, inputs), weights((inputs, outputs)), nodes, False, (rows, outputs)),
        )
        kernel, stride = KERNELS[number % len(KERNELS)], 1 + number // 7 % 2
        for shape, (high, wide), step in (
            ((outputs, inputs, 1, 1), (1, pixels), 1),
            ((outputs, inputs, *kernel), (kernel[0], kernel[1] + pixels - 1), 1),
            ((inputs, 1, *kernel), (kernel[0] + 1, kernel[1] + stride * (pixels - 1)), stride),
        ):
            group = inputs if shape[1] < inputs else 1
            pads = [0, int(shape[3] > 1), 0, int(shape[3] > 2)] if number % 3 == 0 else [0] * 4
            size = [(high - shape[2]) // step + 1, (wide + pads[1] + pads[3] - shape[3]) // step + 1]
            conv = helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=pads, strides=[step] * 2, group=group)
            yield (
                "conv2d",
                sizes,
                make(rng, (1, inputs, high, wide), weights(shape), [conv], False, (1, shape[0], *size)),
            )


def extremes(rng: np.random.Generator, bounds: Sequence[int], kind: int) -> Callable[[Sequence[int]], Array]:
    """Return what makes arrays of int8: all least, all largest, both in turns, or random."""
    least, most = bounds

    def of(shape: Sequence[int]) -> Array:
        if kind == 3:
            return rng.integers(least, most + 1, shape).astype(np.int8)
        values = ([least], [most], [least, most])[kind]
        return np.resize(np.asarray(values, np.int8), shape)

    return of


def feeds_of(feeds: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield inputs: as they are, all least, all largest, both in turns."""
    yield feeds
    for turns in ((0,), (1,), (0, 1)):
        made = {}
        for name, data in feeds.items():
            kind = np.iinfo(data.dtype) if data.dtype.kind in "iu" else None
            ends = (kind.min, kind.max) if kind else (-1, 1)
            made[name] = np.resize(np.asarray([ends[i] for i in turns], data.dtype), data.shape)
        yield made


Tried = tuple[str, Case, tuple[int, int, int]]
"""A schedule, a case, and its layer's sizes."""


def cases(target: Target, prefix: str, make: Callable[..., Made]) -> Iterator[list[Tried]]:
    """Yield the cases of each layer, with each schedule of a family that takes it."""
    made = 0
    for key, sizes, (proto, feeds) in layers(make):
        known = registry.KERNELS[key].schedules
        portable = [schedule for schedule in known if schedule.name.startswith("c99")]
        graph, reference, found = lowered(proto, target), None, []
        for schedule in known:
            if schedule.name.rpartition("_")[0] != prefix or (schedule.core and not target.has(schedule.core)):
                continue
            plan = planned(graph, target, f"case{made}", key, (Preferred(schedule), *portable))
            if all(step.schedule.name != schedule.name for step in plan.steps):
                continue
            reference = reference or planned(graph, target, f"case{made}_c99", key, portable[:1])
            made += 1
            tolerance = 2e-5 if make is real else 0.0
            found += [(schedule.name, Case(plan, reference, given, tolerance), sizes) for given in feeds_of(feeds)]
        yield found


def compare(core: str) -> tuple[dict[str, list[tuple[int, int, int]]], list[str]]:
    """Return the sizes of each schedule's layers, and what differs."""
    target, board, families = CORES[core]
    sizes: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    wrong: list[str] = []

    def run(batch: list[Tried]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wrong.extend(failures([case for _, case, _ in batch], Path(folder), board))

    for prefix, make in families:
        batch: list[Tried] = []
        for found in cases(target, prefix, make):
            batch += found
            for name, _, one in found[:: len(list(feeds_of({})))]:
                sizes[name].append(one)
            if len(batch) >= AT_ONCE:
                run(batch)
                batch = []
        run(batch)
        print(f"{core} {prefix}: {sum(map(len, sizes.values()))} layers, {len(wrong)} wrong", flush=True)
    return sizes, wrong


def row(core: str, name: str, sizes: Sequence[tuple[int, int, int]]) -> str:
    """Return the table's row of a schedule."""
    spans = [f"{min(one)}–{max(one)}" for one in zip(*sizes, strict=True)]
    return f"| `{name}` | {core} | {len(sizes)} | {' | '.join(spans)} |\n"


def main() -> int:
    """Compare, and replace the rows of the cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", action="append", choices=CORES, dest="cores")
    wrong = []
    for core in parser.parse_args().cores or CORES:
        sizes, different = compare(core)
        wrong += different
        text = PAGE.read_text()
        begin = text.index(HEAD) + len(HEAD)
        end = begin + len(re.match(r"(\|.*\n)*", text[begin:])[0])  # type: ignore[index]
        kept = [line for line in text[begin:end].splitlines(keepends=True) if f" | {core} | " not in line]
        rows = sorted([*kept, *(row(core, *one) for one in sizes.items())])
        PAGE.write_text(text[:begin] + "".join(rows) + text[end:])
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
