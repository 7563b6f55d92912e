"""Loop and Scan over rows whose number is known at run time."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from sized import build, check, floats, node, planned

from mtool.base.errors import ModelError


def value(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def scan(direction: int) -> onnx.ModelProto:
    """A recurrence over the rows, first or last row first."""
    nodes = [
        node("MatMul", "s w", "m"), node("Add", "m r", "a"), node("Tanh", "a", "next"), node("Mul", "next two", "row"),
    ]  # fmt: skip
    body = helper.make_graph(
        nodes, "b", [value("s", [1, 4]), value("r", [4])], [value("next", [1, 4]), value("row", [1, 4])]
    )
    directions = {"scan_input_directions": [direction], "scan_output_directions": [1 - direction]}
    made = node("Scan", "s0 x", "last rows", body=body, num_scan_inputs=1, **directions)
    constants = {"s0": floats(1, 4), "w": floats(4, 4), "two": np.float32(2)}
    return build([made], {"x": ("n", 4)}, {"last": (1, 4), "rows": ("n", 1, 4)}, constants)


def loop() -> onnx.ModelProto:
    """As many rounds as there are rows, of which each is read by its number."""
    nodes = [
        node("Gather", "x i", "r", axis=0), node("Add", "s r", "next"), node("Identity", "go", "on"),
        node("Identity", "next", "row"),
    ]  # fmt: skip
    body = helper.make_graph(
        nodes, "b",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("s", [3])],
        [value("on", [], TensorProto.BOOL), value("next", [3]), value("row", [3])],
    )  # fmt: skip
    outer = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "n"),
        node("Loop", "n yes s0", "last rows", body=body),
    ]
    constants = {"zero": np.array(0), "yes": np.array(True), "s0": floats(3)}
    return build(outer, {"x": ("n", 3)}, {"last": (3,), "rows": ("n", 3)}, constants)


@pytest.mark.parametrize("direction", [0, 1])
def test_a_scan_over_the_rows(direction: int, tmp_path: Path) -> None:
    library = check(scan(direction), {"n": 9}, tmp_path)
    assert [tensor.range.least for tensor in library.manifest.sizes if tensor.range] == [1]


def test_a_body_that_reads_a_tensor_of_an_open_size_is_refused(tmp_path: Path) -> None:
    onnx.save(loop(), tmp_path / "test.onnx")
    with pytest.raises(ModelError, match="control flow depend"):
        planned(tmp_path / "test.onnx", {"n": 40})
