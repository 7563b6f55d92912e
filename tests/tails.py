"""Each schedule with SIMD against portable C at every size up to two tiles, with the extremes of every operand."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import schedules
from graphs import lowered
from one_firmware import Case, failures
from onnx import helper

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target

# The most channels or elements of a dot product, outputs, and pixels or rows: two vectors of int8, two tiles.
MOST = {"depth": 33, "outputs": 17, "pixels": 9}
FAMILIES = [
    (schedules.DSP, "dsp", "mps2_an386"),
    (schedules.DSP, "dsp16", "mps2_an386"),
    (schedules.DSP, "f32", "mps2_an386"),
    (schedules.MVE, "mve", "mps3_an547"),
    (schedules.MVE, "mve16", "mps3_an547"),
    (schedules.MVE, "mve_f32", "mps3_an547"),
    (schedules.RVV, "rvv", "qemu_riscv32_v"),
]
AT_ONCE = 150  # cases of one firmware
USUAL = {"depth": 7, "outputs": 5, "pixels": 3}


def sizes() -> Iterator[dict[str, int]]:
    """Yield sizes of which one is anything and the others are usual."""
    for name, most in MOST.items():
        yield from (USUAL | {name: value} for value in range(1, most + 1))


def layer(kind: str, size: dict[str, int], make: Any) -> tuple[Any, dict[str, Any]]:
    """Return a layer whose weights and data are extremes: all of a channel or pixel, every other one, or at random."""
    rng = np.random.default_rng(sum(size.values()))
    depth, outputs, pixels = size.values()
    if kind == "dense" and pixels == USUAL["pixels"]:
        pixels = 1  # as most have

    def extremes(shape: tuple[int, ...], least: int, most: int) -> Any:
        rows = rng.choice([least, most], (shape[0], int(np.prod(shape[1:]))))
        for row, value in zip(rows, (least, most), strict=False):
            row[:] = value
        return rows.reshape(shape).astype(np.int8)

    if kind == "dense":
        weights = extremes((outputs, depth), -127, 127).T.copy()
        nodes = [helper.make_node("MatMul", ["xf", "wf"], ["m"]), helper.make_node("Add", ["m", "bf"], ["c"])]
        proto, feeds = make(rng, (pixels, depth), weights, nodes, False, (pixels, outputs))
    else:
        each, side = kind == "depthwise", 1 if kind == "pointwise" else 3
        outputs = depth if each else outputs
        weights = extremes((outputs, 1 if each else depth, side, side), -127, 127)
        pads = [side // 2] * 4
        node = helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=pads, group=depth if each else 1)
        shape = (1, depth, 2 if side == 3 else 1, pixels)
        proto, feeds = make(rng, shape, weights, [node], False, (1, outputs, *shape[2:]))
    for name, data in feeds.items():
        if data.dtype.kind == "i":
            limits = np.iinfo(data.dtype)
            pixel = data.reshape(-1, depth) if kind == "dense" else np.moveaxis(data, 1, -1).reshape(-1, depth)
            pixel = rng.choice([limits.min, limits.max], pixel.shape)
            for row, value in zip(pixel, (limits.min, limits.max), strict=False):
                row[:] = value
            moved = pixel if kind == "dense" else np.moveaxis(pixel.reshape(1, *data.shape[2:], depth), -1, 1)
            feeds[name] = np.ascontiguousarray(moved.astype(data.dtype).reshape(data.shape))
    return proto, feeds


def cases_of(target: Target, prefix: str) -> dict[str, list[Case]]:
    """Return the cases of each schedule of a family."""
    make = {"f32": schedules.real, "mve_f32": schedules.real}.get(prefix, schedules.quantized)
    make = schedules.sixteen if prefix.endswith("16") else make
    known = schedules.schedules_of(target, prefix, None, turned=False)
    found = defaultdict(list)
    kinds = ("pointwise", "patch", "depthwise", "dense")
    for number, (kind, size) in enumerate(itertools.product(kinds, sizes())):
        key = "dense" if kind == "dense" else "conv2d"
        proto, feeds = layer(kind, size, make)
        graph = lowered(proto, target)
        portable = [one for one in registry.KERNELS[key].schedules if one.name.startswith("c99")]
        reference = schedules.planned(graph, target, f"tail{number}_c99", key, portable[:1])
        for label, schedule in known[key]:
            name = f"tail{number}_{label}"
            plan = schedules.planned(graph, target, name, key, (schedules.Preferred(schedule), *portable))
            if any(step.schedule.name == schedule.name for step in plan.steps):
                found[label].append(Case(plan, reference, feeds, 2e-5 if make is schedules.real else 0.0))
    return found


def compared(target: Target, prefix: str, board: str, folder: Path) -> tuple[dict[str, int], list[str]]:
    """Run the cases in a board's emulator; return how many each schedule has, and what is wrong."""
    found = cases_of(target, prefix)
    cases = [case for cases in found.values() for case in cases]
    wrong = []
    for first in range(0, len(cases), AT_ONCE):
        wrong += failures(cases[first : first + AT_ONCE], folder, board)
    return {label: len(cases) for label, cases in found.items()}, wrong
