"""Open batches of TFLite files, computed shapes, and inputs that become constants."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import compute
from tflite_models import Array, Op, T, litert, model

import mtool
from mtool.base.errors import ModelError, NeedsValues, UsageError
from mtool.compiler import frontend
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.target import Target

R = np.random.default_rng(9)
HOST = Target("host", frozenset())


def whole(name: str, numbers: Any) -> T:
    data = np.asarray(numbers)
    return T(name, data.shape, np.int32, data=data)


def open_batch(name: str, shape: Sequence[int], dtype: Any = np.float32, **more: Any) -> T:
    return T(name, shape, dtype, signature=[-1, *shape[1:]], **more)


BATCH = [
    whole("zero", [0]), whole("one", [1]), T("s", [4], np.int32), T("n", [], np.int32),
]  # fmt: skip
BATCH_OPS = [
    Op("SHAPE", ["x"], ["s"], "ShapeOptions", {"OutType": 2}),
    Op("STRIDED_SLICE", ["s", "zero", "one", "one"], ["n"], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
]


def pack(*names: str, output: str = "p") -> Op:
    return Op("PACK", names, [output], "PackOptions", {"ValuesCount": len(names), "Axis": 0})


def flattened(quantized: bool = False) -> bytes:
    """Keras' Flatten and Dense."""
    grid: dict[str, Any] = {"dtype": np.int8, "scale": 0.1, "zero": 3} if quantized else {}
    weights = T("w", [5, 12], np.int8, 0.02, data=R.integers(-127, 128, [5, 12]))
    if not quantized:
        weights = T("w", [5, 12], data=R.standard_normal([5, 12]))
    tensors = [open_batch("x", [1, 2, 2, 3], **grid), *BATCH, whole("c", 12), T("p", [2], np.int32)]
    tensors += [open_batch("f", [1, 12], **grid), weights, open_batch("y", [1, 5], **grid)]
    ops = [*BATCH_OPS, pack("n", "c"), Op("RESHAPE", ["x", "p"], ["f"])]
    ops.append(Op("FULLY_CONNECTED", ["f", "w", ""], ["y"], "FullyConnectedOptions", {}))
    return model(tensors, ops, ["x"], ["y"])


def upsampled() -> bytes:
    """Conv2DTranspose, whose output's shape Keras computes."""
    tensors = [open_batch("x", [1, 3, 3, 2]), *BATCH, whole("h", 6), whole("c", 4), T("p", [4], np.int32)]
    tensors += [T("w", [4, 2, 2, 2], data=R.standard_normal([4, 2, 2, 2])), open_batch("y", [1, 6, 6, 4])]
    options = {"StrideH": 2, "StrideW": 2, "Padding": 1}
    ops = [
        *BATCH_OPS,
        pack("n", "h", "h", "c"),
        Op("TRANSPOSE_CONV", ["p", "w", "x"], ["y"], "TransposeConvOptions", options),
    ]
    return model(tensors, ops, ["x"], ["y"])


def tiled() -> bytes:
    """A learned token for each image of the batch, and zeros beside it."""
    tensors = [open_batch("x", [1, 4, 1, 3]), *BATCH, whole("c3", 3), whole("c1", 1), T("p", [3], np.int32)]
    tensors += [T("token", [1, 1, 3], data=R.standard_normal([1, 1, 3])), T("v", [], data=np.array(2.5))]
    tensors += [T("q", [3], np.int32), whole("axis", [2]), open_batch("a", [1, 1, 3]), open_batch("b", [1, 1, 3])]
    tensors += [whole("rows", [-1, 4, 3]), open_batch("f", [1, 4, 3]), open_batch("y", [1, 6, 3])]
    ops = [*BATCH_OPS, pack("n", "c1", "c1"), Op("TILE", ["token", "p"], ["a"]), pack("n", "c1", "c3", output="q")]
    ops += [Op("FILL", ["q", "v"], ["b"]), Op("RESHAPE", ["x", "rows"], ["f"])]
    ops.append(Op("CONCATENATION", ["a", "f", "b"], ["y"], "ConcatenationOptions", {"Axis": 1}))
    return model(tensors, ops, ["x"], ["y"])


