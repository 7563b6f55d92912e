"""Random networks' graphs before and after one pass."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import amount
import interpreter
import networks
import numpy as np
from graphs import HOST, NO_FPU

from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.operators.verification import verify
from mtool.compiler.passes.lower import lower
from mtool.compiler.passes.pipeline import sequence

DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
M3 = NO_FPU
Pass = Callable[[Graph], Graph]
Pair = tuple[Graph, Graph]

_KINDS: dict[str, Callable[[int], Any]] = {
    "float": networks.floats,
    "long": functools.partial(networks.floats, operators=30),
    "int8": networks.integers,
    "uint8": functools.partial(networks.integers, dtype=np.uint8),
    "dead": functools.partial(networks.integers, dead=0.5),
}


@functools.cache
def _stages(kind: str, seed: int, target: Target) -> tuple[tuple[str, Graph], ...]:
    """Return each pass's name and what it gives, the import first."""
    graph = networks.imported(_KINDS[kind](seed))
    found = [("import", graph)]
    for one in sequence(target):
        graph = one(graph)
        verify(graph)
        found.append((getattr(one, "func", one).__name__, graph))
    return tuple(found)


def pairs(name: str, kind: str, count: int, target: Target = HOST) -> Iterator[Pair]:
    """Yield what each use of a pass gets and gives, for some random networks: for half as many in CI."""
    for seed in range(amount.of(count, -(-count // 2))):
        stages = _stages(kind, seed, target)
        for (_, before), (passed, after) in itertools.pairwise(stages):
            if passed == name:
                yield before, after


def assert_same(before: Graph, after: Graph, *, exact: bool = True, steps: int = 0, calls: int = 1) -> None:
    """Compare what two graphs compute, integers and floats to the bit if `exact`, integers to within `steps`."""
    feeds = networks.feeds_of(before, 5, calls)
    for old, new in zip(results(before, feeds), results(after, feeds), strict=True):
        for a, b in zip(old, new, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if a.dtype.kind == "f" and not exact:
                np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
            elif steps:
                assert np.abs(a.astype(int) - b).max(initial=0) <= steps and np.mean(a != b) <= 0.05
            else:
                np.testing.assert_array_equal(b, a)


def results(graph: Graph, feeds: list[dict[str, Any]]) -> list[list[np.ndarray[Any, Any]]]:
    """Return the outputs of a graph; operators of ONNX are lowered first."""
    canonical = any(node.op[:1].isupper() for node in graph.nodes)
    return interpreter.run(lower(graph) if canonical else graph, feeds)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]
