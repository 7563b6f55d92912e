"""Spend flash and RAM to save time: operators with constants larger than their weights, or transformed in RAM."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

from mtool.base.frozen import frozen
from mtool.base.option_values import Compress, Optimize
from mtool.boards import Board
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.control import Control, all_graphs
from mtool.compiler.ir.node import View
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.few_bits import Weights
from mtool.compiler.kernels.schedule import Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.function_knobs import RAM, built
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import ConstantReads
from mtool.compiler.plan.step import Step
from mtool.compiler.plan.unpacked import LEAST_SAVED, Way, packed

# Flash or working memory for time: the operators that may have constants larger than their weights, or that transform
# their weights at run time, since either saves instructions.
#
# "speed" takes all larger constants that fit in the board's flash, those that save most per byte first, and working
# memory for the other operators. "balanced" takes working memory, and then larger constants within a share of the
# model's weights. It leaves out what takes a larger share of a memory than it saves of the instructions: half of
# the memory for a tenth of the time is a bad bargain, a hundredth of it a good one. "size" takes none.


CODE_BYTES = 64 * 1024
"""Flash that is reserved for code."""
OWN_CODE_BYTES = 2 * 1024
"""Additional code of such an operator, with its share of common functions."""
MOST_GROWN = 0.1
"""The share of the weights by which they may grow for time; their padding and scalings take about 5% more."""
ALWAYS_BYTES = 10 * 1024
"""Working memory that is worth its size in models with fewer constants too."""
UNKNOWN_FLASH_BYTES = 1024 * 1024
"""The flash that is assumed if it is unknown, as in a package for several chips."""
UNKNOWN_RAM_BYTES = 256 * 1024

Grown = tuple[tuple[str, Schedule], ...]
"""Operators that may take memory for time, with their schedules."""


@frozen
class Offer:
    """The share of the model's instructions that an operator saves, the additional bytes it takes, its schedule."""

    operator: str
    saved: float
    bytes: int
    schedule: Schedule | None = None


@frozen
class Offers:
    """The offers of a model: of flash, and of working memory, in which operators transform their weights at run time.

    `constant_bytes` are those of its constants without them.
    """

    in_flash: tuple[Offer, ...]
    constant_bytes: int
    at_run_time: tuple[Offer, ...] = ()

    def accepted(self, optimize: Optimize, flash_bytes: int | None, ram_bytes: int | None) -> Grown:
        """Return the operators that may take memory, with their schedules.

        Args:
            optimize: the optimization goal.
            flash_bytes: the board's flash; None: unknown.
            ram_bytes: the memory of the arena; None: unknown.
        """
        if optimize == "size":
            return ()
        if flash_bytes is None and optimize == "speed":
            chosen = {offer.operator: offer for offer in self.in_flash}
        else:
            size = UNKNOWN_FLASH_BYTES if flash_bytes is None else flash_bytes
            room = size - CODE_BYTES - self.constant_bytes
            if optimize == "balanced":
                room = min(room, int(MOST_GROWN * self.constant_bytes))
            chosen = self._in_working_memory(optimize, size, UNKNOWN_RAM_BYTES if ram_bytes is None else ram_bytes)
            before = chosen if optimize == "balanced" else {}
            better = [
                replace(offer, saved=offer.saved - before[offer.operator].saved) if offer.operator in before else offer
                for offer in self.in_flash
            ]
            chosen |= {offer.operator: offer for offer in chosen_offers(better, optimize, size, room)}
        return tuple((name, offer.schedule) for name, offer in chosen.items() if offer.schedule is not None)

    def _in_working_memory(self, optimize: Optimize, flash_bytes: int, ram_bytes: int) -> dict[str, Offer]:
        """Return the operators that take working memory: each as much as is worth its size, at most a limit."""
        chosen: dict[str, Offer] = {}
        most = max(self.constant_bytes, ALWAYS_BYTES)
        offers = (offer for offer in reversed(self.at_run_time) if offer.bytes <= most)
        for offer in sorted(offers, key=lambda offer: offer.bytes):
            old = chosen.get(offer.operator)
            saved, more = (offer.saved - old.saved, offer.bytes - old.bytes) if old else (offer.saved, offer.bytes)
            is_worth = saved * ram_bytes >= more and offer.saved * flash_bytes >= OWN_CODE_BYTES
            if saved > 0 and (is_worth or (optimize == "speed" and 2 * offer.bytes <= ram_bytes)):
                chosen[offer.operator] = offer
        return chosen


