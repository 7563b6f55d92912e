"""Results that are computed a period at a time: the same bits as those computed one by one, with tables of indices."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from graphs import HOST, NO_FPU, lowered, model
from one_firmware import Case, failures
from onnx import helper

from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import loop
from mtool.compiler.kernels.mve import loops as mve_loops
from mtool.compiler.kernels.periods import Block, blocks_of
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

F, I8 = np.float32, np.int8
BOARDS = {
    "mps2_an383": Target("cortex-m0plus", frozenset()),
    "mps2_an385": NO_FPU,
    "mps2_an386": Target("cortex-m4", frozenset({"fpu", "dsp"})),
    "mps3_an547": Target("cortex-m55", frozenset({"fpu", "dsp", "mve"})),
    "qemu_riscv32": Target("rv32imc", frozenset()),
}
PLAIN = "_plain"
HALF, CORNERS, FLOOR = "half_pixel", "align_corners", "asymmetric"


def _resize(shape: Sequence[int], scales: Sequence[float], dtype: type = I8, **attributes: Any) -> Any:
    """Return a model that resizes an input, which it dequantizes and quantizes if it is int8 and interpolated."""
    constants = {"scales": np.array(scales, F), "s": F(0.0213), "z": I8(3), "to": F(0.0171)}
    is_plain = dtype is not I8 or attributes["mode"] == "nearest"
    before, behind = ("x", "y") if is_plain else ("f", "m")
    nodes = [helper.make_node("Resize", [before, "", "scales"], [behind], **attributes)]
    if not is_plain:
        nodes.insert(0, helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]))
        nodes.append(helper.make_node("QuantizeLinear", ["m", "to", "z"], ["y"]))
    return model(nodes, {"x": (dtype, shape)}, ["y"], constants, 19)


MODELS = {
    "twice": _resize((1, 6, 5, 7), (1, 1, 2, 2), mode="linear"),
    "twice_wide": _resize((2, 3, 4, 9), (1, 1, 1, 2), mode="linear"),
    "twice_one_row": _resize((1, 5, 1, 9), (1, 1, 2, 2), mode="linear"),
    "thrice": _resize((1, 4, 4, 6), (1, 1, 3, 3), mode="linear"),
    "four_times": _resize((1, 4, 5, 4), (1, 1, 4, 4), mode="linear"),
    "half": _resize((1, 5, 12, 16), (1, 1, 0.5, 0.5), mode="linear"),
    "cubic": _resize((1, 4, 9, 9), (1, 1, 1, 2), mode="cubic"),
    "odd_rows": _resize((1, 4, 7, 6), (1, 1, 1.3, 2), mode="linear"),
    "halves": _resize((1, 4, 7, 6), (1, 1, 2, 2), mode="linear", coordinate_transformation_mode=FLOOR),
    "corners": _resize((1, 4, 5, 5), (1, 1, 2, 2), mode="linear", coordinate_transformation_mode=CORNERS),
    "floats": _resize((1, 5, 5, 7), (1, 1, 2, 2), F, mode="linear"),
    "nearest": _resize((1, 5, 5, 7), (1, 1, 2, 2), mode="nearest"),
    "nearest_thrice": _resize((1, 5, 5, 7), (1, 1, 3, 2), mode="nearest"),
    "nearest_floats": _resize((1, 5, 5, 7), (1, 1, 2, 2), F, mode="nearest"),
    "nearest_int32": _resize((1, 5, 7), (1, 1, 2), np.int32, mode="nearest"),
    "less": _resize((1, 5, 8, 8), (1, 1, 0.5, 0.5), mode="nearest"),
}


def _cases(names: Sequence[str], target: Target) -> list[Case]:
    rng, made = np.random.default_rng(3), []
    for name in names:
        kind = MODELS[name].graph.input[0].type.tensor_type
        dtype, shape = helper.tensor_dtype_to_np_dtype(kind.elem_type), [d.dim_value for d in kind.shape.dim]
        x = rng.integers(-128, 128, shape).astype(dtype)
        x = (x * F(0.37)).astype(F) if dtype == F else x
        plans = [
            make_plan(passes.run(import_graph(MODELS[name], f"{name}{end}"), target), target) for end in ("", PLAIN)
        ]
        made.append(Case(plans[0], plans[1], {"x": x}))
    return made


def _check(names: Sequence[str], target: Target, folder: Path, board: str | None) -> None:
    def unless_plain(node: Node, graph: Graph) -> list[Block]:
        return [] if graph.name.endswith(PLAIN) else blocks_of(node, graph)

    changed = (mock.patch.object(place, "blocks_that_pay", unless_plain) for place in (loop, mve_loops))
    with next(changed), next(changed):
        assert failures(_cases(names, target), folder, board) == []


@pytest.mark.slow
def test_on_the_host(tmp_path: Path) -> None:
    _check([*MODELS], HOST, tmp_path, None)


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_in_the_emulator(board: str, tmp_path: Path) -> None:
    _check([*MODELS], BOARDS[board], tmp_path, board)


@pytest.mark.parametrize(
    ("name", "blocks"), [("twice", 4), ("twice_wide", 2), ("half", 1), ("nearest", 1), ("odd_rows", 2), ("corners", 0)]
)
def test_what_repeats_along_an_axis_is_found(name: str, blocks: int) -> None:
    """An axis has one body of C for its periods, and one for both of its ends."""
    graph = lowered(MODELS[name])
    (node,) = graph.nodes
    found = blocks_of(node, graph)
    assert len(found) == blocks
    tables = {value for value in node.inputs if value in graph.constants}
    read = {node.inputs[number] for block in found for _, expr in block.results for number in expr.operands()}
    assert (not found) or bool(tables & read) == (name == "odd_rows")
