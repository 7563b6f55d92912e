"""Each schedule beside portable C against it, at every size up to two tiles, with the extremes of every operand.

The schedules are those that are registered, so that a new one is missing in the table of docs/proofs.md until it is
compared. A schedule is tried as it is, and with one of its knobs turned.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import schedules
from binary import SIGN, binary
from graphs import Array, lowered, model
from one_firmware import Case, failures
from onnx import TensorProto, helper
from schedules import Made, case_of, planned, pool, portable, product, quantized, real, rescaled, sixteen, unsigned

from mtool.compiler import passes
from mtool.compiler.frontend import ModelOptions, from_proto
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Schedule
from mtool.compiler.kernels.target import Target

F = np.float32
# The first words of schedules' names, a target that has them, and its emulator; None: the host, under the sanitizers.
# The most inputs, outputs, and pixels or rows: two vectors or tiles and one more; numbers without a common divisor.
CORES: tuple[tuple[tuple[str, ...], Target, str | None, tuple[int, int, int]], ...] = (
    (("int",), schedules.M3, "mps2_an385", (33, 17, 13)),
    (("dsp", "dsp16", "f32"), schedules.DSP, "mps2_an386", (33, 17, 13)),
    (("mve", "mve16"), schedules.MVE, "mps3_an547", (33, 17, 13)),
    (("rvv",), schedules.RVV, "qemu_riscv32_v", (33, 67, 13)),
    (("simd",), schedules.SIMD, None, (33, 17, 13)),
)
RANGES = ((-127, 127), (-128, 127), (-8, 7), (-2, 1), (-1, 1))  # of weights
LAYERS, TRIED = 66, 11  # of each kind; until it is left out if no schedule of the core has taken one
KERNELS = ((3, 3), (1, 3), (3, 3), (2, 2), (3, 3), (3, 1), (3, 3), (5, 5), (3, 3), (1, 9))
STATE = ModelOptions(states=(("next", "state"),))  # of `shifted`
GROUPS, STRIDES = (1, 1, 1, 2), (1, 1, 2)
AT_ONCE, BYTES = 120, 300_000  # cases of one firmware, and the bytes of their arenas and constants
PAGE = Path(__file__).parents[1] / "docs" / "proofs.md"
HEAD = (
    "| kernel | schedule | emulator | layers | inputs | outputs | rows | different |\n"
    "|---|---|---|--:|--:|--:|--:|--:|\n"
)


def registered() -> dict[tuple[str, str], Schedule]:
    """Return the schedules that are compared, by kernel and name."""
    found = ((key, schedule) for key, kernel in registry.KERNELS.items() for schedule in kernel.schedules)
    return {(key, schedule.name): schedule for key, schedule in found if not schedule.name.startswith("c99_")}


def sums(make: Callable[..., Made], rng: np.random.Generator, *layer: Any) -> Made:
    """Return a layer whose sums become floats."""
    proto, feeds = make(rng, *layer[:3], False, layer[4])
    last = proto.graph.node[-1]
    last.CopyFrom(helper.make_node("Identity", last.input[:1], ["y"]))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return proto, feeds


def bytes_of(rng: np.random.Generator, *layer: Any) -> Made:
    """Return a layer of int8, or of uint8, or as TFLite rounds."""
    return (quantized, quantized, quantized, quantized, unsigned, rescaled, rescaled)[rng.integers(7)](rng, *layer)


def signs(rng: np.random.Generator, shape: Sequence[int], weights: Array, nodes: list[Any], *rest: Any) -> Made:
    """Return a layer of signs by signs."""
    axis = 0 if nodes[0].op_type == "Conv" else 1
    outputs = weights.shape[axis]
    scale = rng.uniform(0.005, 0.02, outputs).astype(F)
    constants = {"w": np.where(weights < 0, -1, 1).astype(np.int8), "wz": np.zeros(outputs, np.int8), "ws": scale}
    constants["bf"] = (rng.normal(0, 0.3, outputs) * scale * weights.size / outputs).astype(F)
    nodes[0].input[0], nodes[-1].output[0] = "a", "t"  # as binary() and SIGN have them
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis), *nodes, *SIGN]
    return binary(nodes, shape, constants, 1.0), {"x": rng.normal(size=shape).astype(F)}


def extreme(rng: np.random.Generator, shape: Sequence[int], ends: Sequence[int], axis: int, first: int) -> Array:
    """Return an array of the ends alone: lines along an axis of one end, then of the other, then of both at random."""
    size = shape[axis]
    rows = rng.choice(ends, (math.prod(shape) // size, size))
    for number, row in enumerate(rows[:2]):
        row[:] = ends[(first + number) % 2]
    others = [length for dim, length in enumerate(shape) if dim != axis % len(shape)]
    return np.ascontiguousarray(np.moveaxis(rows.reshape(*others, size), -1, axis))


def convolution(
    kind: str,
    make: Callable[..., Made],
    rng: np.random.Generator,
    number: int,
    depth: int,
    outputs: int,
    pixels: int,
    kernel: tuple[int, ...] = (),
) -> Made:
    """Return a convolution; a given kernel goes without padding."""
    each, stride = kind == "depthwise", STRIDES[number % len(STRIDES)]
    group = depth if each else GROUPS[number % len(GROUPS)] if kind == "patch" and not kernel else 1
    channels, outputs = (depth, depth) if each else (group * depth, group * outputs)
    pads = [0, 0] if kernel or number % 3 == 0 else None
    kernel = kernel or ((1, 1) if kind == "1x1" else KERNELS[number % len(KERNELS)])
    pads = pads or [side // 2 for side in kernel]
    wanted = (1 + number % 3, pixels)
    size = [max(1, (n - 1) * stride + side - 2 * pad) for n, side, pad in zip(wanted, kernel, pads, strict=True)]
    made = [(n + 2 * pad - side) // stride + 1 for n, side, pad in zip(size, kernel, pads, strict=True)]
    inputs = math.prod(kernel) * channels // group
    weights = extreme(rng, (outputs, inputs), RANGES[number % len(RANGES)], -1, number).astype(np.int8)
    node = helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=pads * 2, strides=[stride] * 2, group=group)
    weights = weights.reshape(outputs, channels // group, *kernel)
    return make(rng, (1, channels, *size), weights, [node], number % 4 == 1, (1, outputs, *made))


def aligned(kind: str, rng: np.random.Generator, number: int, depth: int, outputs: int, pixels: int) -> Made:
    """Return a convolution with sizes that whole tiles and vectors need."""
    channels = {"1x1": 2 * depth, "patch": 1 + depth % 5, "depthwise": round_up(depth, 8)}[kind]
    kernel = {"1x1": (1, 1), "patch": (3, 3), "depthwise": ((1, 3), (3, 1), (1, 9))[number % 3]}[kind]
    return convolution(kind, quantized, rng, number, channels, round_up(outputs, 4), pixels, kernel)


def dense(
    make: Callable[..., Made], rng: np.random.Generator, number: int, depth: int, outputs: int, pixels: int
) -> Made:
    weights = extreme(rng, (depth, outputs), RANGES[number % len(RANGES)], 0, number).astype(np.int8)
    nodes = [helper.make_node("MatMul", ["xf", "wf"], ["m"]), helper.make_node("Add", ["m", "bf"], ["c"])]
    rows = pixels if make is real else 1  # more of integers are a convolution
    return make(rng, (rows, depth), weights, nodes, number % 4 == 1, (rows, outputs))


LOOPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Add", "xz", {}),
    ("Mul", "xz", {}),
    ("Sigmoid", "x", {}),
    ("Transpose", "x", {"perm": [0, 2, 1]}),
    ("ReduceMean", "x", {"axes": [1]}),
    ("ReduceMax", "x", {"axes": [0]}),
    ("LayerNormalization", "xw", {}),
)


def loop(is_float: bool, rng: np.random.Generator, number: int, depth: int, outputs: int, pixels: int) -> Made:
    """Return an operator of LOOPS."""
    op, operands, attributes = LOOPS[number % len(LOOPS)]
    return single(op, operands, attributes, is_float, rng, (outputs, pixels, depth))


def softmax(rng: np.random.Generator, number: int, depth: int, outputs: int, pixels: int) -> Made:
    return single("Softmax", "x", {}, False, rng, (pixels, depth))


def single(
    op: str, operands: str, attributes: dict[str, Any], is_float: bool, rng: np.random.Generator, shape: Sequence[int]
) -> Made:
    """Return an operator of floats or int8; of its operands, w is a constant of the last dimension."""
    inputs = [name for name in operands if name != "w"]
    names = [name if is_float or name == "w" else f"{name}f" for name in operands]
    nodes = [helper.make_node(op, names, ["y" if is_float else "m"], **attributes)]
    constants: dict[str, Any] = {"w": rng.uniform(0.5, 1.5, shape[-1]).astype(F)} if "w" in operands else {}
    if not is_float:
        read = [helper.make_node("DequantizeLinear", [name, "s", "z0"], [f"{name}f"]) for name in inputs]
        nodes = [*read, *nodes, helper.make_node("QuantizeLinear", ["m", "t", "z0"], ["y"])]
        constants |= {"s": F(0.05), "z0": np.int8(rng.integers(-128, 128)), "t": F(rng.uniform(0.01, 0.1))}
    dtype = F if is_float else np.int8
    data = {name: rng.normal(size=shape) if is_float else rng.integers(-128, 128, shape) for name in inputs}
    feeds = {name: one.astype(dtype) for name, one in data.items()}
    return model(nodes, dict.fromkeys(feeds, (dtype, shape)), ["y"], constants), feeds


def shifted(rng: np.random.Generator, number: int, depth: int, outputs: int, pixels: int) -> Made:
    """Return rows that are moved behind a state."""
    dtype = (np.int8, np.int16, F)[number % 3]
    nodes = [
        helper.make_node("Concat", ["state", "x"], ["w"], axis=0),
        helper.make_node("Slice", ["w", "first", "end", "axis"], ["y"]),
        helper.make_node("Slice", ["w", "last", "end", "axis"], ["next"]),
    ]
    constants = {name: np.array([n]) for name, n in {"first": 1, "last": pixels, "end": pixels + 1, "axis": 0}.items()}
    inputs = {"x": (dtype, (pixels, depth)), "state": (dtype, (1, depth))}
    x = rng.integers(-128, 128, (pixels, depth)).astype(dtype)
    return model(nodes, inputs, ["y", "next"], constants), {"x": x}


def window(
    kind: str, make: Callable[..., Made], rng: np.random.Generator, number: int, depth: int, outputs: int, pixels: int
) -> Made:
    return pool(rng, make, depth * (1, 4)[number % 2], kind)


MAKES = (bytes_of, sixteen, partial(sums, sixteen), real, signs, partial(sums, quantized))
# Each kernel's forms, of which a schedule has all sizes, and their layers.
KINDS: tuple[tuple[str, str, Callable[..., Made]], ...] = (
    *(
        ("conv2d", f"{number}", partial(convolution, kind, make))
        for kind in ("1x1", "patch", "depthwise")
        for number, make in enumerate(MAKES[:-1])
    ),
    *(("conv2d", "0", partial(aligned, kind)) for kind in ("1x1", "patch", "depthwise")),
    *(("dense", f"{number}", partial(dense, make)) for number, make in enumerate(MAKES)),
    ("matmul", "", lambda rng, number, depth, outputs, pixels: product(rng, (pixels, depth, outputs))),
    *(
        ("pool2d", f"{kind}{make.__name__}", partial(window, kind, make))
        for kind in ("MaxPool", "AveragePool")
        for make in (quantized, real)
    ),
    ("softmax", "", softmax),
    ("loop", "move", shifted),
    *(("loop", f"{is_float}", partial(loop, is_float)) for is_float in (False, True)),
)


@dataclass
class Covered:
    """A schedule's cases, and the sizes of their layers: by form or knob, and the number of the size."""

    cases: list[Case] = field(default_factory=list)
    layers: int = 0
    seen: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def counts(self) -> list[int]:
        """The number of different sizes."""
        return [len({size for *_, n, size in self.seen if n == dim}) for dim in range(3)]