def chosen_offers(offers: Iterable[Offer], optimize: Optimize, size: int, room: int) -> list[Offer]:
    """Return the accepted offers; those that save most per byte come first.

    Args:
        offers: the offers.
        optimize: the optimization goal.
        size: the memory's bytes.
        room: the bytes that are available.
    """
    chosen = []
    for offer in sorted(offers, key=lambda offer: (-offer.saved / offer.bytes, offer.operator)):
        is_worth = optimize == "speed" or offer.saved * size >= offer.bytes
        if is_worth and offer.bytes <= room:
            chosen.append(offer)
            room -= offer.bytes
    return chosen


def offers_of(graph: Graph, target: Target) -> Offers:
    """Return the offers of a graph after the passes, and of its inner graphs."""
    nodes = [(part, node) for part, node in _computing(graph) if node.name not in part.sized_nodes]
    if not any(_growing(node, part, target) for part, node in nodes):
        return Offers((), 0)
    in_flash, at_run_time = list[Offer](), list[Offer]()
    total, constants = 0.0, dict[str, int]()
    for part, node in nodes:
        constants |= {value: part.constants[value].nbytes for value in node.inputs if value in part.constants}
        others = [schedule for schedule in registry.KERNELS[node.op].schedules if not schedule.is_for_time(node, part)]
        costs = [schedule.cost(node, part, target) for schedule in others if schedule.supports(node, part, target)]
        least = part.rounds * min(costs)
        total += least
        for schedule in _growing(node, part, target):
            saved = least - part.rounds * schedule.cost(node, part, target)
            in_flash.append(Offer(node.name, saved, schedule.grown_bytes(node, part) + OWN_CODE_BYTES, schedule))
            for other in schedule.in_working_memory():
                saved = least - part.rounds * other.cost(node, part, target)
                at_run_time.append(Offer(node.name, saved, other.scratch_bytes(node, part), other))
    shares = [
        tuple(replace(offer, saved=offer.saved / total) for offer in offers if offer.saved > 0)
        for offers in (in_flash, at_run_time)
    ]
    return Offers(shares[0], sum(constants.values()), shares[1])


def _growing(node: Node, graph: Graph, target: Target) -> list[Schedule]:
    """Return the cheapest schedule of a node whose constants are larger than its weights, if there is one."""
    growing = (schedule for schedule in registry.KERNELS[node.op].schedules if schedule.grown_bytes(node, graph))
    fitting = [schedule for schedule in growing if schedule.supports(node, graph, target)]
    return sorted(fitting, key=lambda schedule: schedule.cost(node, graph, target))[:1]


def _computing(graph: Graph) -> Iterator[tuple[Graph, Node]]:
    for part in all_graphs(graph):
        yield from ((part, node) for node in part.nodes if not isinstance(node.attrs, (View, Control)))


# RAM for time: the operators whose constants are placed in RAM, since the core would wait for the board's flash.
#
# A weight is read again for every few pixels, and a flash without a large cache of data answers after several cycles
# each time. Operators are chosen as above: those that save most per byte first.


RESERVED_BYTES = 48 * 1024
"""RAM that is reserved for the stack, the framework and the application."""
SMALL_SHARE = 0.04
"""The most of the RAM that they take if memory is to be saved."""
BYTES_A_PRODUCT = 0.3
"""Bytes of constants that are read per multiply-accumulate, at least: a weight serves several pixels."""
HELD = 2
"""The size of a cache that holds an operator's constants beside other data, in multiples of the constants' size."""
_LITTLE_CODE = 4096  # bytes
_CODE_BYTES_EACH = 3.6  # of an instruction: most of the kernels' take four
_BETWEEN_LOOPS = 0.04  # of the cycles: waits for code where loops fit the cache, of MLPerf Tiny's models 1% to 4%
_SHARED_CODE_BYTES, _OWN_CODE_BYTES = 1024, 512  # of a schedule's operators with loops that fit the cache
_LEAST_SAVED = 0.001  # of the cycles, by code in RAM
_CYCLES = 1.4  # cycles per instruction of the kernels, without the waits for such a flash
_BYTES_A_PRODUCT_GROWN = 0.9  # the same for constants that were enlarged to save products


