"""Schedules whose constants are stored in few bits, and unpacked in working memory before each call."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mtool.base.frozen import frozen
from mtool.base.option_values import PACKED, WEIGHTS, Compress
from mtool.compiler.ir import Array, Graph, Node
from mtool.compiler.ir.control import all_graphs
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.few_bits import Packed, Weights, packed_powers, packed_stream
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Argument, Kernel, Knob, Schedule
from mtool.compiler.kernels.specification import Channels
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import WeightedSum, as_computed
from mtool.compiler.plan.function_knobs import KNOBS, Around, Built

MOST_BITS = 4
_SOFT_PRODUCT = 60  # instructions of a product of floats without an FPU
LEAST_SAVED = 1 / 8
"""What packing has to save of a model's constants if all of its weights have more than four bits."""


@frozen
class Way:
    """A way to pack constants: how they are stored, and the blocks of outputs that are computed one after the other."""

    coding: Compress = "auto"
    blocks: int = 1


AUTO = Way()


@frozen
class Block:
    """Some output channels of a node, as a separate node; `graph` has its constants and the output's shape."""

    node: Node
    graph: Graph


@dataclass(eq=False)
class Unpacking(Around):
    """A schedule that unpacks its constants into its scratch, at once or for some output channels at a time.

    Attributes:
        inner: the schedule.
        blocks: the nodes that are computed one after the other, by the same code.
        constants: by their names in the kernel, the packed ones of each block.
        scratch: the scratch of `inner`, rounded up.
    """

    inner: Schedule
    blocks: tuple[Block, ...]
    constants: Mapping[str, tuple[Packed, ...]]
    scratch: int
    weights: str = PACKED

    @classmethod
    def of(cls, schedule: Schedule, node: Node, graph: Graph, target: Target, way: Way = AUTO) -> "Unpacking | None":
        """Return a node's schedule with its constants packed in some way.

        None: they have too many bits, or are too few, or are not computed so.
        """
        count, can_be_packed = way.blocks, Weights.of(node, graph).can_be_packed(way.coding)
        if not can_be_packed and node.op != "softmax":
            return None
        blocks = _blocks(node, graph, count)
        if not blocks or not all(schedule.supports(block.node, block.graph, target) for block in blocks):
            return None
        kernels = [schedule.emit(block.node, block.graph, target) for block in blocks]
        constants: dict[str, tuple[Packed, ...]] = {}
        if not _are_alike(kernels):
            return None
        each_weights = [Weights.of(block.node, block.graph) for block in blocks]
        for name, layout in ((name, kernels[0].layouts.get(name, "")) for name in kernels[0].constants):
            attempts = [
                packed_powers(kernel.constants[name], 2 if target.has_float else _SOFT_PRODUCT)
                or (packed_stream(kernel.constants[name], weights, way.coding) if can_be_packed else None)
                for kernel, weights in zip(kernels, each_weights, strict=True)
            ]
            packed = [part for part in attempts if part is not None]
            if layout.startswith("aligned"):
                if count > 1:
                    return None
            elif len(packed) == count:
                constants[name] = (*packed,)
        first = blocks[0]
        return (
            cls(schedule, blocks, constants, round_up(schedule.scratch_bytes(first.node, first.graph), 4))
            if constants
            else None
        )

    @property
    def _pixels(self) -> int:
        """The pixels for which a block has results, stored apart; 0: its results are contiguous."""
        kind = self.blocks[0].graph.types[self.blocks[0].node.outputs[0]]
        pixels = kind.count // kind.shape[-1] if len(self.blocks) > 1 else 1
        return pixels if pixels > 1 else 0

    def knobs(self) -> Mapping[str, Knob]:
        """The schedule's knobs, and that of its constants."""
        return {**self.inner.knobs(), WEIGHTS: KNOBS[WEIGHTS]}

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """The schedule's own; none in blocks, since each reads the whole input."""
        return self.inner.in_place(node, graph) if len(self.blocks) == 1 else ()

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """The same for all outputs."""
        return self.inner.overwrites(node, graph) if len(self.blocks) == 1 else ()

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """The schedule's own, without what is saved."""
        return self.inner.grown_bytes(node, graph) - sum(
            part.saved_bytes for parts in self.constants.values() for part in parts
        )

    def constant_passes(self, node: Node, graph: Graph) -> int:
        """Once."""
        return 1

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The schedule's own, the unpacked constants, and a block's results if they lie apart in the output."""
        first = self.blocks[0]
        results = first.graph.types[first.node.outputs[0]].bytes if self._pixels else 0
        return self.scratch + results + sum(4 * max(part.words for part in parts) for parts in self.constants.values())

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The schedule's own, unpacking, and the copies of results."""
        cost = sum(self.inner.cost(block.node, block.graph, target) for block in self.blocks)
        copies = self._pixels * len(self.blocks) * (20 + graph.types[node.outputs[0]].shape[-1] / len(self.blocks))
        return cost + copies + sum(part.instructions for parts in self.constants.values() for part in parts)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the schedule's C behind calls that unpack the constants, in a loop if there are several blocks."""
        kernels = [self.inner.emit(block.node, block.graph, target) for block in self.blocks]
        kernel, count, constants, layouts = kernels[0], len(kernels), dict[str, Array](), dict(kernels[0].layouts)
        arguments, before, after, place = list[Argument](), list[str](), list[str](), self.scratch
        arguments_of_kernel = kernel.arguments
        if not any(arg.source == "scratch" for arg in arguments_of_kernel):
            arguments_of_kernel = (*arguments_of_kernel, Argument("scratch", "uint32_t", "scratch"))
        # the kernel may move its pointers: in blocks, it has copies of the parameters
        outer = {arg.name: f"block_{arg.name}" if count > 1 else arg.name for arg in arguments_of_kernel}
        scratch = next(outer[arg.name] for arg in arguments_of_kernel if arg.source == "scratch")
        for arg in arguments_of_kernel:
            name = str(arg.source[1]) if arg.source[0] == "constant" else ""
            at = f"(uint8_t *){scratch} + {place}" if place else scratch
            data = [k.constants[name] for k in kernels] if name else []
            passed, pointer = replace(arg, name=outer[arg.name]), outer[arg.name]
            if name in self.constants:
                packed, passed = self.constants[name], Argument(f"packed_{arg.name}", "uint32_t", arg.source)
                call = f"{packed[0].function}({at}, {passed.name});"
                before.append(f"{passed.name} = {call}" if count > 1 else call)
                pointer = f"(const {arg.c_type} *)({at})"
                place += 4 * max(part.words for part in packed)
                data = [part.data for part in packed]
                layout = layouts.get(name, "")
                layouts[name] = f"packed, unpacked at run time{f'; then {layout}' if layout else ''}"
            elif any(not np.array_equal(table, data[0]) for table in data):
                after.append(f"{passed.name} += {data[0].size};")
            else:
                data = data[:1]
            if name:
                constants[name] = np.concatenate([table.reshape(-1) for table in data]) if len(data) > 1 else data[0]
            if arg.source == "output" and count > 1:
                kind = self.blocks[0].graph.types[node.outputs[0]]
                if self._pixels:
                    channels, to = kind.shape[-1], f"{passed.name} + block_pixel * {kind.shape[-1] * count}"
                    pointer = results = f"({arg.c_type} *)((uint8_t *){scratch} + {self._results})"
                    after += [
                        f"for (int32_t block_pixel = 0; block_pixel < {self._pixels}; ++block_pixel)",
                        f"    memcpy({to}, {results} + block_pixel * {channels}, {channels * kind.dtype.size});",
                    ]
                after.append(f"{passed.name} += {kind.shape[-1]};")
            if pointer != arg.name and arg in kernel.arguments:
                before.append(f"{arg.declaration} = {pointer};")
            arguments.append(passed)
        body = _lines(before, 1) + kernel.body
        if count > 1:
            inner = textwrap.indent(kernel.body, "    " * 2)
            head = f"    for (int32_t blocks_left = {count}; blocks_left > 0; --blocks_left) {{\n"
            body = f"{head}{_lines(before, 2)}        {{\n{inner}\n        }}\n{_lines(after, 2)}    }}\n"
        return replace(
            kernel,
            arguments=tuple(arguments),
            body=body,
            constants=constants,
            headers=(*kernel.headers, "mt_unpack.h"),
            layouts=layouts,
        )

    @property
    def _results(self) -> int:
        """The place of a block's results in the scratch."""
        return self.scratch + sum(4 * max(part.words for part in parts) for parts in self.constants.values())


