"""Models as bytecode give the same bytes as compiled C."""

from collections.abc import Callable, Sequence
from pathlib import Path

import amount
import convolutional
import interpreter
import models
import networks
import numpy as np
import onnx
import pytest
from graphs import Array, run_c
from networks import feeds_of, imported

from mtool.base.errors import ModelError
from mtool.commands import Options
from mtool.compiler import passes
from mtool.compiler.bytecode.call import SHARED
from mtool.compiler.bytecode.model import compile_bytecode, encode, plan_bytecode
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan
from tests.compiler.bytecode import host, small

FOUR = ("kws", "vww", "ic", "ad")


def results(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """Return what bytecode makes of a graph's inputs."""
    plan = plan_bytecode(graph)
    return host.run(plan, encode(plan), [feeds[value] for value in graph.inputs])


def assert_right(proto: onnx.ModelProto, seed: int) -> None:
    """Hold bytecode against what the graph means: integers bit for bit."""
    graph = passes.run(imported(proto), SHARED)
    (feeds,) = feeds_of(graph, seed)
    assert_equal(results(graph, feeds), interpreter.run(graph, [feeds])[0])


def assert_equal(found: Sequence[Array], expected: Sequence[Array]) -> None:
    for one, other in zip(found, expected, strict=True):
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(amount.of(200, 8)))
def test_random_quantized_images(seed: int) -> None:
    assert_right(convolutional.Network(seed, integer=True).build(), seed)


@pytest.mark.parametrize("seed", range(amount.of(100, 4)))
def test_random_float_images(seed: int) -> None:
    assert_right(convolutional.Network(seed, integer=False).build(), seed)


@pytest.mark.parametrize("make", [networks.integers, networks.floats])
def test_random_networks(make: Callable[[int], onnx.ModelProto]) -> None:
    count = amount.of(300, 12)
    right = 0
    for seed in range(count):
        try:
            assert_right(make(seed), seed)
        except ModelError as refused:
            assert refused.details and "no kernel" in str(refused)
        else:
            right += 1
    assert right > 0.9 * count


def test_a_network_of_all_kernels_of_int8() -> None:
    assert_right(small.network(), 1)


@pytest.mark.product(2)
@pytest.mark.parametrize("name", FOUR)
def test_mlperf_tiny(name: str, tmp_path: Path) -> None:
    path = models.FOLDER / name / f"{name}_int8.tflite"
    if not path.exists():
        pytest.skip("the shared models are not there")
    made = compile_bytecode(path, Options())
    graph = made.plan.graph
    (feeds,) = feeds_of(graph, 3)
    found = host.run(made.plan, made.image, [feeds[value] for value in graph.inputs])
    if amount.IS_ALL or name in ("kws", "ad"):  # compiled C; of the others what it is held against too
        compiled = make_plan(graph, Target("host", frozenset({"fpu"})))
        assert_equal(found, run_c(compiled, feeds, tmp_path))
    else:
        assert_equal(found, interpreter.run(graph, [feeds])[0])
