"""Unsupported element types are refused: a kernel is C for one type."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend.onnx_file import import_graph

T = TensorProto


def load(op: str, dtypes: list[int], shapes: list[list[int]], opset: int = 21, **attrs: Any) -> None:
    """Import a model of one node, whose inputs all come from outside."""
    inputs = [
        helper.make_tensor_value_info(f"x{n}", dtype, shape)
        for n, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))
    ]
    node = helper.make_node(op, [value.name for value in inputs], ["y"], name="it", **attrs)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", T.FLOAT, None)])
    import_graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), "g")


@pytest.mark.parametrize(
    ("op", "dtypes", "shapes", "words"),
    [
        ("NonMaxSuppression", [T.FLOAT, T.UINT4], [[1, 6, 4], [1, 2, 6]], "'scores' is uint4; expected float"),
        ("Conv", [T.FLOAT, T.INT8], [[1, 1, 4, 4], [1, 1, 3, 3]], "'W' is int8"),
        ("Conv", [T.FLOAT, T.DOUBLE], [[1, 1, 4, 4], [1, 1, 3, 3]], "'X' and 'W' differ in type: float32, float64"),
        ("Add", [T.BOOL, T.BOOL], [[2], [2]], "'A' is bool"),
        ("Where", [T.FLOAT, T.FLOAT, T.FLOAT], [[2], [2], [2]], "'condition' is float32; expected bool"),
        ("DequantizeLinear", [T.INT2, T.FLOAT], [[2], []], "'x' is int2, allowed from opset 25 on; expected float8"),
        ("GlobalAveragePool", [T.INT8], [[1, 2, 4, 4]], "'X' is int8"),
    ],
)
def test_a_type_that_the_operator_does_not_take_is_refused(
    op: str, dtypes: list[int], shapes: list[list[int]], words: str
) -> None:
    """The message names the input, by its name in the operator's definition, and what is expected."""
    with pytest.raises(ModelError) as refused:
        load(op, dtypes, shapes)
    assert words in str(refused.value)


def test_integers_are_taken_where_the_definition_has_them() -> None:
    """The indices of Gather are of another type than its data."""
    data = numpy_helper.from_array(np.array([1, 0], np.int32), "i")
    x = helper.make_tensor_value_info("x", T.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", T.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Gather", ["x", "i"], ["y"])], "g", [x], [y], [data])
    import_graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "g")