def dilated() -> bytes:
    """A dilated convolution as space-to-batch, whose pads are computed of the image's size."""
    tensors = [open_batch("x", [1, 6, 6, 2]), *BATCH, whole("block", [2, 2]), whole("two", 2), whole("nought", [0, 0])]
    tensors += [T("m", [], np.int32), T("pad", [2], np.int32), T("pads", [2, 2], np.int32), T("h", [], np.int32)]
    tensors += [whole("two_", [2]), whole("three", [3]), open_batch("y", [4, 3, 3, 2])]
    ops = [
        BATCH_OPS[0],
        Op("STRIDED_SLICE", ["s", "one", "two_", "one"], ["h"], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        Op("FLOOR_MOD", ["h", "two"], ["m"], "FloorModOptions", {}),
        pack("m", "m", output="pad"),
        pack("pad", "pad", output="pads"),
        Op("SPACE_TO_BATCH_ND", ["x", "block", "pads"], ["y"], "SpaceToBatchNDOptions", {}),
    ]
    return model(tensors, ops, ["x"], ["y"])


@pytest.mark.parametrize("make", [flattened, upsampled, tiled, dilated])
def test_shapes_that_are_computed_of_the_batch_fold(make: Any, tmp_path: Path) -> None:
    data = make()
    (tmp_path / "m.tflite").write_bytes(data)
    for batch in (1, 3):
        options = ModelOptions(dims={"x_0": batch} if batch > 1 else {})
        graph = frontend.load(tmp_path / "m.tflite", options)
        assert graph.types["x"].shape[0] == batch
        assert not [node for node in graph.nodes if node.op in ("Shape", "Slice", "Mod")]
    feeds: dict[str, Array] = {"x": R.standard_normal(graph.types["x"].shape).astype(np.float32)[:1]}
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_allclose(found, litert(data, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.product(2)
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize("make", [flattened, lambda: flattened(quantized=True), tiled], ids=["float", "int8", "tiled"])
def test_a_batch_of_three_is_litert_s(make: Any, rounding: Any, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "m.tflite"
    path.write_bytes(make())
    options = mtool.Options(dims={"x_0": 3}, rounding=rounding)
    report = mtool.verify(
        path, board="host", options=options, samples=2, deployment=mtool.Deployment(tmp_path / "project")
    )
    report.check()


def test_the_batch_that_the_file_has_is_taken_unless_another_is_given(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(flattened())
    assert frontend.load(path).types["y"].shape == (1, 5)
    assert frontend.load(path, ModelOptions(dims={"x_0": 4})).types["y"].shape == (4, 5)
    for name in ("x_1", "batch", "y_0"):
        with pytest.raises(UsageError, match=f"no symbolic dimension named {name}"):
            frontend.load(path, ModelOptions(dims={name: 4}))


@pytest.mark.parametrize(("kind", "made"), [("RESHAPE", [1, 4]), ("RELU", [1, 1, 1])])
def test_an_open_size_in_the_middle_is_what_is_inferred(kind: str, made: list[int], tmp_path: Path) -> None:
    """The file has a 1 where the run would find a 3: this is not a contradiction."""
    if kind == "RESHAPE":
        tensors = [T("x", [3, 4]), T("y", made, signature=[-1, 4]), whole("p", [-1, 4])]
        ops = [Op("RESHAPE", ["x", "p"], ["y"])]
    else:
        tensors = [T("x", [3, 4, 2]), T("y", made, signature=[-1, -1, -1])]
        ops = [Op("RELU", ["x"], ["y"])]
    (tmp_path / "m.tflite").write_bytes(model(tensors, ops, ["x"], ["y"]))
    graph = frontend.load(tmp_path / "m.tflite")
    assert graph.types["y"].shape == tuple(tensors[0].shape)


def test_a_size_that_is_not_open_is_still_a_contradiction(tmp_path: Path) -> None:
    tensors = [T("x", [3, 4]), T("y", [1, 5], signature=[-1, 5])]
    (tmp_path / "m.tflite").write_bytes(model(tensors, [Op("RELU", ["x"], ["y"])], ["x"], ["y"]))
    with pytest.raises(ModelError, match="is inconsistent"):
        frontend.load(tmp_path / "m.tflite")


def test_a_reshape_that_only_the_run_would_know(tmp_path: Path) -> None:
    tensors = [T("x", [2, 6]), T("p", [2], np.int32), T("y", [1, 1], signature=[-1, -1])]
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, [Op("RESHAPE", ["x", "p"], ["y"])], ["x", "p"], ["y"]))
    with pytest.raises(ModelError, match=r"its output's shape \[-1, -1\]"):
        frontend.load(path)
    graph = frontend.load(path, ModelOptions(constants={"p": np.array([3, -1])}))
    assert graph.types["y"].shape == (3, 4) and graph.inputs == ("x",)


CONSTANTS = {
    "the axes": ("MEAN", ["x", "k"], "ReducerOptions", {}, [1], [2, 4]),
    "the permutation": ("TRANSPOSE", ["x", "k"], "TransposeOptions", {}, [2, 0, 1], [4, 2, 3]),
    "the pads": ("PAD", ["x", "k"], "PadOptions", {}, [[0, 1], [1, 0], [0, 0]], [3, 4, 4]),
    "the multiples": ("TILE", ["x", "k"], "", {}, [1, 2, 1], [2, 6, 4]),
    "the axis": ("ARG_MAX", ["x", "k"], "ArgMaxOptions", {"OutputType": 2}, 1, [2, 4]),
}


@pytest.mark.parametrize("role", CONSTANTS)
def test_const_reaches_what_needs_a_constant(role: str, tmp_path: Path) -> None:
    kind, inputs, options, values, given, made = CONSTANTS[role]
    constant = np.asarray(given, np.int32)
    dtype = np.int32 if kind == "ARG_MAX" else np.float32
    tensors = [T("x", [2, 3, 4]), T("k", constant.shape, np.int32), T("y", made, dtype)]
    data = model(tensors, [Op(kind, inputs, ["y"], options, values)], ["x", "k"], ["y"])
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    with pytest.raises(NeedsValues, match=rf"its input 1 \({role}\) is not a constant") as refused:
        frontend.load(path)
    assert refused.value.inputs == ("k",) and "--const k=" in refused.value.hint
    graph = frontend.load(path, ModelOptions(constants={"k": constant.astype(np.int64)}))
    assert graph.inputs == ("x",) and graph.types["y"].shape == tuple(made)


def test_verify_compares_with_a_constant_given(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    tensors = [T("x", [2, 3, 4]), T("k", [1], np.int32), T("y", [2, 4])]
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, [Op("MEAN", ["x", "k"], ["y"], "ReducerOptions", {})], ["x", "k"], ["y"]))
    options = mtool.Options(constants={"k": np.array([1])})
    project = mtool.Deployment(tmp_path / "project")
    mtool.verify(path, board="host", options=options, samples=2, deployment=project).check()
    mtool.verify_layers(path, board="host", options=options, samples=2, deployment=project).check()


def test_a_constant_that_does_not_go_into_its_input(tmp_path: Path) -> None:
    tensors = [T("a", [2]), T("b", [2]), T("y", [2])]
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, [Op("ADD", ["a", "b"], ["y"], "AddOptions")], ["a", "b"], ["y"]))
    with pytest.raises(UsageError, match="--const b does not fit that input") as refused:
        frontend.load(path, ModelOptions(constants={"b": np.ones(3)}))
    assert list(refused.value.details) == ["expected  float32[2]", "found     float64[3], from 1.0 to 1.0"]
    assert frontend.load(path, ModelOptions(constants={"b": np.ones((1, 2))})).inputs == ("a",)


