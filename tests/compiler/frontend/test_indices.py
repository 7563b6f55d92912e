"""Constant indices and lengths that are out of range: model errors, as in onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import TensorProto, helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend.onnx_file import import_graph

F, LONG = np.float32, np.int64

# Operator, attributes, shapes of the inputs (None: the indices), indices inside, some outside, and the message.
CASES: list[tuple[str, dict[str, Any], list[Any], Any, Any, str]] = [
    ("Gather", {"axis": 1}, [(3, 5), None], [0, -5, 4], [0, 5], "indices contain 5 for a dimension of 5; expected -5"),
    ("Gather", {}, [(3, 5), None], [[2], [-3]], [[2], [-4]], "contain -4 for a dimension of 3; expected -3 to 2"),
    ("Gather", {"axis": -1}, [(3, 5), None], -5, 2**32, "contain 4294967296 for a dimension of 5; expected -5 to 4"),
    ("GatherElements", {"axis": 1}, [(2, 3), None], [[-3], [2]], [[0], [3]], "contain 3 for a dimension of 3"),
    ("GatherND", {}, [(2, 3), None], [[1, 2], [-2, -3]], [[1, 3]], "contain 3 for a dimension of 3; expected -3 to 2"),
    ("GatherND", {}, [(2, 3), None], [[1], [-2]], [[2]], "contain 2 for a dimension of 2"),
    ("GatherND", {"batch_dims": 1}, [(2, 3), None], [[2], [-3]], [[0], [-4]], "contain -4 for a dimension of 3"),
    ("ScatterElements", {"axis": 0}, [(3, 2), None, (1, 2)], [[2, -3]], [[3, 0]], "contain 3 for a dimension of 3"),
    ("ScatterND", {}, [(3, 2), None, (1, 2)], [[-3]], [[-4]], "contain -4 for a dimension of 3"),
    ("ScatterND", {}, [(3, 2), None, (1,)], [[2, 1]], [[2, 2]], "contain 2 for a dimension of 2"),
    ("ReverseSequence", {}, [(4, 2), None], [1, 4], [1, 5], "its sequence_lens contain 5 for a dimension of 4"),
    ("RoiAlign", {"sampling_ratio": 2}, [(2, 1, 4, 4), (1, 4), None], [1], [2], "indices contain 2"),
    ("RoiAlign", {"sampling_ratio": 2}, [(2, 1, 4, 4), (1, 4), None], [0], [-1], "batch_indices contain"),
    ("MaxUnpool", {"kernel_shape": [2], "strides": [2]}, [(1, 1, 2), None], [[[0, 3]]], [[[0, 4]]], "dimension of 4"),
    ("GRU", {"hidden_size": 1}, [(3, 1, 2), (1, 3, 2), (1, 3, 1), "", None], [3], [4], "sequence_lens contain 4"),
]  # fmt: skip


def with_indices(case: tuple[str, dict[str, Any], list[Any], Any, Any, str], indices: Any) -> onnx.ModelProto:
    op, attrs, shapes = case[:3]
    kind = np.int32 if op == "GRU" else LONG
    names = [shape if shape == "" else "indices" if shape is None else f"x{n}" for n, shape in enumerate(shapes)]
    inputs = {name: (F, shape) for name, shape in zip(names, shapes, strict=True) if name not in ("", "indices")}
    outputs = ["", "y"] if op == "GRU" else ["y"]
    return model([helper.make_node(op, names, outputs, **attrs)], inputs, ["y"], {"indices": np.array(indices, kind)})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_one_outside_is_an_error(case: Any) -> None:
    with pytest.raises(ModelError) as caught:
        import_graph(with_indices(case, case[4]), "test")
    (row,) = caught.value.details
    assert row.startswith(case[0]) and case[5] in row, row


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_those_at_the_ends_are_none(case: Any) -> None:
    import_graph(with_indices(case, case[3]), "test")


def test_constant_data_make_no_difference() -> None:
    """A node of constants is computed by onnx's reference, some of whose operators wrap."""
    for op, indices in (("Gather", [3]), ("GatherElements", [3]), ("GatherND", [[3]])):
        proto = model(
            [helper.make_node(op, ["d", "i"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])],
            {"x": (F, (1,))}, ["y"], {"d": np.ones(3, F), "i": np.array(indices, LONG)},
        )  # fmt: skip
        with pytest.raises(ModelError) as caught:
            import_graph(proto, "test")
        assert "its indices contain 3 for a dimension of 3" in caught.value.details[0]


def test_computed_constants_are_looked_at_too() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["y"], name="last"),
    ]
    with pytest.raises(ModelError) as caught:
        import_graph(model(nodes, {"x": (F, (4,))}, ["y"]), "test")
    assert caught.value.details == ("Gather  last   its indices contain 4 for a dimension of 4; expected -4 to 3",)


def reading_until(limit: float, rows: int) -> onnx.ModelProto:
    """Sum the elements of x, or of a constant table, until the sum is over the limit: its end is never reached."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "round"], ["one"]),
            helper.make_node("Gather", ["table", "round"], ["other"]),
            helper.make_node("Add", ["sum", "one"], ["more"]),
            helper.make_node("Add", ["more", "other"], ["next"]),
            helper.make_node("Less", ["next", "limit"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, []),
        ],
    )
    loop = helper.make_node("Loop", ["trips", "", "start"], ["y"], body=body)
    constants = {"trips": LONG(8), "start": F(0), "limit": F(limit), "table": np.arange(rows, dtype=F)}
    return model([loop], {"x": (F, (rows,))}, ["y"], constants)


def test_a_round_that_is_not_made_may_read_outside(tmp_path: Path) -> None:
    """Eight rounds are written out and the data end the loop after the third: the later ones have indices too."""
    proto, feeds = reading_until(5.0, 4), {"x": F([1, 1, 1, 1])}
    (expected,), (found,) = reference(proto, feeds), run_c(compiled(proto), feeds, tmp_path)
    assert found == expected == 6


def test_a_branch_that_is_not_taken_may_read_outside(tmp_path: Path) -> None:
    def branch(row: int) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Constant", [], ["row"], value_int=row),
            helper.make_node("Gather", ["x", "row"], ["one"]),
        ]
        return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info("one", TensorProto.FLOAT, [])])

    node = helper.make_node("If", ["yes"], ["y"], then_branch=branch(1), else_branch=branch(9))
    proto = model([node], {"x": (F, (2,)), "yes": (bool, ())}, ["y"])
    feeds = {"x": F([3, 4]), "yes": np.array(True)}
    (expected,), (found,) = reference(proto, feeds), run_c(compiled(proto), feeds, tmp_path)
    assert found == expected == 4