def settings(schedule: Any, number: int) -> Iterator[tuple[str, Any]]:
    """Yield a schedule as it is, and every fourth time with a knob turned in some way, and the knob."""
    yield "", schedule
    knobs = list(schedule.knobs().items()) if number % 4 == 3 else []
    for name, knob in knobs[number // 4 % max(1, len(knobs)) :][:1]:
        yield name, replace(schedule, **{name: knob.values[1 + number % (len(knob.values) - 1)]})


def extremes(rng: np.random.Generator, feeds: dict[str, Array], number: int) -> dict[str, Array]:
    """Return inputs of extremes, pixel by pixel or row by row."""
    found = {}
    for name, data in feeds.items():
        kind = np.iinfo(data.dtype) if data.dtype.kind in "iu" else None
        axis = 1 if data.ndim == 4 else -1
        found[name] = extreme(rng, data.shape, (kind.min, kind.max) if kind else (-1, 1), axis, number).astype(
            data.dtype
        )
    return found


def cases_of(
    words: Sequence[str], target: Target, most: Sequence[int], numbers: Sequence[int]
) -> dict[tuple[str, str], Covered]:
    """Return the cases of each schedule of a core: the layers of a form whose sizes it did not have."""
    found = {key: Covered() for key in registered() if key[1].partition("_")[0] in words}
    tried: Counter[int] = Counter()
    turns = range(len(KINDS))
    for number, order in ((number, (number + turn) % len(KINDS)) for number in numbers for turn in turns):
        kernel, form, make = KINDS[order]
        own = [one for (key, name), one in registered().items() if key == kernel and (key, name) in found]
        tried[order] += 1
        if not own or tried[order] > TRIED:
            continue
        rng, name = np.random.default_rng((number, order)), f"{kernel}{order}_{number}"
        proto, feeds = make(rng, number, *(1 + number % one for one in most))
        graph = passes.run(from_proto(proto, "test", STATE), target) if make is shifted else lowered(proto, target)
        reference = None
        for knob, one in (turned for schedule in own for turned in settings(schedule, number)):
            covered = found[kernel, one.name]
            taken = (node for node in graph.nodes if node.op == kernel and one.supports(node, graph, target))
            sizes = {(knob or form, *size) for node in taken for size in sizes_of(node, graph)}
            if sizes <= covered.seen:
                continue
            reference = reference or planned(graph, target, f"{name}_c99", kernel, portable(kernel))
            label = f"{name}_{one.name}{'_' if knob else ''}{knob}"
            case = case_of(graph, target, label, kernel, one, reference, feeds)
            if case is not None:
                tried[order] = -LAYERS
                covered.seen |= sizes
                covered.layers += 1
                covered.cases += [case, replace(case, feeds=extremes(rng, feeds, number))]
    return found


def sizes_of(node: Node, graph: Graph) -> set[tuple[int, int]]:
    """Return the sizes of the input's last dimension, the output's, and the one before, each with its number."""
    x, y = (graph.types[value].shape for value in (node.inputs[0], node.outputs[0]))
    return {(number, size) for number, part in enumerate((x[-1:], y[-1:], y[-2:-1])) for size in part}


def batches(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield the cases of one firmware after another."""
    batch, size = list[Case](), 0
    for case in cases:
        batch.append(case)
        size += sum(
            plan.arena_bytes + sum(data.nbytes for data in plan.graph.constants.values())
            for plan in (case.plan, case.reference)
        )
        if len(batch) >= AT_ONCE or size > BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def compared(core: int, folder: Path, numbers: Sequence[int]) -> Iterator[tuple[list[str], list[str]]]:
    """Run the cases of a core; yield each schedule's row of the table, and what is different."""
    words, target, board, most = CORES[core]
    for (kernel, name), covered in cases_of(words, target, most, numbers).items():
        wrong = [line for batch in batches(covered.cases) for line in failures(batch, folder, board)]
        counts = map(str, (covered.layers, *covered.counts, len(wrong)))
        yield [kernel, f"`{name}`", board or "host", *counts], wrong


def table() -> list[list[str]]:
    """Return the rows of the page's table."""
    lines = itertools.takewhile(bool, PAGE.read_text().partition(HEAD)[2].splitlines())
    return [line.strip("| ").split(" | ") for line in lines]
