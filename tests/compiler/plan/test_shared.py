"""A model for several boards: sharing work between them changes nothing."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool import boards
from mtool.compiler.compilation import compile_for, compile_model, target_of
from mtool.compiler.kernels.target import Target
from mtool.compiler.request import Request

F = np.float32
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"


def _network(path: Path) -> Path:
    """Write convolutions whose large images are computed a few rows at a time, and a dense layer."""
    rng = np.random.default_rng(3)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (4, 8, 3, 3), "w4": (4, 6)}
    constants = [numpy_helper.from_array(rng.normal(size=shape).astype(F), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["b"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w3"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "w4"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(*of) for of in (("x", 1, [1, 3, 24, 24]), ("y", TensorProto.FLOAT, [1, 6])))
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.slow
def test_boards_that_share_get_the_files_that_each_gets_alone(tmp_path: Path) -> None:
    path = _network(tmp_path / "net.onnx")
    names = "mps2_an385 mps2_an386 mps2_an521 nucleo_u575zi qemu_cortex_r5 mps2_an500 sim_m0 rpi_pico feathers2"
    asked = [boards.get(name) for name in (*names.split(), "qemu_riscv32", "ek_ra8d1", "arduino_uno")]
    found = list(compile_for(path, asked))
    in_parts = {board.name for board, emitted in found if len(emitted.plan.steps) > 6}
    assert {"mps2_an385", "mps2_an386"} <= in_parts
    shared = {id(emitted) for _, emitted in found}
    assert len(shared) < len(asked)
    for board, emitted in found:
        alone = compile_model(path, board).files
        assert all(alone[name] == data for name, data in emitted.code.files.items()), board.name


def test_targets_of_equal_traits_differ_in_name_alone() -> None:
    known = {target_of(board) for board in boards.load_all().values()}
    by_traits: dict[object, set[str]] = {}
    for target in known:
        by_traits.setdefault(target.traits, set()).add(target.cpu)
    assert {"cortex-m0", "cortex-m0plus"} in by_traits.values()
    assert {"cortex-m55", "cortex-m85"} in by_traits.values()
    m4, m33 = (Target(cpu, frozenset({"fpu", "dsp"})) for cpu in ("cortex-m4", "cortex-m33"))
    assert m4.traits != m33.traits and m4.integer_traits == m33.integer_traits  # VFMA


def test_a_model_of_integers_alone_is_planned_once_for_cores_that_differ_in_floats() -> None:
    """Without working memory for time, whose use depends on a board's memory."""
    asked = [boards.get(name) for name in ("mps2_an386", "qemu_cortex_r5", "frdm_mcxn947", "sim_m4", "sim_m33")]
    request = Request(optimize="size")
    found = list(compile_for(DIGITS, asked, request))
    assert [id(emitted) for _, emitted in found].count(id(found[0][1])) == 3
    for board, emitted in found:
        alone = compile_model(DIGITS, board, request).files
        assert all(alone[name] == data for name, data in emitted.code.files.items()), board.name