def _lines(lines: list[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def _are_alike(kernels: list[Kernel]) -> bool:
    """Whether blocks can be computed by one function: their code is the same, and so are their constants' shapes."""

    def like(kernel: Kernel) -> object:
        shapes = [(name, data.shape, data.dtype) for name, data in kernel.constants.items()]
        return replace(kernel, constants={}), shapes

    return all(like(kernel) == like(kernels[0]) for kernel in kernels) and (
        len(kernels) == 1 or ("return" not in kernels[0].body and not kernels[0].can_fail)
    )


def _blocks(node: Node, graph: Graph, count: int) -> tuple[Block, ...]:
    """Return a node in `count` blocks of output channels; (): it can't be."""
    if count == 1:
        return (Block(node, graph),)
    if not isinstance(node.attrs, WeightedSum) or len(node.outputs) > 1:
        return ()
    kind, epilogue = graph.types[node.outputs[0]], node.attrs.epilogue
    width, last = kind.shape[-1] // count, len(kind.shape) - 1
    if width * count != kind.shape[-1] or registry.SPECIFICATIONS[node.op].channels(node, graph) is not Channels.ALL:
        return ()
    cut = {node.inputs[1]: 0, node.inputs[2]: 0}
    for part in epilogue.walk():
        value = node.inputs[part.value] if part.op == "load" else ""
        if any(arg.op == "axis" and arg.value == last for arg in part.args):
            if value not in graph.constants or part.value < 3:
                return ()
            if graph.types[value].shape[-1] > 1:
                cut[value] = -1
    if any(value not in graph.constants for value in node.inputs[1:]):
        return ()
    blocks = []
    for first in range(0, kind.shape[-1], width):
        constants, types = dict(graph.constants), dict(graph.types)
        for value, axis in cut.items():
            data = constants[value]
            constants[value] = (
                data[first : first + width] if axis == 0 else np.ascontiguousarray(data[..., first : first + width])
            )
            types[value] = replace(types[value], shape=constants[value].shape)
        types[node.outputs[0]] = replace(kind, shape=(*kind.shape[:-1], width))
        blocks.append(Block(as_computed(node), replace(graph, constants=constants, types=types)))
    return (*blocks,)


def packed(schedule: Schedule, node: Node, graph: Graph, target: Target, way: Way = AUTO) -> Schedule | None:
    """Return a node's schedule with its constants packed in some way; None: they can't be, or are already."""
    if is_packed(schedule):
        return None
    has_fields = way.blocks == 1 and way.coding in ("auto", "fields")
    coded: Any = schedule.in_few_bits(node, graph, target) if has_fields else None
    coded = coded or Unpacking.of(schedule, node, graph, target, way)
    result: Schedule | None = coded
    return result


def can_be_packed(graph: Graph, coding: Compress) -> bool:
    """Whether a graph, or an inner one, has weights that can be packed in a way, and are enough of its constants."""
    graphs = [*all_graphs(graph)]
    candidates = [Weights.of(node, part) for part in graphs for node in part.nodes]
    candidates = [weights for weights in candidates if weights.can_be_packed(coding)]
    if coding != "auto" or any(weights.bits for weights in candidates):
        return bool(candidates)
    least = LEAST_SAVED * sum(data.nbytes for part in graphs for data in part.constants.values())
    return sum(weights.by_channel.nbytes for weights in candidates if weights.by_channel is not None) >= least > 0


def is_packed(schedule: Schedule) -> bool:
    """Whether a schedule unpacks its constants."""
    inner = schedule.inner if isinstance(schedule, Built) else schedule
    return isinstance(inner, Unpacking) or bool(getattr(inner, "bits", 0))
