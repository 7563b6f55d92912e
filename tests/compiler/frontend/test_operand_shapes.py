"""Operands and attributes that do not match are refused: C would read outside of a tensor."""

from typing import Any

import numpy as np
import pytest
from graphs import HOST
from onnx import TensorProto, helper, numpy_helper

from mtool.base.errors import ModelError
from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph

F, INT = np.float32, np.int64


def ones(*shape: int) -> Any:
    return np.ones(shape, F)


def load(op: str, shape: tuple[int, ...], operands: list[Any], dtype: Any = F, **attrs: Any) -> None:
    """Import and lower a model of one node: an input x of a shape and a type, and constants; "" is left out."""
    names = [f"c{n}" if isinstance(data, np.ndarray) else "" for n, data in enumerate(operands)]
    constants = [numpy_helper.from_array(data, name) for data, name in zip(operands, names, strict=True) if len(name)]
    opset = attrs.pop("opset", 17)
    x = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], name="it", **attrs)], "g", [x], [y], constants
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    passes.run(import_graph(proto, "g"), HOST)


IMAGE = (1, 1, 4, 4)
SMALL = (ones(1, 12, 2), ones(1, 12, 3))

BAD: dict[str, tuple[str, tuple[int, ...], list[Any], dict[str, Any]]] = {
    "a signal of four dimensions": ("STFT", (1, 16, 1, 5), [np.array(1), ones(8)], {}),
    "a signal of five parts": ("STFT", (1, 16, 5), [np.array(1), ones(8)], {}),
    "a transform of five parts": ("DFT", (1, 16, 5), [], {}),
    "reshape to more elements": ("Reshape", (2, 3), [np.array([4, 4], INT)], {}),
    "reshape to a scalar": ("Reshape", (2, 3), [np.array([], INT)], {}),
    "transpose with a short perm": ("Transpose", (2, 3), [], {"perm": [0]}),
    "another kernel_shape": ("Conv", IMAGE, [ones(2, 1, 3, 3)], {"kernel_shape": [4, 4]}),
    "a short bias": ("Conv", IMAGE, [ones(2, 1, 3, 3), ones(1)], {}),
    "a huge stride": ("Conv", IMAGE, [ones(2, 1, 3, 3)], {"strides": [2**40, 1]}),
    "an unknown auto_pad": ("Conv", IMAGE, [ones(2, 1, 3, 3)], {"auto_pad": "SAME"}),
    "transposed, a short bias": ("ConvTranspose", IMAGE, [ones(1, 2, 3, 3), ones(1)], {}),
    "transposed, other channels": ("ConvTranspose", IMAGE, [ones(3, 2, 3, 3)], {}),
    "deformed, few offsets": ("DeformConv", IMAGE, [ones(1, 1, 3, 3), ones(1, 4, 2, 2)], {"opset": 19}),
    "a bias that does not broadcast": ("Gemm", (2, 3), [ones(3, 2), ones(5)], {}),
    "scales for one channel": ("InstanceNormalization", (1, 2, 4), [ones(1), ones(2)], {}),
    "a short scale": ("LayerNormalization", (2, 4), [ones(2)], {}),
    "a slope that does not broadcast": ("PRelu", (2, 4), [ones(3)], {}),
    "few weights": ("LSTM", (4, 1, 2), [ones(1, 8, 2), ones(1, 8, 3)], {"hidden_size": 3}),
    "one direction of two": ("LSTM", (4, 1, 2), [*SMALL], {"hidden_size": 3, "direction": "bidirectional"}),
    "another hidden_size": ("LSTM", (4, 1, 2), [*SMALL], {"hidden_size": 9}),
    "a short recurrent bias": ("LSTM", (4, 1, 2), [*SMALL, ones(1, 5)], {"hidden_size": 3}),
    "one activation": ("LSTM", (4, 1, 2), [*SMALL], {"hidden_size": 3, "activations": ["Tanh"]}),
    "no hidden units": ("GRU", (4, 1, 2), [ones(1, 9, 2), ones(1, 6, 3)], {"hidden_size": 3}),
    "indices wider than the data": ("GatherElements", (3, 4), [np.zeros((2, 9), INT)], {}),
    "indices of another rank": ("GatherElements", (3, 4), [np.zeros(3, INT)], {}),
    "few updates": ("ScatterElements", (3, 4), [np.zeros((2, 2), INT), ones(1, 1)], {}),
    "deep indices": ("ScatterND", (3, 4), [np.zeros((2, 5), INT), ones(2)], {}),
    "wide updates": ("ScatterND", (3, 4), [np.zeros((2, 1), INT), ones(2, 9)], {}),
    "other batches": ("GatherND", (3, 4), [np.zeros((2, 1), INT)], {"batch_dims": 1}),
    "odd blocks": ("SpaceToDepth", (1, 1, 3, 3), [], {"blocksize": 2}),
    "few lengths": ("ReverseSequence", (4, 3), [np.ones(1, INT)], {}),
    "few indices": ("MaxUnpool", (1, 1, 2, 2), [np.zeros((1, 1, 1, 1), INT)], {"kernel_shape": [2, 2]}),
    "regions of two numbers": ("RoiAlign", IMAGE, [ones(1, 2), np.zeros(1, INT)], {"sampling_ratio": 1}),
    "other matrices": ("AffineGrid", (1, 2, 3), [np.array([3, 1, 4, 4], INT)], {"opset": 20}),
    "few blocks": ("Col2Im", (1, 4, 4), [np.array([5, 5], INT), np.array([2, 2], INT)], {"opset": 18}),
    "letters of two sizes": ("Einsum", (2, 3), [ones(4, 5)], {"equation": "ij,jk->ik"}),
    "a letter twice": ("Einsum", (2, 3), [], {"equation": "ij->iij"}),
    "complex numbers of three parts": ("DFT", (1, 16, 3), [], {"axis": 1}),
    "no such axis": ("CumSum", (4, 3), [np.array(9, INT)], {}),
    "no such axes": ("MeanVarianceNormalization", (2, 3), [], {"axes": [7]}),
    "a norm of order 7": ("LpNormalization", (2, 3), [], {"p": 7}),
    "a norm of a scalar": ("LpNormalization", (), [], {}),
    "a norm of order 0": ("GlobalLpPool", IMAGE, [], {"p": 0}),
    "a window of nothing": ("LRN", IMAGE, [], {"size": 0}),
    "an unknown mode": ("Pad", (4, 5), [np.array([1, 1, 1, 1], INT)], {"mode": "mirror"}),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_a_model_error_that_names_the_node(case: str) -> None:
    op, shape, operands, attrs = BAD[case]
    with pytest.raises(ModelError, match=r"(?s)can't be compiled|Einsum 'it'") as refused:
        load(op, shape, operands, **attrs)
    assert "it" in str(refused.value).split()[1:] or "'it'" in str(refused.value)


GOOD: dict[str, tuple[str, tuple[int, ...], list[Any], dict[str, Any]]] = {
    "reshape": ("Reshape", (2, 3), [np.array([3, -1], INT)], {}),
    "conv": ("Conv", IMAGE, [ones(2, 1, 3, 3), ones(2)], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    "transposed": ("ConvTranspose", (1, 4, 3, 3), [ones(4, 2, 3, 3), ones(4)], {"group": 2}),
    "deformed": ("DeformConv", IMAGE, [ones(1, 1, 3, 3), ones(1, 18, 2, 2)], {"opset": 19}),
    "gemm": ("Gemm", (2, 3), [ones(3, 2), ones(2, 1)], {}),
    "slope": ("PRelu", (1, 2, 4, 4), [ones(2, 1, 1)], {}),
    "normalised": ("LayerNormalization", (2, 3, 4), [ones(3, 4), ones(4)], {"axis": 1}),
    "batches first": ("GRU", (1, 4, 2), [ones(1, 9, 2), ones(1, 9, 3)], {"hidden_size": 3, "layout": 1}),
    "recurrent": ("LSTM", (4, 1, 2), [*SMALL, ones(1, 24)], {"hidden_size": 3}),
    "elements": ("GatherElements", (3, 4), [np.zeros((2, 4), INT)], {"axis": -2}),
    "more of them along the axis": ("GatherElements", (3, 4), [np.zeros((7, 4), INT)], {}),
    "scattered": ("ScatterND", (3, 4), [np.zeros((2, 1), INT), ones(2, 4)], {}),
    "unrolled": ("Col2Im", (1, 4, 16), [np.array([5, 5], INT), np.array([2, 2], INT)], {"opset": 18}),
    "sums": ("Einsum", (2, 3), [ones(3, 5)], {"equation": "ij,jk->ik"}),
    "a row for all": ("Einsum", (2, 3), [ones(1, 5)], {"equation": "ij,jk->ik"}),
    "reversed": ("ReverseSequence", (4, 3), [np.ones(4, INT)], {"batch_axis": 0, "time_axis": 1}),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_fits_is_compiled(case: str) -> None:
    op, shape, operands, attrs = GOOD[case]
    load(op, shape, operands, **attrs)


def test_a_condition_is_one_element() -> None:
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [out])
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, [3]),
    ]
    node = helper.make_node("If", ["c"], ["y"], name="it", **branches)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ModelError, match=r"its condition is bool\[3\]; expected one element"):
        import_graph(proto, "g")
