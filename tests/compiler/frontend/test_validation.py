"""Nodes with types, shapes or attributes that their operator does not have are refused, whatever the model declares."""

from typing import Any

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import TensorProto, helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend.onnx_file import import_graph

F, LONG = np.float32, np.int64
Shapes = dict[str, tuple[type, tuple[int, ...]]]


def declared(proto: onnx.ModelProto, shape: tuple[int, ...], code: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Let a model say itself what its output is."""
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", code, shape))
    return proto


@pytest.mark.parametrize(
    ("op", "inputs", "shape"),
    [
        ("Add", {"a": (F, (3, 4)), "b": (F, (4, 3))}, (3, 4)),
        ("And", {"a": (bool, (3, 4)), "b": (bool, (4, 3))}, (3, 4)),
        ("And", {"a": (F, (3, 4)), "b": (F, (3, 4))}, (3, 4)),
        ("GreaterOrEqual", {"a": (F, (3, 4)), "b": (F, (4, 3))}, (3, 4)),
        ("MatMul", {"a": (F, (3, 4)), "b": (F, (3, 4))}, (3, 4)),
        ("Gemm", {"a": (F, (3, 4)), "b": (F, (4,))}, (3, 4)),
        ("Concat", {"a": (F, (2, 4)), "b": (LONG, (2, 4))}, (4, 4)),
        ("Min", {"a": (LONG, (4,)), "b": (np.int8, (4,))}, (4,)),
        ("BitShift", {"a": (F, (4,)), "b": (F, (4,))}, (4,)),
    ],
)
def test_a_declared_output_is_not_believed_where_inference_refuses(
    op: str, inputs: Shapes, shape: tuple[int, ...]
) -> None:
    attrs: dict[str, Any] = {"Concat": {"axis": 0}, "BitShift": {"direction": "LEFT"}}.get(op, {})
    proto = model([helper.make_node(op, ["a", "b"], ["y"], **attrs)], inputs, ["y"])
    with pytest.raises(ModelError, match=op):
        import_graph(declared(proto, shape), "test")


@pytest.mark.parametrize(
    ("op", "attrs", "word"),
    [
        ("ScatterElements", {"reduction": "mt_model"}, "reduction"),
        ("ScatterElements", {"reduction": ""}, "reduction"),
        ("ReduceMax", {"keepdims": 255}, "keepdims"),
        ("GridSample", {"mode": "a\nb"}, "mode"),
        ("GridSample", {"padding_mode": "x"}, "padding_mode"),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [1 << 32, 2]}, "strides"),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [(1 << 31) - 1, 2], "auto_pad": "SAME_UPPER"}, "strides"),
        ("MaxPool", {"kernel_shape": [3, 3], "dilations": [(1 << 31) - 1, 2], "auto_pad": "SAME_UPPER"}, "window"),
        ("MaxPool", {"kernel_shape": [3, 3], "dilations": [1 << 29, 2], "auto_pad": "SAME_UPPER"}, "window"),
        ("ReverseSequence", {"time_axis": 3, "batch_axis": 1}, "ReverseSequence"),
        ("ReverseSequence", {"time_axis": 0, "batch_axis": 16}, "ReverseSequence"),
        ("RoiAlign", {"sampling_ratio": -(1 << 63)}, "sampling_ratio"),
        ("RoiAlign", {"sampling_ratio": -2}, "sampling_ratio"),
        ("RoiAlign", {"sampling_ratio": 2, "output_height": 1 << 40}, "output_height"),
    ],
)
def test_attributes_have_the_values_that_are_defined(op: str, attrs: dict[str, Any], word: str) -> None:
    operands = {
        "ScatterElements": {"x": (F, (4, 5)), "i": (LONG, (2, 3)), "u": (F, (2, 3))},
        "GridSample": {"x": (F, (1, 2, 4, 4)), "g": (F, (1, 3, 3, 2))},
        "MaxPool": {"x": (F, (1, 3, 9, 9))},
        "ReverseSequence": {"x": (F, (4, 3)), "n": (LONG, (3,))},
        "ReduceMax": {"x": (F, (4, 3))},
        "RoiAlign": {"x": (F, (1, 2, 6, 6)), "r": (F, (2, 4)), "n": (LONG, (2,))},
    }[op]
    proto = model([helper.make_node(op, list(operands), ["y"], **attrs)], operands, ["y"])
    with pytest.raises(ModelError, match=word):
        import_graph(proto, "test")


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("GatherElements", {"x": (F, (4,)), "i": (LONG, (2, 3))}, {}),
        ("GlobalAveragePool", {"x": (F, (2, 4))}, {}),
        ("RNN", {"x": (F, (3, 1, 2)), "w": (F, (1, 4, 1)), "r": (F, (1, 4, 4))}, {"hidden_size": 4}),
        ("LSTM", {"x": (F, (3, 1, 2)), "w": (F, (1, 16, 2)), "r": (F, (16, 4))}, {"hidden_size": 4}),
    ],
)
def test_shapes_that_inference_does_not_look_at(op: str, inputs: Shapes, attrs: dict[str, Any]) -> None:
    proto = model([helper.make_node(op, list(inputs), ["y"], **attrs)], inputs, ["y"])
    with pytest.raises(ModelError, match=op):
        import_graph(proto, "test")


@pytest.mark.parametrize(
    ("op", "shape", "said"),
    [
        ("DepthToSpace", (1, 3, 2, 2), "it has 3 channels; expected a multiple of 4"),
        ("DepthToSpace", (1, 5, 2, 2), "it has 5 channels"),
        ("SpaceToDepth", (1, 1, 3, 4), "its input is 3 x 4; expected multiples of 2"),
    ],
)
def test_blocks_that_do_not_divide(op: str, shape: tuple[int, ...], said: str) -> None:
    """Inference rounds down: 3 channels were an output of none, which is empty and so was no work."""
    proto = model([helper.make_node(op, ["x"], ["y"], blocksize=2)], {"x": (F, shape)}, ["y"])
    with pytest.raises(ModelError, match=said):
        import_graph(proto, "test")


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ReduceSum", {"x": (F, (2, 3)), "n": (LONG, (1,))}),
        ("TopK", {"x": (F, (4,)), "n": (LONG, (1,))}),
        ("Reshape", {"x": (F, (4,)), "n": (LONG, (1,))}),
        ("Slice", {"x": (F, (4,)), "n": (LONG, (1,)), "m": (LONG, (1,))}),
    ],
)
def test_a_declared_output_is_not_empty_because_the_model_says_so(op: str, inputs: Shapes) -> None:
    outputs = ["y", "places"] if op == "TopK" else ["y"]
    proto = model([helper.make_node(op, list(inputs), outputs)], inputs, outputs)
    for place, code in zip(range(len(outputs)), (TensorProto.FLOAT, TensorProto.INT64), strict=False):
        proto.graph.output[place].CopyFrom(helper.make_tensor_value_info(outputs[place], code, (0,)))
    with pytest.raises(ModelError, match=r"must be a constant|give --max"):
        import_graph(proto, "test")


def test_a_function_that_makes_a_value_twice_is_malformed() -> None:
    body = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Neg", ["a"], ["b"])]
    function = helper.make_function("own", "twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F, (4,))}, ["y"])
    proto.graph.node[0].CopyFrom(helper.make_node("twice", ["x"], ["y"], domain="own"))
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(function)
    with pytest.raises(ModelError, match="also an output of another node"):
        import_graph(proto, "test")


def test_a_model_without_outputs_is_refused() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F, (4,))}, ["y"])
    del proto.graph.output[:]
    with pytest.raises(ModelError, match="no outputs"):
        import_graph(proto, "test")


def test_a_view_has_as_many_elements_as_its_input() -> None:
    constants = {"shape": np.array([6, 1], LONG)}
    proto = model([helper.make_node("Reshape", ["x", "shape"], ["y"])], {"x": (F, (2, 3, 4))}, ["y"], constants)
    with pytest.raises(ModelError, match="number of elements"):
        import_graph(proto, "test")
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (F, (2, 3)), "s": (LONG, (1,))}, ["y"])
    with pytest.raises(ModelError, match="number of elements"):
        import_graph(declared(proto, (7,)), "test")


def test_the_ends_of_a_slice_that_are_attributes_may_lie_beyond_everything() -> None:
    """Exporters write "to the end" as the largest integer, as they do for ends that are inputs."""
    far = 2**63 - 1
    attrs = {"starts": [-2, 1], "ends": [far, far], "axes": [0, 1]}
    proto = model([helper.make_node("Slice", ["x"], ["y"], **attrs)], {"x": (F, (2, 3))}, ["y"], opset=9)
    assert import_graph(proto, "test").types["y"].shape == (2, 2)


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("RandomNormalLike", ["x"], {}),
        ("RandomUniformLike", ["x"], {}),
        ("RandomNormal", [], {"shape": [1, 4]}),
        ("RandomUniform", [], {"shape": [1, 4]}),
        ("Bernoulli", ["x"], {}),
        ("Multinomial", ["x"], {"sample_size": 2, "dtype": TensorProto.INT64}),
    ],
)
def test_random_numbers_are_an_input(op: str, inputs: list[str], attrs: dict[str, Any]) -> None:
    proto = model([helper.make_node(op, inputs, ["y"], **attrs)], {"x": (F, (1, 4))}, ["y"])
    with pytest.raises(ModelError, match="random; make it an input of the model"):
        import_graph(declared(proto, (1, 4)), "test")
