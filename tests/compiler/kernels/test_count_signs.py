"""Layers of binary networks, whose products are counted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from binary import SIGN, binary
from one_firmware import Case, failures
from onnx import helper

from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice, make_plan

M4 = Target("cortex-m4", frozenset({"dsp", "fpu"}))
CORES = [(Target("cortex-m0plus", frozenset()), "mps2_an383"), (Target("rv32imc", frozenset()), "qemu_riscv32")]
# shapes of the input and of the weights, whether the results are signs, steps of a sign
LAYERS = [
    ((1, 5), (3, 5), True, 1),
    ((1, 16), (33, 16), False, 1),
    ((1, 17), (32, 17), True, 127),
    ((1, 100), (70, 100), False, 3),
    ((1, 127), (40, 127), True, 1),
    ((1, 128), (64, 128), True, 2),
    ((1, 300), (37, 300), False, 127),
    ((1, 515), (9, 515), True, 1),
    ((2, 33, 3, 2), (35, 33, 1, 1), False, 1),
    ((1, 64, 3, 5), (34, 64, 1, 1), True, 1),
]


def layers(target: Target) -> list[Case]:
    """Return layers by counts of signs and in portable C, on random inputs and on those of the extreme sums."""
    found = []
    for number, (shape, kernel, is_sign, steps) in enumerate(LAYERS):
        rng = np.random.default_rng(number)
        outputs, depth, step = kernel[0], kernel[1], 1 / steps
        constants = {
            "w": rng.choice((-1, 1), kernel).astype(np.int8), "wz": np.zeros(outputs, np.int8),
            "ws": rng.uniform(0.005, 0.02, outputs).astype(np.float32), "ys": np.float32(0.01), "z": np.int8(0),
        }  # fmt: skip
        constants["r"] = rng.normal(0, 0.3, (shape[0], outputs, *shape[2:])).astype(np.float32)  # of each element
        limit = constants["ws"] * depth
        constants["b"] = (rng.normal(0, 0.3, outputs) * limit).astype(np.float32)
        constants["w"][:2] = [[[[1]]], [[[-1]]]] if len(shape) == 4 else [[1], [-1]]
        if number % 4 == 3:  # all weights are negative
            constants["w"][:] = -1
        constants["b"][:3] = [limit[0], -1.01 * limit[1], 1.01 * limit[2]]
        op, more = ("Gemm", {"transB": 1}) if len(shape) == 2 else ("Conv", {})
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
            helper.make_node(op, ["a", "wf", "b"], ["t"], **more),
            *(SIGN if is_sign else [helper.make_node("Add", ["t", "r"], ["u"])]),
            *([] if is_sign else [helper.make_node("QuantizeLinear", ["u", "ys", "z"], ["y"])]),
        ]
        graph = passes.run(import_graph(binary(nodes, shape, constants, step), f"signs{number}"), target)
        (node,) = (node for node in graph.nodes if node.op in ("dense", "conv2d"))
        plain = "c99_rows" if node.op == "dense" else "c99_patch"
        plans = [
            make_plan(replace(graph, name=f"{name}{number}"), target, schedules={node.title: Choice(name)})
            for name in ("int_xnor_words", plain)
        ]
        for feed in (rng.normal(0, 1, shape), np.ones(shape), -np.ones(shape)):
            found.append(Case(plans[0], plans[1], {"x": feed.astype(np.float32)}))
    return found


def test_counts_of_signs_in_plain_c(tmp_path: Path) -> None:
    assert failures(layers(M4), tmp_path, None) == []


@pytest.mark.slow
@pytest.mark.parametrize(("target", "board"), [(M4, "mps2_an386"), *CORES], ids=lambda one: str(one)[:20])
@pytest.mark.parametrize("optimise", ["-O2", "-Os"])
def test_counts_of_signs_on_boards(target: Target, board: str, optimise: str, tmp_path: Path) -> None:
    assert failures(layers(target), tmp_path, board, optimise) == []


def test_layers_of_signs_count_them() -> None:
    """By default; with their weights as they are stored."""
    for target in (M4, *(target for target, _ in CORES)):
        graphs = {case.plan.graph.name: case.plan.graph for case in layers(target)}
        for name in ("int_xnor_words5", "int_xnor_words9"):
            steps = (step for step in make_plan(graphs[name], target).steps if step.node.op in ("dense", "conv2d"))
            assert [str(step.schedule.name) for step in steps] == ["int_xnor_words"]
