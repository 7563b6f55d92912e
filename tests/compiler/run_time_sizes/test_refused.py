"""Operators without a form for all sizes, and sizes out of range: reported by name, never computed wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from sized import Library, build, check, floats, mlp, node, planned

from mtool.base.errors import ModelError, UsageError
from mtool.boards import get
from mtool.compiler import codegen
from mtool.compiler.compilation import compile_model
from mtool.compiler.request import Request
from mtool.device.rpc.protocol import Status


def written(proto: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(proto, folder / "test.onnx")
    return folder / "test.onnx"


def test_a_size_out_of_its_range_is_a_status_and_nothing_is_computed(tmp_path: Path) -> None:
    for chosen in (codegen.conventions(), codegen.conventions("step")):
        library = Library(planned(written(mlp(), tmp_path), {"batch": 4}), tmp_path / chosen.interface, chosen)
        for size in (0, -1, 5, -(2**31), 2**31 - 1):
            feeds = {"x": np.zeros((8, 6), np.float32)}
            number, outputs = np.array(size, np.int32), [np.full(64, 0xA5, np.uint8) for _ in range(2)]
            inputs = np.array([feeds["x"].ctypes.data, number.ctypes.data], np.uint64)
            places = np.array([data.ctypes.data for data in outputs], np.uint64)
            assert library.run(inputs.ctypes, places.ctypes) == Status.MT_BAD_SIZE
            assert all((data == 0xA5).all() for data in outputs)


def test_a_size_that_the_caller_changes_meanwhile_is_that_of_the_next_inference(tmp_path: Path) -> None:
    library = Library(planned(written(mlp(), tmp_path), {"batch": 4}), tmp_path / "c", codegen.conventions("step"))
    begin, step, done = (getattr(library.code, f"{library.name}_{verb}") for verb in ("begin", "step", "done"))
    rows, size = np.ones((4, 6), np.float32), np.array(2, np.int32)
    outputs = [np.full(256, 0xA5, np.uint8) for _ in library.manifest.outputs]
    inputs = np.array([rows.ctypes.data, size.ctypes.data], np.uint64)
    places = np.array([data.ctypes.data for data in outputs], np.uint64)
    assert begin(inputs.ctypes, places.ctypes) == 0
    for later in (4, 1, 3):
        size[...] = later
        if not done():
            assert step() == 0
    while not done():
        assert step() == 0
    (y,) = (data for data, tensor in zip(outputs, library.manifest.outputs, strict=True) if tensor.name == "y")
    assert (y[2 * 3 * 4 :] == 0xA5).all()
    assert (y[: 2 * 3 * 4].view(np.float32).reshape(2, 3) == y[: 3 * 4].view(np.float32)).all()  # rows of equal inputs


def test_the_smallest_size_is_that_which_the_model_takes(tmp_path: Path) -> None:
    proto = build([node("Conv", "x w", "y")], {"x": (1, 2, "n")}, {"y": (1, 3, "m")}, {"w": floats(3, 2, 4)})
    plan = planned(written(proto, tmp_path), {"n": 12})
    assert [(size.least, size.most) for size in plan.graph.sizes] == [(4, 12)]


@pytest.mark.parametrize(("first", "last", "least"), [(0, 5, 5), (0, 21, 21), (-4, 2**40, 4), (2, -3, 6)])
def test_sizes_begin_where_a_slice_is_not_cut_short(first: int, last: int, least: int, tmp_path: Path) -> None:
    constants = {"first": np.array([first]), "last": np.array([last])}
    proto = build([node("Slice", "x first last", "y")], {"x": ("n", 2)}, {"y": ("m", 2)}, constants)
    library = check(proto, {"n": 24}, tmp_path)
    assert [(tensor.range.least, tensor.range.most) for tensor in library.manifest.sizes if tensor.range] == [
        (least, 24)
    ]


@pytest.mark.slow
def test_both_sizes_begin_where_slices_are_not_cut_short(tmp_path: Path) -> None:
    nodes = [node("Slice", "x f l a", "y"), node("Slice", "x g m b", "z")]
    constants = {name: np.array([value]) for name, value in zip("flagmb", (0, 4, 0, -3, 99, 1), strict=True)}
    proto = build(nodes, {"x": ("n", "k")}, {"y": ("o", "k"), "z": ("n", "p")}, constants)
    library = check(proto, {"n": 7, "k": 5}, tmp_path)
    assert [tensor.range.least for tensor in library.manifest.sizes if tensor.range] == [4, 3]


@pytest.mark.slow
def test_a_shape_that_follows_no_formula(tmp_path: Path) -> None:
    """There are as many rows as the square root of the size."""
    nodes = [
        node("Shape", "x", "shape"), node("Cast", "shape", "real", to=onnx.TensorProto.FLOAT),
        node("Sqrt", "real", "r"), node("Cast", "r", "rows", to=onnx.TensorProto.INT64),
        node("Slice", "x zero rows zero", "y"),
    ]  # fmt: skip
    proto = build(nodes, {"x": ("n",)}, {"y": ("m",)}, {"zero": np.array([0])})
    with pytest.raises(ModelError, match="run-time sizes") as found:
        planned(written(proto, tmp_path), {"n": 40})
    assert "--dim n=N" in str(found.value)


def test_a_constant_that_is_another_at_small_sizes(tmp_path: Path) -> None:
    """The factor is the smaller of 5 and the size."""
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape zero", "n"), node("Min", "n five", "least"),
        node("Cast", "least", "factor", to=onnx.TensorProto.FLOAT), node("Mul", "x factor", "y"),
    ]  # fmt: skip
    proto = build(nodes, {"x": ("n", 2)}, {"y": ("n", 2)}, {"zero": np.array(0), "five": np.array(5)})
    library = check(proto, {"n": 12}, tmp_path)
    assert [tensor.range.least for tensor in library.manifest.sizes if tensor.range] == [5]


def test_a_factor_that_is_the_size_is_computed(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape zero", "n"),
        node("Cast", "n", "factor", to=onnx.TensorProto.FLOAT), node("Div", "x factor", "y"),
    ]  # fmt: skip
    proto = build(nodes, {"x": ("n", 2)}, {"y": ("n", 2)}, {"zero": np.array(0)})
    library = Library(planned(written(proto, tmp_path), {"n": 6}), tmp_path / "c")
    for size in range(1, 7):
        x = floats(size, 2)
        status, found = library.call({"x": x}, {"n": size})
        assert not status
        np.testing.assert_allclose(found["y"], x / np.float32(size), rtol=1e-6)


def test_a_table_that_ends_with_the_largest_size(tmp_path: Path) -> None:
    """More rows than the table has can't be asked for."""
    nodes = [
        node("Shape", "x", "shape"), node("Slice", "shape i0 i1", "n"), node("Slice", "table i0 n", "here"),
        node("Add", "x here", "y"),
    ]  # fmt: skip
    constants = {"i0": np.array([0]), "i1": np.array([1]), "table": floats(6, 3)}
    proto = build(nodes, {"x": ("n", 3)}, {"y": ("n", 3)}, constants)
    library = Library(planned(written(proto, tmp_path), {"n": 6}), tmp_path / "c")
    x = floats(4, 3)
    np.testing.assert_array_equal(library.call({"x": x}, {"n": 4})[1]["y"], x + constants["table"][:4])
    with pytest.raises(ModelError):
        planned(written(proto, tmp_path), {"n": 9})


