"""The most stack that the entry points of a model need in a firmware."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mtool.device.build.stack import CallGraph
from mtool.device.build.stack.image import ARM, AVR
from mtool.device.build.symbolizer import Symboliser
from mtool.manifest import Manifest, StackBound

_RUN, _FEED = "mt_work_run", "mt_work_feed"  # crt/src/mt_work.c: from their frames on, the stack is measured

# Interrupt handlers with a stack of their own: of crt/ports on bare metal, whose guard gives them one, and of Zephyr.
_APART = {"mt_uart_interrupt", "mt_systick_interrupt", "_isr_wrapper"}
_ON_THE_STACK = re.compile(r"__vector_\d+|SysTick_Handler|\w+_IRQHandler")
_FRAME, _FRAME_WITH_FPU = 36, 108  # what a Cortex-M saves, and a word that aligns it: Armv7-M ARM, B1.5.6 and B1.5.7

_PACKED = "mt_packed_call"  # crt/include/mt_packed.h: calls what it is given


def described(elf: Path, model: Manifest) -> Manifest:
    """Return a model's manifest with the stack's bound of each entry point that is in a firmware.

    Raises:
        BuildError: the file can't be read.
    """
    bounds = entry_points(elf, model)
    if not bounds:
        return model
    with Symboliser(elf) as read:
        compiler = read.compiler_of(f"{model.model}.c", f"{model.firmware_name}.c")
    bound = {name: bound.model_copy(update={"compiler": compiler}) for name, bound in bounds.items()}
    points = [point.model_copy(update={"stack": bound.get(point.name)}) for point in model.entry_points]
    return model.model_copy(update={"entry_points": tuple(points)})


def entry_points(elf: Path, model: Manifest) -> dict[str, StackBound]:
    """Return the bound of each of a model's entry points that is in a firmware, by its name.

    Empty if the code of the core can't be read.

    Raises:
        BuildError: the file can't be read.
    """
    return bounds(elf, model, [point.name for point in model.entry_points])


def bounds(elf: Path, model: Manifest, names: Iterable[str]) -> dict[str, StackBound]:
    """Return the bound of each of these functions of a model that is in a firmware; empty as `entry_points`.

    Raises:
        BuildError: the file can't be read.
    """
    graph = CallGraph(elf)
    pointers = _pointers(graph, model)
    return {name: graph.bound(name, pointers) for name in names if name in graph.names} if graph.is_readable else {}


def deepest(bounds: Iterable[StackBound]) -> StackBound | None:
    """Return the largest bound, or the first that is unknown; None: there are none."""
    return max(bounds, key=_order, default=None)


@dataclass(frozen=True, slots=True)
class Served:
    """What stack painting measures.

    Attributes:
        bound: that of an inference with the RPC server's call.
        interrupt_bytes: the most that an interrupt adds; 0: the firmware handles none then; None: unknown.
    """

    bound: StackBound
    interrupt_bytes: int | None


def served(elf: Path, model: Manifest, *, is_limited: bool = False) -> Served:
    """Return the bound of what stack painting measures in a firmware with the RPC server.

    `is_limited`: a watchdog's interrupts limit the inference.

    Raises:
        BuildError: the file can't be read.
    """
    graph = CallGraph(elf)
    names = [_RUN, _FEED] if any(tensor.stream is not None for tensor in model.inputs) else [_RUN]
    callers = {caller for point in model.entry_points for caller in graph.callers(point.name)}
    # No function that a pointer may lead to does not prove that it leads nowhere.
    pointers = {**_pointers(graph, model), **dict.fromkeys(names if callers else (), sorted(callers))}
    bound = max((graph.bound(name, pointers) for name in names), key=_order)
    return Served(bound, _interrupt_bytes(graph, is_limited=is_limited, uses_fpu=model.uses_fpu))


def _interrupt_bytes(graph: CallGraph, *, is_limited: bool, uses_fpu: bool) -> int | None:
    """Return the most that an interrupt takes of an inference's stack: what the core saves, and the handler's own."""
    handlers = [graph.bound(name) for name in graph.names if _ON_THE_STACK.fullmatch(name)]
    if not handlers and not is_limited and not _APART & {*graph.names}:
        return 0
    frame = {ARM: _FRAME_WITH_FPU if uses_fpu else _FRAME, AVR: 0}.get(
        graph.machine
    )  # a bound has AVR's return address
    bound = deepest(handlers)
    handler_bytes = 0 if bound is None else bound.bytes
    return None if frame is None or handler_bytes is None else frame + handler_bytes


def _order(bound: StackBound) -> tuple[bool, int]:
    return bound.bytes is None, bound.bytes or 0


def _pointers(graph: CallGraph, model: Manifest) -> dict[str, tuple[str, ...]]:
    """Return the functions that a model's functions call through pointers: those in its tables, and its operators."""
    operators = {operator.function for operator in model.operators} & {*graph.names}
    targets = sorted({*graph.pointed(f"{model.model}_"), *operators})
    names = [name for name in graph.names if name.startswith(f"{model.model}_") or name == _PACKED]
    return dict.fromkeys(names, tuple(targets)) if targets else {}
