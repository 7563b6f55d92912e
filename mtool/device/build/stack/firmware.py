"""The most stack that the entry points of a model need in a firmware."""

from collections.abc import Iterable
from pathlib import Path

from mtool.device.build.stack import CallGraph
from mtool.device.build.symbolizer import Symboliser
from mtool.manifest import Manifest, StackBound

_RUN, _FEED = "mt_work_run", "mt_work_feed"  # crt/src/mt_work.c: from their frames on, the stack is measured

_PACKED = "mt_packed_call"  # crt/include/mt_packed.h: calls what it is given


def described(elf: Path, model: Manifest) -> Manifest:
    """Return a model's manifest with the stack's bound of each entry point that is in a firmware.

    Raises:
        BuildError: the file can't be read.
    """
    found = entry_points(elf, model)
    if not found:
        return model
    with Symboliser(elf) as read:
        compiler = read.compiler_of(f"{model.model}.c", f"{model.firmware_name}.c")
    bound = {name: one.model_copy(update={"compiler": compiler}) for name, one in found.items()}
    points = [one.model_copy(update={"stack": bound.get(one.name)}) for one in model.entry_points]
    return model.model_copy(update={"entry_points": tuple(points)})


def entry_points(elf: Path, model: Manifest) -> dict[str, StackBound]:
    """Return the bound of each of a model's entry points that is in a firmware, by its name.

    Empty if the code of the core can't be read.

    Raises:
        BuildError: the file can't be read.
    """
    return bounds(elf, model, [one.name for one in model.entry_points])


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


def served(elf: Path, model: Manifest) -> StackBound:
    """Return the bound of an inference with the RPC server's call, which is what stack painting measures.

    Raises:
        BuildError: the file can't be read.
    """
    graph = CallGraph(elf)
    names = [_RUN, _FEED] if any(one.stream is not None for one in model.inputs) else [_RUN]
    callers = {one for point in model.entry_points for one in graph.callers(point.name)}
    pointers = {**_pointers(graph, model), **dict.fromkeys(names, sorted(callers))}
    return max((graph.bound(name, pointers) for name in names), key=_order)


def _order(bound: StackBound) -> tuple[bool, int]:
    return bound.bytes is None, bound.bytes or 0


def _pointers(graph: CallGraph, model: Manifest) -> dict[str, tuple[str, ...]]:
    """Return what a model's functions call through pointers: what its tables have, and its operators."""
    operators = {operator.function for operator in model.operators} & {*graph.names}
    found = sorted({*graph.pointed(f"{model.model}_"), *operators})
    own = [name for name in graph.names if name.startswith(f"{model.model}_") or name == _PACKED]
    return dict.fromkeys(own, tuple(found)) if found else {}