@frozen
class SlowFlash:
    """A board's memories, as far as constants are concerned.

    Attributes:
        waits: wait cycles of a flash read, at the board's clock.
        width: bytes per read.
        cache_bytes: the size of the data cache.
        ram_bytes: the size of the RAM that constants could be placed in.
        has_arena: whether the arena lies there too.
        taken_bytes: the bytes that the framework takes there.
        code_cache_bytes: the size of the cache of code, which may be that of data too.
        has_prefetch: whether the next read starts while the current one is executed.
        hot_bytes: the size of the RAM for code; 0: none.
    """

    waits: int
    width: int
    cache_bytes: int
    ram_bytes: int
    has_arena: bool
    taken_bytes: int = 0
    code_cache_bytes: int = 0
    has_prefetch: bool = False
    hot_bytes: int = 0

    @classmethod
    def of(cls, board: Board, hz: int = 0) -> Self | None:
        """Return the memories of a board at a clock, 0: its own. None: its constants are not in a slow flash."""
        memory, ram, hot = (board.memory_for(role) for role in ("weights", "data", "hot_code"))
        if memory is None or memory.reads is None or ram is None or "data" in memory.holds:
            return None
        reads, cache = memory.reads, memory.reads.data or memory.reads.code
        return cls(
            reads.waits(hz or board.clock_hz),
            reads.width,
            cache.lines * reads.line,
            ram.size,
            "arena" in ram.holds,
            max((of_template.data for of_template in board.takes.values()), default=0),
            reads.code.lines * reads.line,
            reads.prefetch,
            hot.size if hot is not None else 0,
        )

    @property
    def has_little_code(self) -> bool:
        """Whether the core waits for code: the cache holds less than the loops of a few operators."""
        return self.waits > 0 and self.code_cache_bytes < _LITTLE_CODE

    def code_waits(self, step: Step, graph: Graph, cost: float) -> float:
        """Return the cycles for which a step waits for its code; `cost`: its instructions."""
        if not self.has_little_code or isinstance(step.node.attrs, (Control, External)):
            return 0.0
        size, share = step.schedule.long_code(step.node, graph)
        missed = share if size > self.code_cache_bytes else 0.0
        others = 0.0 if step.node.op == "dense" else 1 - missed  # whose loops stay in the cache
        executing = self.width * _CYCLES / _CODE_BYTES_EACH if self.has_prefetch else 1
        a_read = min(max(self.waits + 1 - executing, 0), self.waits)
        return cost * (missed * _CODE_BYTES_EACH / self.width * a_read + others * _CYCLES * _BETWEEN_LOOPS)


def in_ram(plan: Plan, flash: SlowFlash, optimize: Optimize, fixed: Collection[str]) -> frozenset[str]:
    """Return the names of the operators whose constants should be placed in RAM.

    Args:
        plan: the plan.
        flash: the board's memories.
        optimize: the optimization goal.
        fixed: operators whose schedule the user has selected: they are left unchanged.
    """
    reads, sizes = constant_reads(plan, flash, fixed), dict[str, int]()
    if not reads:
        return frozenset()
    for step in plan.steps:
        if step.node.title not in sizes:
            sizes[step.node.title] = _constant_bytes(step, plan)
    total = plan.cost * _CYCLES + sum(read.cycles for read in reads)
    offers = [Offer(read.operator, read.cycles / total, sizes[read.operator]) for read in reads]
    room = flash.ram_bytes - RESERVED_BYTES - flash.taken_bytes - (plan.bytes_of_arena if flash.has_arena else 0)
    if optimize == "size":
        room = min(room, int(SMALL_SHARE * flash.ram_bytes))
    return frozenset(offer.operator for offer in chosen_offers(offers, optimize, flash.ram_bytes, room))


def constant_reads(
    plan: Plan, flash: SlowFlash | None = None, fixed: Collection[str] = ()
) -> tuple[ConstantReads, ...]:
    """Return the cost of reading operators' constants from flash, for those that wait; without a flash, all reads.

    The arguments are those of `in_ram`.
    """
    if flash is not None and (not flash.waits or plan.target.flash_is_apart):
        return ()
    reads: dict[str, float] = {}
    for step in plan.steps:
        if isinstance(step.node.attrs, (Control, External)) or step.node.title in fixed:
            continue
        size = _constant_bytes(step, plan)
        if size and (flash is None or HELD * size > flash.cache_bytes):
            reads[step.node.title] = reads.get(step.node.title, 0) + _bytes_read(step, plan, size)
    waits = 0.0 if flash is None else flash.waits / flash.width
    return tuple(ConstantReads(title, count, count * waits) for title, count in reads.items())