def test_folding_is_bounded(tmp_path: Path) -> None:
    """A few bytes ask for eight gigabytes."""
    shape = [2**16, 2**15 - 1]
    tensors = [whole("p", shape), T("v", [], data=np.array(1.0)), T("y", [1, 1], signature=[-1, -1])]
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, [Op("FILL", ["p", "v"], ["y"])], [], ["y"]))
    with pytest.raises(ModelError):
        frontend.load(path)


def test_a_required_constant_after_others_is_requested(tmp_path: Path) -> None:
    tensors = [T("x", [2, 3]), T("k", [1], np.int32), whole("c", 1), T("axes", [1], np.int32), T("y", [2])]
    ops = [Op("SUB", ["k", "c"], ["axes"], "SubOptions"), Op("MEAN", ["x", "axes"], ["y"], "ReducerOptions", {})]
    path = tmp_path / "m.tflite"
    path.write_bytes(model(tensors, ops, ["x", "k"], ["y"]))
    with pytest.raises(NeedsValues) as refused:
        frontend.load(path)
    assert refused.value.inputs == ("k",)
    assert frontend.load(path, ModelOptions(constants={"k": np.array([2])})).types["y"].shape == (2,)


def test_shapes_that_are_broadcast_and_zeros_like_an_input(tmp_path: Path) -> None:
    tensors = [open_batch("x", [1, 4]), *BATCH[2:3], whole("c", [3, 1, 1]), T("p", [3], np.int32)]
    tensors[1] = T("s", [2], np.int32)
    tensors += [T("r", [], np.int32), T("z", [1, 4]), T("w", [3, 1, 4]), T("v", [3, 1, 4]), T("y", [3, 1, 4])]
    ops = [
        BATCH_OPS[0],
        Op("BROADCAST_ARGS", ["s", "c"], ["p"]),
        Op("ZEROS_LIKE", ["x"], ["z"], "ZerosLikeOptions", {}),
        Op("BROADCAST_TO", ["x", "p"], ["w"]),
        Op("BROADCAST_TO", ["z", "p"], ["v"]),
        Op("SUB", ["v", "w"], ["y"], "SubOptions"),
        Op("RANK", ["w"], ["r"], "RankOptions", {}),
    ]
    data = model(tensors, ops, ["x"], ["y", "r"])
    feeds: dict[str, Array] = {"x": R.standard_normal([1, 4]).astype(np.float32)}
    for mine, theirs in zip(compute(data, feeds, tmp_path, "onnx", HOST), litert(data, feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_no_index_of_what_is_all_zero(tmp_path: Path) -> None:
    """WHERE of a constant: the file has a row where the value is without any, and a reshape reads it."""
    pytest.importorskip("ai_edge_litert")
    tensors = [
        T("x", [2, 3]), whole("sizes", [3, 2]), whole("zero", 0), whole("flat", [-1]),
        T("are", [2], bool), T("at", [1, 1], np.int64, signature=[-1, 1]), T("row", [1], np.int64, signature=[-1]),
        T("short", [1], np.int32, signature=[-1]), T("shape", [2], np.int32, signature=[-1]), T("y", [3, 2]),
    ]  # fmt: skip
    ops = [
        Op("EQUAL", ["sizes", "zero"], ["are"]), Op("WHERE", ["are"], ["at"]), Op("RESHAPE", ["at", "flat"], ["row"]),
        Op("CAST", ["row"], ["short"]),
        Op("CONCATENATION", ["sizes", "short"], ["shape"], "ConcatenationOptions", {"Axis": 0}),
        Op("RESHAPE", ["x", "shape"], ["y"]),
    ]  # fmt: skip
    data, feeds = model(tensors, ops, ["x"], ["y"]), {"x": R.standard_normal((2, 3)).astype(np.float32)}
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_array_equal(found, litert(data, feeds)[0])
