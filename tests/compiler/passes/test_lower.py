"""Lowering preserves onnxruntime's results."""

import networks
import numpy as np
import pytest
from graphs import model, reference
from interpreter import run
from onnx import helper
from single_pass import assert_same

from mtool.compiler.ir.graph import DEEPEST, verify
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.passes.lower import lower


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "int8", "uint8"])
def test_random_networks_are_onnxruntimes(kind: str) -> None:
    for seed in range(30):
        proto = networks.floats(seed) if kind == "float" else networks.integers(seed, dtype=getattr(np, kind), dead=0.3)
        graph = networks.imported(proto)
        feeds = networks.feeds_of(graph, seed)
        lowered = lower(graph)
        verify(lowered)
        assert all(node.op.islower() for node in lowered.nodes)
        for mine, theirs in zip(run(lowered, feeds)[0], reference(proto, feeds[0]), strict=True):
            np.testing.assert_allclose(mine.astype(float), theirs, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")


@pytest.mark.parametrize("op", ["Sum", "Max", "Min", "Mean", "Concat"])
def test_hundreds_of_operands_are_computed_in_parts(op: str) -> None:
    chance = np.random.default_rng(1)
    values = {f"c{n}": chance.uniform(-1, 1, (1, 3)).astype(np.float32) for n in range(199)}
    attrs = {"axis": 0} if op == "Concat" else {}
    proto = model([helper.make_node(op, ["x", *values], ["y"], **attrs)], {"x": (np.float32, (1, 3))}, ["y"], values)
    graph = networks.imported(proto)
    lowered = lower(graph)
    assert max(len(node.inputs) for node in lowered.nodes) <= 64
    assert all(Loop.of(node).expr.depth < DEEPEST for node in lowered.nodes if node.op == "loop")
    feeds = networks.feeds_of(graph, 3)
    np.testing.assert_allclose(run(lowered, feeds)[0][0], reference(proto, feeds[0])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
def test_constant_indices_count_from_the_start_in_32_bits(op: str) -> None:
    nodes = [helper.make_node(op, ["x", "i"], ["y"], axis=1)]
    graph = networks.imported(model(nodes, {"x": (np.float32, (2, 5))}, ["y"], {"i": np.array([[-1, 0], [2, -5]])}))
    lowered = lower(graph)
    (node,) = lowered.nodes
    places = lowered.constants[node.inputs[1]]
    assert places.dtype == np.int32 and places.tolist() == [[4, 0], [2, 0]]
    assert not any(part.op == "where" for part in Loop.of(node).expr.parts())
    assert_same(graph, lowered)