def hot(plan: Plan, flash: SlowFlash, optimize: Optimize, fixed: Collection[str]) -> frozenset[str]:
    """Return the names of the operators whose code should be placed in RAM: all with the same schedule, which share it.

    The arguments are those of `in_ram`.
    """
    if optimize == "size" or not flash.hot_bytes or not flash.has_little_code:
        return frozenset()
    saved, sizes, members = dict[str, float](), dict[str, int](), dict[str, set[str]]()
    for step in plan.steps:
        if isinstance(step.node.attrs, (Control, External)) or step.node.title in fixed:
            continue
        name, size = step.schedule.name, step.schedule.long_code(step.node, plan.graph)[0]
        saved[name] = saved.get(name, 0) + flash.code_waits(
            step, plan.graph, step.schedule.cost(step.node, plan.graph, plan.target)
        )
        members.setdefault(name, set()).add(step.node.title)
        sizes[name] = (2 * size or _SHARED_CODE_BYTES) + len(members[name]) * max(size // 2, _OWN_CODE_BYTES)
    total = plan.cost * _CYCLES + sum(saved.values())
    shares = {name: cycles / total for name, cycles in saved.items() if cycles > _LEAST_SAVED * total}
    offers = [Offer(name, share, sizes[name]) for name, share in shares.items()]
    chosen = chosen_offers(offers, optimize, flash.ram_bytes + flash.hot_bytes, flash.hot_bytes)
    return frozenset(title for offer in chosen for title in members[offer.operator])


def with_settings(plan: Plan, operators: Mapping[str, Collection[str]]) -> Plan:
    """Return a plan with knobs of operators set to "ram": the operators of each knob, `weights` or `code`."""

    def turned(step: Step) -> Step:
        settings = {knob: RAM for knob, titles in operators.items() if step.node.title in titles}
        return replace(step, schedule=built(step.schedule, settings)) if settings else step

    return replace(plan, steps=tuple(map(turned, plan.steps))) if any(operators.values()) else plan


def _constant_bytes(step: Step, plan: Plan) -> int:
    constants = plan.graph.constants
    total = sum(constants[value].nbytes for value in step.node.inputs if value in constants)
    return total + step.schedule.grown_bytes(step.node, plan.graph)


def _bytes_read(step: Step, plan: Plan, size: int) -> float:
    passes = step.schedule.constant_passes(step.node, plan.graph)
    if passes:
        return passes * size
    per_product = _BYTES_A_PRODUCT_GROWN if step.schedule.grown_bytes(step.node, plan.graph) > 0 else BYTES_A_PRODUCT
    return max(size, per_product * step.op.macs(step.node, plan.graph))


# Time and RAM for flash: the operators whose constants are packed, if they have few bits (plan.unpacked).
#
# Operators are packed, those that save most flash for their time first, until unpacking takes a small share of the
# model's instructions; and only if the arena grows by less than the flash shrinks, to a share of the RAM at most.
# An operator with more constants than that is computed in blocks of output channels.


SHARE_TO_UNPACK = 4
"""The arena may grow to this part of its memory, so that constants can be unpacked there."""
MOST_UNPACKING = 0.08
"""The share of the model's instructions that unpacking may take; more only to save a larger share of the flash."""
CODINGS: tuple[Compress, ...] = ("auto", "fields")
"""The ways to store constants that are tried: the smallest, and the fastest."""
CODED_BYTES = 1500
"""The code that decodes tables and zeros, which they have to save."""
BLOCKS = (2, 4, 8, 16, 32, 64)
"""The numbers of blocks that are tried."""


@frozen
class PackingRoom:
    """How constants are packed, the arena's most bytes with them, and the board's flash."""

    coding: Compress = "auto"
    arena_bytes: int = sys.maxsize
    flash_bytes: int = UNKNOWN_FLASH_BYTES

    @classmethod
    def of(cls, board: Board, coding: Compress) -> Self | None:
        """Return what a board has; None: constants are not packed."""
        ram, flash = board.memory_for("arena"), board.memory_for("weights")
        share = (ram.size if ram else UNKNOWN_RAM_BYTES) // SHARE_TO_UNPACK
        return None if coding == "none" else cls(coding, share, flash.size if flash else UNKNOWN_FLASH_BYTES)


@frozen
class Packing:
    """An operator with constants that are packed in some way: the bytes of flash that it saves, of arena, the cost."""

    way: Way
    saved: int
    more: int
    time: float

    def is_worth(self, room: PackingRoom, cost: float, budget: float) -> bool:
        """Whether it is worth its time, of a model's `cost`; `budget`: the time that unpacking may still take."""
        few = room.coding != "auto" or self.time <= budget
        return self.saved > 0 and (few or self.time * room.flash_bytes <= self.saved * cost)


def worth_packing(plan: Plan, room: PackingRoom) -> Mapping[str, Way]:
    """Return the operators whose constants should be packed, and how."""
    steps, offers = dict[str, list[int]](), list[tuple[str, list[Packing]]]()
    for number, step in enumerate(plan.steps):
        steps.setdefault(step.node.title, []).append(number)
    for title, numbers in steps.items():
        ways = (Way(coding) for coding in (CODINGS if room.coding == "auto" else (room.coding,)))
        packings = [packing for way in ways if (packing := _packing(plan, numbers, way)) and packing.saved > 0]
        offers += [(title, packings)] * bool(packings)
    plain = {title: last for title, ways in offers if (last := ways[-1]).way.coding == "fields"}
    gain = sum(ways[0].saved - (plain[title].saved if title in plain else 0) for title, ways in offers)
    if room.coding == "auto" and gain < CODED_BYTES:
        offers = [(title, [packing]) for title, packing in plain.items()]
    small, dropped = _chosen(plan, room, steps, offers)
    while dropped:  # packings that need too much of the arena free their time for others
        offers = [(title, packings) for title, packings in offers if title not in dropped]
        small, dropped = _chosen(plan, room, steps, offers)
    if room.coding == "auto" and not _is_of_few_bits(plan, [steps[title][0] for title in small]):
        constants = sum(data.nbytes for data in plan.graph.constants.values())
        small = small if sum(packing.saved for packing in small.values()) >= LEAST_SAVED * constants else {}
    return {title: packing.way for title, packing in small.items()}


def _chosen(
    plan: Plan, room: PackingRoom, steps: Mapping[str, Sequence[int]], offers: Sequence[tuple[str, Sequence[Packing]]]
) -> tuple[dict[str, Packing], Collection[str]]:
    """Return the packings that are worth their time and memory, and operators worth the time but not the memory."""
    budget, chosen = MOST_UNPACKING * plan.cost, dict[str, Packing]()
    for title, packings in sorted(offers, key=lambda item: (item[1][-1].time / item[1][-1].saved, item[0])):
        packing = next((packing for packing in packings if packing.is_worth(room, plan.cost, budget)), None)
        if packing is not None:
            budget -= packing.time
            chosen[title] = packing
    levels = sorted({0, *(p.more for p in chosen.values() if plan.arena_bytes + p.more <= room.arena_bytes)})
    best = max(levels, key=lambda level: sum(p.saved for p in chosen.values() if p.more <= level) - level)
    best = best if room.coding == "auto" else levels[-1]
    small = {title: packing for title, packing in chosen.items() if packing.more <= best}
    for title, packing in chosen.items():
        if title not in small and len(steps[title]) == 1:
            budget += packing.time
            for blocks in BLOCKS:
                smaller = _packing(plan, steps[title], replace(packing.way, blocks=blocks))
                if smaller is None or plan.arena_bytes + smaller.more > room.arena_bytes:
                    continue
                if 2 * (smaller.more - best) <= smaller.saved and smaller.is_worth(room, plan.cost, budget):
                    small[title], best, budget = smaller, max(best, smaller.more), budget - smaller.time
                    break
    return small, chosen.keys() - small.keys()


def _is_of_few_bits(plan: Plan, numbers: Iterable[int]) -> bool:
    """Whether one of the steps has weights of four bits or fewer."""
    return any(Weights.of(plan.steps[number].node, plan.graph).bits for number in numbers)


def _packing(plan: Plan, numbers: Iterable[int], way: Way) -> Packing | None:
    """Return what it saves to pack an operator of some of a plan's steps; None: it can't be packed so."""
    graph, target, packings = plan.graph, plan.target, list[Packing]()
    for number in numbers:
        step = plan.steps[number]
        node = step.node
        if isinstance(node.attrs, Control | External) or target.flash_is_apart or node.title in graph.sized_nodes:
            return None
        schedule = packed(step.schedule, node, graph, target, way)
        if schedule is None:
            continue
        parts = (part for storage, _ in plan.storages for part in storage.parts)
        live = sum(part.bytes for part in parts if part.live >> number + 1 & 1)
        more = max(0, live + schedule.scratch_bytes(node, graph) - step.scratch_bytes - plan.arena_bytes)
        saved = step.schedule.grown_bytes(node, graph) - schedule.grown_bytes(node, graph)
        plain, unpacking = (s.cost(node, graph, target) for s in (step.schedule, schedule))
        packings.append(Packing(way, saved, more, unpacking - plain))
    if not packings:
        return None
    return replace(packings[0], more=max(p.more for p in packings), time=sum(p.time for p in packings))