def test_a_state_can_not_follow_a_size(tmp_path: Path) -> None:
    proto = build([node("Add", "x s", "t")], {"x": ("n", 3), "s": ("n", 3)}, {"t": ("n", 3)}, {})
    with pytest.raises(ModelError, match="state"):
        planned(written(proto, tmp_path), {"n": 6}, states=(("t", "s"),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxima": {"m": 3}, "dims": {"batch": 2}}, "--max takes the name of a symbolic dimension"),
        (
            {"maxima": {"batch": 3}, "dims": {"batch": 2}},
            "both --dim and --max are given for batch of test",
        ),
        ({"maxima": {"batch": 3}, "conventions": codegen.conventions(executor="graph")}, "graph-host"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as found:
        compile_model(written(mlp(), tmp_path), get("host"), Request(**options))
    assert message in str(found.value)


def test_a_largest_size_of_what_no_input_has(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="without a value") as found:
        compile_model(written(mlp(), tmp_path), get("host"), Request(maxima={"bacth": 3}))
    assert "--max bacth: no input has a dimension bacth" in str(found.value)


def test_a_dimension_with_a_size_is_not_a_run_time_size(tmp_path: Path) -> None:
    made = compile_model(written(mlp(), tmp_path), get("host"), Request(dims={"batch": 3}))
    assert not made.manifest.sizes and b"size_" not in made.files["test.c"]
